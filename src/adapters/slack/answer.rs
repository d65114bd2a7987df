//! Maps answers of Slack's Web API to outcomes.
//!
//! | answer | outcome |
//! |---|---|
//! | 200 `ok: true` | sent, or done |
//! | 2xx without a message id | done: sent, with an unknown id |
//! | 429 with Retry-After, `ratelimited` | throttled: what was asked for too often |
//! | `message_not_found`, `cant_update_message`, `edit_window_closed` | missing: a new one is sent |
//! | `invalid_auth`, `token_revoked`, `account_inactive`, … | retried slowly: the token is wrong |
//! | `internal_error`, `fatal_error`, … , 5xx | retried |
//! | any other error, 4xx | rejected |

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::bucket::Bucket;

use crate::chat::{Answer, Api, Outcome, pause};
use crate::retry_after;

/// Until a token that Slack does not take is tried again.
const WRONG_TOKEN: Duration = Duration::from_secs(60);
/// Where Slack does not say. The figure is ours.
const UNTOLD_PAUSE: f64 = 10.0;

/// What Slack calls a message.
pub(super) struct Said {
    pub(super) channel: Option<String>,
    pub(super) ts: String,
}

pub(super) fn judge(api: &Api, answer: &Answer, limit: Bucket) -> Result<Said, Outcome> {
    let body = &answer.body;
    if answer.status == 200 && body["ok"] == true {
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        return Ok(Said {
            channel: text("channel"),
            ts: text("ts").unwrap_or_default(),
        });
    }
    if (200..300).contains(&answer.status) && !body["ok"].is_boolean() {
        // Taken, and the answer is lost or not Slack's: another request would be another message.
        return Err(Outcome::Done);
    }
    let error = body["error"].as_str();
    let told = api.describe(answer, error);
    let throttled = |reason: String| {
        let asked = retry_after::pause(&answer.headers);
        Outcome::Failed(Verdict::Throttled {
            reason,
            after: asked.unwrap_or_else(|| pause(UNTOLD_PAUSE)),
            of: Some(limit),
        })
    };
    let retry = |error| Outcome::Failed(Verdict::retry(error));
    Err(match (answer.status, error.unwrap_or_default()) {
        (429, _) | (200, "ratelimited" | "rate_limited") => throttled(told),
        (
            200,
            "message_not_found"
            | "cant_update_message"
            | "cant_delete_message"
            | "edit_window_closed",
        ) => Outcome::Missing,
        (
            401 | 200,
            "invalid_auth" | "not_authed" | "token_revoked" | "token_expired" | "account_inactive"
            | "missing_scope" | "no_permission" | "org_login_required" | "ekm_access_denied",
        )
        | (401, _) => Outcome::Failed(Verdict::Retry {
            error: format!(
                "Slack does not take the token: the token is wrong, was revoked or may not do this. Nothing was \
                 sent, the events wait: mend the variable that token_env names, or the app's scopes, and restart \
                 the workers. {told}"
            ),
            after: Some(WRONG_TOKEN),
        }),
        (
            200,
            "internal_error"
            | "fatal_error"
            | "service_unavailable"
            | "request_timeout"
            | "team_added_to_org",
        ) => retry(told),
        (408 | 425, _) => retry(told),
        (200, name) if !name.is_empty() => Outcome::Failed(Verdict::Rejected { error: told }),
        (400..=499, _) => Outcome::Failed(Verdict::Rejected { error: told }),
        _ => retry(told),
    })
}
