//! Several events of one session in one request, and what its answer says of them.
//!
//! | answer | effect |
//! |---|---|
//! | 2xx | all are accepted |
//! | any status with `{"accepted": n}` | the first n are accepted; the status says what became of the next one, and a 2xx that it is to be tried again |
//! | any other | as for one event, for the request as a whole |
//!
//! With acknowledgements, `{"ack": true}` acknowledges all that are accepted, `{"ack": [ids]}` these. An answer that
//! names an id that was not in the request acknowledges nothing. An answer that claims to have accepted more events than
//! the request had, and one that is not whole, is a failure: what it means is not known.

use lanekeeper_core::adapter::{BatchVerdict, Delivery, Verdict};
use lanekeeper_core::observed::Cause;
use reqwest::header::HeaderValue;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Webhook, answer};
use crate::{excerpt, http, retry_after};

/// The answer's longest body: the ids of a full batch take 2 KB.
const MOST_BYTES: usize = 64 * 1024;

impl Webhook {
    /// Delivers several events in one request, whose signature is over all of it.
    pub(super) async fn post_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        self.exchange(deliveries, self.format.batch_body(deliveries))
            .await
    }

    /// Posts a body that has these events, and says what the answer means for each.
    pub(crate) async fn exchange(
        &self,
        deliveries: &[Delivery<'_>],
        body: Vec<u8>,
    ) -> BatchVerdict {
        let Some(first) = deliveries.first() else {
            return BatchVerdict::Each(Vec::new());
        };
        let deadline = Instant::now() + self.timeout;
        // Of several, never the id of an event: a receiver that knows the first must not take it for the others.
        let id = match deliveries {
            [one] => one.event.message_id.to_string(),
            _ => format!("{}-{}", first.event.message_id, deliveries.len()),
        };
        let mut headers = self.headers(first, &id, &body);
        if deliveries.len() > 1 {
            headers.insert("lanekeeper-batch", HeaderValue::from(deliveries.len()));
        }
        let response = match self.request(first, headers, body, deadline).await {
            Ok(response) => response,
            Err(verdict) => return BatchVerdict::Whole(verdict),
        };
        let status = response.status();
        let pause = retry_after::pause(response.headers());
        let mut text = format!("{} answered {status}", self.origin());
        let Some(body) = http::whole(response, MOST_BYTES, deadline).await else {
            first.failed_by(Cause::ConnectionReset);
            let error =
                format!("{text}, and what it accepted is not known: its answer is not whole");
            return BatchVerdict::Whole(Verdict::retry(error));
        };
        let quoted = answer::without_query(body.clone(), &self.url);
        let quoted = excerpt::first(&quoted, answer::QUOTED_CHARS);
        if !quoted.is_empty() {
            text = format!("{text}: {quoted}");
        }
        let ids: Vec<Uuid> = deliveries.iter().map(|one| one.event.message_id).collect();
        let said = match Said::read(&body, &ids) {
            Ok(said) => said,
            Err(reason) => return BatchVerdict::Whole(Verdict::retry(format!("{text}: {reason}"))),
        };
        let of_status = answer::verdict(status, pause, text.clone());
        said.judge(of_status, pause, text, &ids, first.asks_ack)
    }
}

/// What the body of an answer says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    accepted: Option<usize>,
    acked: Vec<Uuid>,
}

impl Said {
    /// Text that is no JSON object says nothing.
    fn read(body: &[u8], ids: &[Uuid]) -> Result<Self, &'static str> {
        let answer: Value = match serde_json::from_slice(body) {
            Ok(answer) => answer,
            Err(_) if body.trim_ascii_start().starts_with(b"{") => {
                return Err("what it accepted is not known: the answer is not JSON");
            }
            Err(_) => return Ok(Self::default()),
        };
        let accepted = match answer.get("accepted") {
            None => None,
            Some(accepted) => {
                let accepted = accepted.as_u64().and_then(|n| usize::try_from(n).ok());
                let accepted = accepted.filter(|accepted| *accepted <= ids.len());
                Some(accepted.ok_or("`accepted` is not a number of events that it was sent")?)
            }
        };
        Ok(Self {
            accepted,
            acked: acknowledged(&answer, ids),
        })
    }

    fn judge(
        self,
        of_status: Verdict,
        pause: Option<std::time::Duration>,
        text: String,
        ids: &[Uuid],
        asks_ack: bool,
    ) -> BatchVerdict {
        let is_success = of_status == Verdict::Accepted;
        let accepted = match (self.accepted, is_success) {
            (Some(accepted), _) => accepted,
            (None, true) => ids.len(),
            (None, false) => return BatchVerdict::Whole(of_status),
        };
        let taken = ids.iter().take(accepted).map(|id| {
            if asks_ack && !self.acked.contains(id) {
                Verdict::Sent
            } else {
                Verdict::Accepted
            }
        });
        let mut verdicts: Vec<Verdict> = taken.collect();
        if accepted < ids.len() {
            verdicts.push(if is_success {
                Verdict::Retry {
                    error: format!("{text} (accepted {accepted} of {} events)", ids.len()),
                    after: pause,
                }
            } else {
                of_status
            });
        }
        BatchVerdict::Each(verdicts)
    }
}

/// The ids that an answer acknowledges, which may be an ACK frame: none where it names one that it was not sent.
fn acknowledged(answer: &Value, ids: &[Uuid]) -> Vec<Uuid> {
    let said = match answer.get("type").and_then(Value::as_str) {
        Some("ACK") => answer.get("ids"),
        _ => answer.get("ack"),
    };
    match said {
        Some(Value::Bool(true)) => ids.to_vec(),
        Some(Value::Array(named)) => {
            let named = named.iter().map(|id| id.as_str()?.parse().ok());
            let named: Option<Vec<Uuid>> = named.collect();
            named
                .filter(|named| named.iter().all(|id| ids.contains(id)))
                .unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> [Uuid; 3] {
        [1, 2, 3].map(Uuid::from_u128)
    }

    fn judged(
        body: &str,
        of_status: Verdict,
        asks_ack: bool,
    ) -> Result<BatchVerdict, &'static str> {
        let said = Said::read(body.as_bytes(), &ids())?;
        Ok(said.judge(of_status, None, "it answered".to_owned(), &ids(), asks_ack))
    }

    fn each(body: &str, of_status: Verdict, asks_ack: bool) -> Vec<Verdict> {
        match judged(body, of_status, asks_ack).unwrap() {
            BatchVerdict::Each(verdicts) => verdicts,
            whole @ BatchVerdict::Whole(_) => panic!("{whole:?}"),
        }
    }

    const OK: Verdict = Verdict::Accepted;

    #[test]
    fn a_success_accepts_all_unless_it_says_how_many() {
        for body in [
            "",
            "ok",
            "null",
            "[]",
            "{}",
            r#"{"other":1}"#,
            r#"{"accepted":3}"#,
        ] {
            assert_eq!(each(body, OK, false), [OK, OK, OK], "{body}");
        }
        let some = each(r#"{"accepted":2}"#, OK, false);
        assert_eq!(some[..2], [OK, OK]);
        assert!(matches!(&some[2], Verdict::Retry { error, .. } if error.contains("2 of 3")));
        assert_eq!(some.len(), 3);
    }

    #[test]
    fn a_failure_that_says_how_many_were_accepted_is_about_the_next() {
        let refused = Verdict::Rejected {
            error: String::new(),
        };
        assert_eq!(
            each(r#"{"accepted":1}"#, refused.clone(), false),
            [OK, refused.clone()]
        );
        let none = each(r#"{"accepted":0}"#, refused.clone(), false);
        assert_eq!(none.first(), Some(&refused));
        assert_eq!(none.len(), 1);
        assert_eq!(
            judged("{}", refused.clone(), false),
            Ok(BatchVerdict::Whole(refused))
        );
    }

    #[test]
    fn a_claim_that_cannot_be_true_accepts_nothing() {
        for body in [
            r#"{"accepted":4}"#,
            r#"{"accepted":-1}"#,
            r#"{"accepted":1.5}"#,
            r#"{"accepted":"3"}"#,
            r#"{"accepted":null}"#,
            r#"{"accepted":2"#,
        ] {
            assert!(judged(body, OK, false).is_err(), "{body}");
        }
    }

    #[test]
    fn ids_acknowledge_what_they_name_and_a_strange_one_nothing() {
        let id = |n| Uuid::from_u128(n);
        let sent = Verdict::Sent;
        assert_eq!(each(r#"{"ack":true}"#, OK, true), [OK, OK, OK]);
        let two = format!(r#"{{"ack":["{}","{}"]}}"#, id(1), id(3));
        assert_eq!(each(&two, OK, true), [OK, sent.clone(), OK]);
        let frame = format!(r#"{{"v":1,"type":"ACK","ids":["{}"]}}"#, id(2));
        assert_eq!(each(&frame, OK, true), [sent.clone(), OK, sent]);
        let strange = format!(r#"{{"ack":["{}","{}"]}}"#, id(1), id(9));
        for body in [
            strange.as_str(),
            "",
            r#"{"ack":false}"#,
            r#"{"ack":"true"}"#,
            r#"{"ack":[1]}"#,
            r#"{"ack":{}}"#,
        ] {
            assert_eq!(
                each(body, OK, true),
                [Verdict::Sent, Verdict::Sent, Verdict::Sent],
                "{body}"
            );
        }
    }
}
