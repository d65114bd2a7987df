//! Maps Discord's answers to outcomes.
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | sent, or done |
//! | 429 | throttled: the channel or webhook, everything where `global` is true or no JSON comes (Cloudflare) |
//! | 401, 403 without a code | everything of this token waits for minutes: 10,000 of those in ten minutes are a ban |
//! | 404 unknown webhook | gone: the subscription is paused |
//! | 404 unknown message | missing: a new one is sent |
//! | 403 with a code, other 4xx | rejected |
//! | 5xx, anything else | retried |
//!
//! `X-RateLimit-Remaining: 0` on any answer starts the same pause as a 429 would.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::bucket::Bucket;
use reqwest::header::HeaderMap;

use crate::chat::{Answer, Api, Outcome, pause};

/// Until a token that Discord does not take is tried again. Invalid requests are counted: 10,000 in ten
/// minutes (discord.com/developers/docs/topics/rate-limits#invalid-request-limit-aka-cloudflare-bans).
const WRONG_TOKEN: Duration = Duration::from_secs(300);
/// Codes of discord.com/developers/docs/topics/opcodes-and-status-codes#json.
const UNKNOWN_MESSAGE: i64 = 10_008;
const UNKNOWN_WEBHOOK: i64 = 10_015;

pub(super) enum Said {
    Message { id: String },
    Yes,
}

/// What went wrong, and for whom.
pub(super) enum Trouble {
    Channel { reason: String, pause: Duration },
    Everything { reason: String, pause: Duration },
    Token { error: String },
    Other(Outcome),
}

impl Trouble {
    pub(super) fn outcome(
        self,
        channel: Bucket,
        bot: Bucket,
        learn: impl FnOnce(Bucket, Duration),
    ) -> Outcome {
        let throttled = |reason, after, bucket| {
            Outcome::Failed(Verdict::Throttled {
                reason,
                after,
                of: Some(bucket),
            })
        };
        match self {
            Self::Channel { reason, pause } => throttled(reason, pause, channel),
            Self::Everything { reason, pause } => throttled(reason, pause, bot),
            Self::Token { error } => {
                learn(bot, WRONG_TOKEN);
                Outcome::Failed(Verdict::Retry {
                    error,
                    after: Some(WRONG_TOKEN),
                })
            }
            Self::Other(outcome) => outcome,
        }
    }
}

pub(super) fn judge(api: &Api, answer: &Answer, is_bot: bool) -> Result<Said, Trouble> {
    let body = &answer.body;
    let told = api.describe(answer, body["message"].as_str());
    let code = body["code"].as_i64();
    let retry = |error| Trouble::Other(Outcome::Failed(Verdict::retry(error)));
    Err(match answer.status {
        200..=299 => {
            return Ok(match body["id"].as_str() {
                Some(id) => Said::Message { id: id.to_owned() },
                None => Said::Yes,
            });
        }
        429 => {
            let after = body["retry_after"].as_f64();
            let seconds = after.or_else(|| number(&answer.headers, "retry-after"));
            let pause = pause(seconds.unwrap_or(1.0));
            let everything = body["global"] == true || after.is_none();
            match everything {
                true => Trouble::Everything {
                    reason: told,
                    pause,
                },
                false => Trouble::Channel {
                    reason: told,
                    pause,
                },
            }
        }
        401 | 403 if answer.status == 401 || code.is_none() => Trouble::Token {
            error: format!(
                "Discord does not take the token: the token is wrong, was revoked, or is blocked. Nothing was sent, \
                 the events wait: replace it in its file, or mend the variable that {} names and restart the \
                 workers. {told}",
                if is_bot { "token_env" } else { "url_env" }
            ),
        },
        404 if code == Some(UNKNOWN_MESSAGE) => Trouble::Other(Outcome::Missing),
        404 if code == Some(UNKNOWN_WEBHOOK) => {
            Trouble::Other(Outcome::Failed(Verdict::Gone { error: told }))
        }
        408 | 425 => retry(told),
        400..=499 => Trouble::Other(Outcome::Failed(Verdict::Rejected { error: told })),
        _ => retry(told),
    })
}

/// For how long nothing more is taken on this route.
pub(super) fn used_up(headers: &HeaderMap) -> Option<Duration> {
    let remaining = number(headers, "x-ratelimit-remaining")?;
    let seconds = number(headers, "x-ratelimit-reset-after")?;
    // Rounded up: a send that comes a moment early is one too many.
    (remaining < 1.0 && seconds > 0.0)
        .then(|| Duration::try_from_secs_f64(seconds.min(3600.0) + 0.01).unwrap_or_default())
}

fn number(headers: &HeaderMap, name: &str) -> Option<f64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_is_used_up_says_for_how_long() {
        let headers = |remaining: &str, after: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-remaining", remaining.parse().unwrap());
            headers.insert("x-ratelimit-reset-after", after.parse().unwrap());
            used_up(&headers)
        };
        assert_eq!(headers("0", "1.5"), Some(Duration::from_millis(1510)));
        for (remaining, after) in [("1", "1.5"), ("0", "-1"), ("0", "soon"), ("0", "NaN")] {
            assert_eq!(headers(remaining, after), None, "{remaining} {after}");
        }
        assert_eq!(used_up(&HeaderMap::new()), None);
    }
}
