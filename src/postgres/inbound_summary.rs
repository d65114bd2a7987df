//! How an agent's session is, in words for the person who asks in its chat.

use std::fmt;

use tokio_postgres::GenericClient;

use super::StoreError;

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundSummary {
    pub session: String,
    /// `None`: nothing was ever sent to it.
    pub closed: Option<bool>,
    /// Messages that are not delivered yet.
    pub behind: i64,
    /// How often the next one was tried in vain.
    pub attempts: i32,
    pub is_held: bool,
    pub is_parked: bool,
    /// What the agent's hooks have told.
    pub agent: Option<Agent>,
}

/// An agent, as its hooks tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub is_running: bool,
    pub has_ended: bool,
    pub host: Option<String>,
    /// Seconds since it was last heard of.
    pub active_s: i64,
}

/// Reads it.
///
/// # Errors
/// Where it cannot be read.
pub async fn summary(
    client: &impl GenericClient,
    session: &str,
) -> Result<InboundSummary, StoreError> {
    let failed = "summing up a session";
    let row = client
        .query_one(include_str!("sql/inbound_summary.sql"), &[&session])
        .await
        .map_err(StoreError::on(failed))?;
    let read = || {
        let turn_state: Option<String> = row.try_get("turn_state")?;
        let agent = match turn_state {
            None => None,
            Some(state) => Some(Agent {
                is_running: state == "running",
                has_ended: row.try_get("ended")?,
                host: row.try_get("host")?,
                active_s: row.try_get("active_s")?,
            }),
        };
        Ok(InboundSummary {
            session: session.to_owned(),
            closed: row.try_get("closed")?,
            behind: row.try_get("behind")?,
            attempts: row.try_get("attempts")?,
            is_held: row.try_get("is_held")?,
            is_parked: row.try_get("is_parked")?,
            agent,
        })
    };
    read().map_err(StoreError::on(failed))
}

impl fmt::Display for InboundSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session: String = self.session.chars().take(200).collect();
        write!(f, "Session {session}: ")?;
        match &self.agent {
            None => write!(f, "no agent has reported itself.")?,
            Some(agent) => {
                f.write_str(match (agent.has_ended, agent.is_running) {
                    (true, _) => "the agent has ended",
                    (false, true) => "the agent works",
                    (false, false) => "the agent waits for a prompt",
                })?;
                if let Some(host) = &agent.host {
                    write!(f, " on {host}")?;
                }
                write!(f, ", last heard of {} s ago.", agent.active_s)?;
            }
        }
        match self.behind {
            _ if self.closed == Some(true) => return write!(f, " The session is closed."),
            0 => return write!(f, " No message waits."),
            1 => write!(f, " 1 message waits")?,
            several => write!(f, " {several} messages wait")?,
        }
        match (self.is_parked, self.is_held, self.attempts) {
            (true, ..) => write!(f, " for an operator."),
            (_, true, _) => write!(f, "; one is being delivered."),
            (_, _, 0) => write!(f, "."),
            (_, _, 1) => write!(f, "; the next one was tried once."),
            (_, _, often) => write!(f, "; the next one was tried {often} times."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_reads_as_a_sentence_about_the_agent_and_one_about_the_queue() {
        let mut summary = InboundSummary {
            session: "tg-77".to_owned(),
            closed: Some(false),
            behind: 0,
            attempts: 0,
            is_held: false,
            is_parked: false,
            agent: None,
        };
        assert_eq!(
            summary.to_string(),
            "Session tg-77: no agent has reported itself. No message waits."
        );
        summary.agent = Some(Agent {
            is_running: true,
            has_ended: false,
            host: Some("build-7".to_owned()),
            active_s: 12,
        });
        summary.behind = 2;
        summary.attempts = 4;
        assert_eq!(
            summary.to_string(),
            "Session tg-77: the agent works on build-7, last heard of 12 s ago. 2 messages wait; the next one was tried 4 times."
        );
        summary.closed = Some(true);
        assert!(summary.to_string().ends_with("The session is closed."));
    }
}
