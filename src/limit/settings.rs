//! The address of Redis, and the errors of reaching it.

use std::time::Duration;

use lanekeeper_secret::Secret;
use redis::RedisError;

/// Where the shared limits are kept.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// One address or several, separated by commas: of a server, of nodes of a cluster, or of sentinels.
    pub url: Secret,
    /// If the addresses are sentinels: their name of the master.
    pub sentinel: Option<String>,
    /// The prefix of every key. Installations with the same prefix share their limits.
    pub prefix: String,
    /// The time-out of an answer.
    pub timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("redis.url is no address of a Redis server")]
    Url(#[source] RedisError),
    #[error("cannot connect to Redis")]
    Connect(#[source] RedisError),
    #[error("Redis does not answer while {0}")]
    Silent(&'static str),
    #[error("Redis refused {0}")]
    Refused(&'static str, #[source] RedisError),
    #[error("the nodes of the Redis cluster sent each other {0} times and none has the limits")]
    Redirected(usize),
    #[error("the sentinel knows no master named {0:?}")]
    NoMaster(String),
    #[error("the server that the sentinel names is no master")]
    NotMaster,
    #[error("Redis' clock is not where it was a moment ago")]
    Clock,
}
