//! Whether limits can be shared over Redis.

use lanekeeper_core::error::chain;
use lanekeeper_limit::{Inspection, LinkError};

use super::check::Check;
use crate::output;

const NAME: &str = "redis";

/// `limited` is how many subscriptions have a limit.
pub(super) fn judge(
    inspection: Option<Result<Inspection, LinkError>>,
    limited: usize,
) -> Option<Check> {
    match inspection {
        None if limited == 0 => None,
        None => Some(Check::warn(
            NAME,
            format!("{limited} subscriptions have a limit and redis.url is not set"),
            "each worker keeps to an equal share, whatever it has to do; set REDIS_URL to share the limits",
        )),
        Some(Err(error)) => Some(Check::warn(
            NAME,
            chain(&error),
            "until it answers each worker keeps to its share of the limits; see whether Redis runs and the URL is right",
        )),
        Some(Ok(inspection)) => Some(found(&inspection)),
    }
}

fn found(inspection: &Inspection) -> Check {
    let Inspection {
        version,
        eviction,
        round_trip,
        open,
    } = inspection;
    let found = format!(
        "Redis {version} answers in {}",
        output::age(round_trip.as_secs_f64())
    );
    if !open.is_empty() {
        return Check::warn(
            NAME,
            format!("{found}; circuits are open: {}", open.join(", ")),
            "these destinations fail and are tried now and then: see `lanekeeper lane list --blocked`; mended, \
             `lanekeeper breaker reset` has them tried at once",
        );
    }
    match eviction.as_deref() {
        Some(policy) if policy != "noeviction" => Check::warn(
            NAME,
            format!("{found}, and its maxmemory-policy is {policy}"),
            "a limit that is evicted begins full: set maxmemory-policy noeviction, or give limits a Redis of their own",
        ),
        _ => Check::ok(NAME, found),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::check::Status;
    use super::*;

    fn inspection(eviction: Option<&str>) -> Option<Result<Inspection, LinkError>> {
        Some(Ok(Inspection {
            version: "7.0.15".to_owned(),
            eviction: eviction.map(str::to_owned),
            round_trip: Duration::from_millis(1),
            open: Vec::new(),
        }))
    }

    #[test]
    fn redis_is_asked_for_where_it_is_of_use_and_must_forget_nothing() {
        let status = |inspection, limited| judge(inspection, limited).map(|check| check.status);
        assert_eq!(status(None, 0), None);
        assert_eq!(status(None, 2), Some(Status::Warn));
        assert_eq!(status(inspection(Some("noeviction")), 0), Some(Status::Ok));
        assert_eq!(status(inspection(None), 0), Some(Status::Ok));
        assert_eq!(
            status(inspection(Some("allkeys-lru")), 0),
            Some(Status::Warn)
        );
        let open = inspection(None).map(|found| {
            found.map(|found| Inspection {
                open: vec!["webhook https://example.com".into()],
                ..found
            })
        });
        assert_eq!(status(open, 0), Some(Status::Warn));
        let silent = Some(Err(LinkError::Silent("connecting")));
        assert_eq!(status(silent, 0), Some(Status::Warn));
    }
}
