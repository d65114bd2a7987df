//! Maps a destination's answers to verdicts.
//!
//! | answer | verdict |
//! |---|---|
//! | 2xx | accepted, whatever the body; where acknowledgements are asked for, only with `{"ack":true}`, otherwise sent |
//! | 429, 503 with Retry-After | throttled |
//! | 408, 425, 429, 5xx, no answer in time, transport error | retry |
//! | 410 | gone |
//! | 3xx | rejected: redirects are not followed, they would escape the operator's choice of target |
//! | anything else | rejected |
//!
//! The status alone decides. The body is read so that the connection can be used again, and its
//! beginning is quoted in errors.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::{excerpt, http, retry_after};

/// What of the body is kept for the error text.
const KEPT_BYTES: usize = 4 * 1024;
pub(crate) const QUOTED_CHARS: usize = 300;

/// Judges the response of `url`, taking no longer than `deadline`.
pub(super) async fn judge(
    response: Response,
    url: &Url,
    deadline: Instant,
    asks_ack: bool,
) -> Verdict {
    let status = response.status();
    let pause = retry_after::pause(response.headers());
    let mut answer = format!("{} answered {status}", url.origin().ascii_serialization());
    let until = deadline.min(Instant::now() + http::DRAIN_TIME);
    let body = http::drain(response, KEPT_BYTES, until).await;
    if status.is_success() && asks_ack && !acknowledges(&body) {
        return Verdict::Sent;
    }
    let quoted = excerpt::first(&without_query(body, url), QUOTED_CHARS);
    if !quoted.is_empty() {
        answer = format!("{answer}: {quoted}");
    }
    verdict(status, pause, answer)
}

/// Whether the answer's body acknowledges the event.
fn acknowledges(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|answer| answer["ack"] == true)
}

/// Servers like to repeat the address they were asked for, and its query may be a credential.
pub(crate) fn without_query(body: Vec<u8>, url: &Url) -> Vec<u8> {
    match url.query().filter(|query| !query.is_empty()) {
        Some(query) => String::from_utf8_lossy(&body)
            .replace(query, "…")
            .into_bytes(),
        None => body,
    }
}

pub(crate) fn verdict(status: StatusCode, pause: Option<Duration>, answer: String) -> Verdict {
    match (status.as_u16(), pause) {
        (200..=299, _) => Verdict::Accepted,
        (429 | 503, Some(after)) => Verdict::Throttled {
            reason: answer,
            after,
            of: None,
        },
        (408 | 425 | 429 | 500..=599, after) => Verdict::Retry {
            error: answer,
            after,
        },
        (410, _) => Verdict::Gone { error: answer },
        (300..=399, _) => Verdict::Rejected {
            error: format!("redirects are not followed; name the final URL: {answer}"),
        },
        _ => Verdict::Rejected { error: answer },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_says_so_acknowledges() {
        assert!(acknowledges(br#"{"ack":true}"#));
        assert!(acknowledges(br#" {"other": 1, "ack": true} "#));
        for body in [
            "",
            "ok",
            "true",
            "[true]",
            "{}",
            r#"{"ack":false}"#,
            r#"{"ack":"true"}"#,
            r#"{"ack":true"#,
            r#"[{"ack":true}]"#,
        ] {
            assert!(!acknowledges(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn answers_are_judged_as_documented() {
        let verdict = |status: u16, pause| {
            verdict(
                StatusCode::from_u16(status).unwrap(),
                pause,
                "answer".to_owned(),
            )
        };
        let pause = Some(Duration::from_secs(7));
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status, None), Verdict::Accepted, "{status}");
        }
        for status in [429, 503] {
            let throttled = Verdict::Throttled {
                reason: "answer".to_owned(),
                after: Duration::from_secs(7),
                of: None,
            };
            assert_eq!(verdict(status, pause), throttled, "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(verdict(status, None), Verdict::retry("answer"), "{status}");
        }
        for status in [300, 301, 302, 307, 308, 400, 401, 404, 409, 413, 422] {
            assert!(
                matches!(verdict(status, pause), Verdict::Rejected { .. }),
                "{status}"
            );
        }
        assert!(matches!(verdict(410, None), Verdict::Gone { .. }));
        let Verdict::Retry { after, .. } = verdict(502, pause) else {
            panic!("a bad gateway is retried");
        };
        assert_eq!(after, pause);
    }
}
