//! Maps answers of the Bot API to outcomes.
//!
//! | answer | outcome |
//! |---|---|
//! | `ok` | sent, or done |
//! | 2xx without a message id | done: sent, with an unknown id |
//! | 429 with `retry_after` | throttled: only this chat, because Telegram does not say what the pause is for |
//! | 400 message is not modified | done: it shows that already |
//! | 400 message to edit not found, can't be edited | missing: a new one is sent |
//! | 400 can't parse entities | sent again as plain text |
//! | 401, 404 | the token is wrong: retried slowly, everything waits |
//! | 403, other 4xx | rejected: other chats are not affected |
//! | 5xx, anything else | retried |
//!
//! Refusals have no code but the HTTP status. As in all clients, the description distinguishes them.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::bucket::Bucket;

use super::Purpose;
use crate::chat::{Answer, Api, Outcome, pause};

/// Until a wrong token is tried again.
const WRONG_TOKEN: Duration = Duration::from_secs(60);

pub(super) enum Said {
    Message {
        id: i64,
    },
    Yes,
    /// The marks of its format are wrong.
    Unparsable,
}

pub(super) fn judge(
    api: &Api,
    answer: &Answer,
    purpose: Purpose,
    chat: impl FnOnce() -> Bucket,
) -> Result<Said, Outcome> {
    let body = &answer.body;
    if answer.status == 200 && body["ok"] == true {
        return match body["result"]["message_id"].as_i64() {
            Some(id) => Ok(Said::Message { id }),
            // Also where nothing says what it is called: another request would be another message.
            None => Ok(Said::Yes),
        };
    }
    // Taken, and the answer is lost or not Telegram's: another request would be another message.
    if (200..300).contains(&answer.status) && !body["ok"].is_boolean() {
        return Ok(Said::Yes);
    }
    let description = body["description"].as_str();
    let told = api.describe(answer, description);
    let description = description.unwrap_or_default().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| description.contains(word));
    Err(match (answer.status, purpose) {
        (400, _) if says(&["can't parse entities"]) => return Ok(Said::Unparsable),
        (400, Purpose::Edit) if says(&["message is not modified"]) => return Ok(Said::Yes),
        (400, Purpose::Edit)
            if says(&[
                "message to edit not found",
                "message can't be edited",
                "message_id_invalid",
            ]) =>
        {
            Outcome::Missing
        }
        (400, Purpose::Delete)
            if says(&[
                "message to delete not found",
                "message can't be deleted",
                "message_id_invalid",
            ]) =>
        {
            return Ok(Said::Yes);
        }
        (429, _) => match body["parameters"]["retry_after"].as_f64() {
            Some(seconds) => Outcome::Failed(Verdict::Throttled {
                reason: told,
                after: pause(seconds),
                of: Some(chat()),
            }),
            None => retry(told),
        },
        (401 | 404, _) => Outcome::Failed(Verdict::Retry {
            error: format!(
                "Telegram does not know the bot: the token is wrong or was revoked. Nothing was sent, the events \
                 wait: replace it in its file, or mend the variable that token_env names and restart the workers. \
                 {told}"
            ),
            after: Some(WRONG_TOKEN),
        }),
        (408 | 425, _) => retry(told),
        (400..=499, _) => {
            let moved = body["parameters"]["migrate_to_chat_id"].as_i64();
            let moved = moved.map(|to| format!(". The group is now the chat {to}: name that"));
            Outcome::Failed(Verdict::Rejected {
                error: told + moved.as_deref().unwrap_or_default(),
            })
        }
        _ => retry(told),
    })
}

fn retry(error: String) -> Outcome {
    Outcome::Failed(Verdict::retry(error))
}
