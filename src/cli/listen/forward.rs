//! Posts a session's events, one after the other, with the webhook adapter.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::{Attempt, Environment, Signer, Webhook};
use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_postgres::log::LoggedEvent;
use serde_json::json;
use tokio::time::Instant;

use super::super::Failure;
use super::super::output::Output;
use super::print::{self, Answer};

/// The wait after each failed attempt; the last one repeats. Somebody is watching.
const SCHEDULE: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];
/// A destination that asks for a pause is believed up to here.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Where the adapter finds the secret that was made for this run.
const SECRET: &str = "LISTEN_SECRET";

#[derive(Debug, clap::Args)]
pub(super) struct ForwardArgs {
    /// Post each event there as a webhook subscription would; without a scheme it is http
    #[arg(long, value_name = "URL")]
    forward_to: Option<String>,
    /// The environment variable with the signing secret [default: a new secret, which is printed]
    #[arg(long, value_name = "NAME", requires = "forward_to")]
    secret_env: Option<String>,
}

impl ForwardArgs {
    pub(super) fn forwarder(
        &self,
        stream: &str,
        output: Output,
    ) -> Result<Option<Forwarder>, Failure> {
        let Some(url) = &self.forward_to else {
            return Ok(None);
        };
        let url = match url.contains("://") {
            true => url.clone(),
            false => format!("http://{url}"),
        };
        // It is the person's own machine: the destinations are on it.
        let private = true;
        let (secret, variable, environment) = match &self.secret_env {
            Some(name) => (None, name.as_str(), Environment::of_process(private)),
            None => {
                let secret = Signer::new_secret().map_err(Failure::failed)?;
                let variables = [(SECRET, secret.clone())];
                let environment = Environment::with_variables(private, variables);
                (Some(secret), SECRET, environment)
            }
        };
        let settings = json!({"url": url, "secret_env": variable});
        let webhook = Webhook::build("listen", &settings, &environment).map_err(Failure::usage)?;
        Ok(Some(Forwarder {
            stream: stream.into(),
            webhook,
            url,
            secret,
            output,
        }))
    }
}

pub(super) struct Forwarder {
    stream: Arc<str>,
    webhook: Webhook,
    url: String,
    /// The one that was made for this run.
    secret: Option<String>,
    output: Output,
}

/// Events of one session, in order.
pub(super) struct Batch {
    pub(super) session_id: i64,
    pub(super) session: Arc<str>,
    pub(super) events: Vec<LoggedEvent>,
    /// Where the page ends that they were chosen from.
    pub(super) last_seq: i64,
    /// Failed attempts on the first of them.
    pub(super) attempts: u32,
}

/// How far a session went.
pub(super) struct Forwarded {
    pub(super) session_id: i64,
    pub(super) cursor: i64,
    pub(super) delivered: usize,
    pub(super) refused: usize,
    /// The event after the cursor is to be tried again.
    pub(super) again: Option<Again>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) at: Instant,
    /// Failed attempts so far.
    pub(super) attempts: u32,
}

impl Forwarder {
    /// What somebody has to know to receive.
    pub(super) fn announcement(&self) -> Vec<String> {
        let mut lines = vec![format!("forwarding to {}", self.url)];
        if let Some(secret) = &self.secret {
            lines.push(format!("signing secret of this run: {secret}"));
        }
        lines
    }

    /// Posts each event when the one before it is done, up to the first that has to be tried again.
    pub(super) async fn forward(self: Arc<Self>, batch: Batch) -> Result<Forwarded, Failure> {
        let mut forwarded = Forwarded {
            session_id: batch.session_id,
            cursor: batch.last_seq,
            delivered: 0,
            refused: 0,
            again: None,
        };
        let mut failures = batch.attempts;
        for logged in batch.events {
            let seq = logged.seq;
            let event = self.event(&batch.session, logged);
            let delivery = Delivery {
                event: &event,
                subscription: "listen",
                attempt: failures + 1,
                requeued: false,
                replay_id: None,
                asks_ack: false,
                trace: None,
                observed: None,
            };
            let started = Instant::now();
            let Attempt { status, verdict } = self.webhook.post(&delivery).await;
            let verdict = Next::of(verdict, failures);
            print::answer(
                &Answer {
                    event: &event,
                    attempt: delivery.attempt,
                    status,
                    took: started.elapsed(),
                    next: &verdict,
                },
                self.output,
            )?;
            match verdict {
                Next::Delivered => forwarded.delivered += 1,
                Next::Refused { .. } => forwarded.refused += 1,
                Next::Again {
                    after, attempts, ..
                } => {
                    forwarded.cursor = seq - 1;
                    let at = Instant::now() + after;
                    forwarded.again = Some(Again { at, attempts });
                    return Ok(forwarded);
                }
            }
            failures = 0;
        }
        Ok(forwarded)
    }

    fn event(&self, session: &Arc<str>, logged: LoggedEvent) -> Event {
        Event {
            message_id: logged.message_id,
            stream: Arc::clone(&self.stream),
            session: Arc::clone(session),
            seq: logged.seq,
            event_type: logged.event_type.into(),
            created_at: logged.created_at,
            payload: Box::<str>::from(logged.payload).into(),
            headers: logged
                .headers
                .map(|headers| Box::<str>::from(headers).into()),
        }
    }
}

/// What follows from an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Delivered,
    /// A subscription would make it a dead letter, or pause; here the session goes on.
    Refused {
        error: String,
    },
    Again {
        error: String,
        after: Duration,
        /// Failed attempts so far.
        attempts: u32,
    },
}

impl Next {
    /// After `failures` failed attempts before this one.
    fn of(verdict: Verdict, failures: u32) -> Self {
        match verdict {
            Verdict::Accepted | Verdict::Sent => Self::Delivered,
            Verdict::Rejected { error } | Verdict::Gone { error } => Self::Refused { error },
            Verdict::Retry { error, after } => {
                let attempts = failures + 1;
                let after = after.unwrap_or_else(|| delay(attempts));
                Self::again(error, after, attempts)
            }
            Verdict::NotSent { reason } => Self::again(reason, delay(1), failures),
            Verdict::Throttled { reason, after, .. } => Self::again(reason, after, failures),
            Verdict::Partial => Self::again(String::new(), Duration::ZERO, failures),
        }
    }

    fn again(error: String, after: Duration, attempts: u32) -> Self {
        Self::Again {
            error,
            after: after.min(LONGEST_PAUSE),
            attempts,
        }
    }
}

/// After the `attempts`-th failure, from 1.
fn delay(attempts: u32) -> Duration {
    let last = SCHEDULE.len() - 1;
    let index = usize::try_from(attempts - 1).unwrap_or(last);
    SCHEDULE[index.min(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_by_the_schedule_and_a_pause_that_was_asked_for_counts_as_none() {
        let retry = |after| Verdict::Retry {
            error: "e".to_owned(),
            after,
        };
        let again = |seconds, attempts| Next::Again {
            error: "e".to_owned(),
            after: Duration::from_secs(seconds),
            attempts,
        };
        assert_eq!(Next::of(retry(None), 0), again(1, 1));
        assert_eq!(Next::of(retry(None), 9), again(10, 10));
        let asked = Some(Duration::from_secs(7));
        assert_eq!(Next::of(retry(asked), 0), again(7, 1));
        let pause = |seconds| Verdict::Throttled {
            reason: "e".to_owned(),
            after: Duration::from_secs(seconds),
            of: None,
        };
        assert_eq!(Next::of(pause(3), 2), again(3, 2));
        assert_eq!(Next::of(pause(90_000), 2), again(300, 2));
    }
}
