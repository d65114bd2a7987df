//! Whether hook calls on this machine can be spooled, and which spooled records will not be sent.

use lanekeeper_producer::spool::{Rejected, Spool, SpoolConfig, SpoolError};
use lanekeeper_streams::hooks::SPOOLED;

use super::check::Check;

const NAME: &str = "spool";

/// What lies in the spool.
pub(super) struct Facts {
    sessions: usize,
    rejected: usize,
    /// Of those that were rejected, where it can be read.
    newest: Option<Rejected>,
}

pub(super) fn look(config: &SpoolConfig) -> Result<Facts, SpoolError> {
    let spool = Spool::new(config, SPOOLED)?;
    let rejected = spool.rejected()?;
    // Their names are message ids, which begin with the time.
    let newest = rejected.iter().max();
    Ok(Facts {
        sessions: spool.files()?.len(),
        rejected: rejected.len(),
        newest: newest.and_then(|path| Spool::show_rejected(path).ok()),
    })
}

/// Nothing where there is no spool and none is needed.
pub(super) fn judge(facts: Result<Facts, SpoolError>) -> Option<Check> {
    let Facts {
        sessions,
        rejected,
        newest,
    } = match facts {
        Ok(facts) => facts,
        Err(SpoolError::NoDirectory) => return None,
        Err(error) => {
            return Some(Check::fail(
                NAME,
                error.to_string(),
                "until then hook calls on this machine are lost while the database is away",
            ));
        }
    };
    let waiting = format!("{sessions} sessions have events that wait");
    let Some(newest) = newest.filter(|_| rejected > 0) else {
        return match rejected {
            0 if sessions == 0 => None,
            0 => Some(Check::ok(NAME, waiting)),
            _ => Some(aside(format!("{waiting}; {rejected} events are set aside"))),
        };
    };
    let Rejected { reason, record, .. } = newest;
    Some(aside(format!(
        "{waiting}; {rejected} events are set aside, the newest, {} of session {}, because {reason}",
        record.event_type, record.session
    )))
}

fn aside(found: String) -> Check {
    Check::warn(
        NAME,
        found,
        "see `lanekeeper spool --rejected`; when the reason is gone, `lanekeeper spool --retry-rejected`",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn status(facts: Result<Facts, SpoolError>) -> Option<Status> {
        judge(facts).map(|check| check.status)
    }

    fn facts(sessions: usize, rejected: usize) -> Result<Facts, SpoolError> {
        Ok(Facts {
            sessions,
            rejected,
            newest: None,
        })
    }

    #[test]
    fn a_spool_that_cannot_be_used_fails_and_one_that_keeps_events_aside_warns() {
        assert_eq!(status(Err(SpoolError::NoDirectory)), None);
        assert_eq!(status(facts(0, 0)), None);
        assert_eq!(status(facts(2, 0)), Some(Status::Ok));
        assert_eq!(status(facts(0, 1)), Some(Status::Warn));
        let untrusted = SpoolError::Untrusted {
            dir: "/tmp/spool".into(),
            reason: "every user may write to it".into(),
        };
        assert_eq!(status(Err(untrusted)), Some(Status::Fail));
    }
}
