//! A look at Redis for `doctor`: whether it answers, and whether limits can be kept there. It forgets
//! circuits of which nothing is left, and changes nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::link::{Link, field};
use super::settings::{LinkError, RedisSettings};

/// What was found.
#[derive(Clone, Debug)]
pub struct Survey {
    pub version: String,
    /// `maxmemory-policy`, where the server tells it.
    pub eviction: Option<String>,
    pub round_trip: Duration,
    /// Destinations that are left alone.
    pub open: Vec<Arc<str>>,
}

/// # Errors
/// Why it cannot be used.
pub async fn survey(settings: &RedisSettings) -> Result<Survey, LinkError> {
    let link = Link::open(settings).await?;
    link.try_scripts().await?;
    let server = link.info("server").await?;
    let memory = link.info("memory").await?;
    let asked_at = Instant::now();
    link.look_at_clock().await?;
    let round_trip = asked_at.elapsed();
    let circuits = link.circuits().await?.into_iter();
    Ok(Survey {
        round_trip,
        open: circuits
            .filter(|circuit| circuit.open.is_some())
            .map(|circuit| circuit.destination)
            .collect(),
        version: field(&server, "redis_version")
            .unwrap_or("of unknown version")
            .to_owned(),
        eviction: field(&memory, "maxmemory_policy").map(str::to_owned),
    })
}
