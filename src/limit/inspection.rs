//! Checks Redis for `doctor`: whether it answers, and whether it can hold limits. It removes expired circuits from the
//! list, and changes nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::link::{Link, field};
use super::settings::{LinkError, RedisSettings};

/// The result of the check.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub version: String,
    /// `maxmemory-policy`, if the server reveals it.
    pub eviction: Option<String>,
    pub round_trip: Duration,
    /// Destinations with an open circuit.
    pub open: Vec<Arc<str>>,
}

/// # Errors
/// The reason why Redis cannot be used.
pub async fn inspect(settings: &RedisSettings) -> Result<Inspection, LinkError> {
    let link = Link::open(settings).await?;
    link.try_scripts().await?;
    let server = link.info("server").await?;
    let memory = link.info("memory").await?;
    let asked_at = Instant::now();
    link.look_at_clock().await?;
    let round_trip = asked_at.elapsed();
    let circuits = link.circuits().await?.into_iter();
    Ok(Inspection {
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
