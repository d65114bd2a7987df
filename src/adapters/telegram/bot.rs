//! The Bot API for a worker that asks it, rather than delivers to it: one call, its result, and why there is none.
//!
//! The token stands in the URL, so no URL ever enters an error, and servers that repeat it are quoted without it.

use std::time::Duration;

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::API_URL;
use crate::attachments::FileServer;
use crate::chat::{pause, secure};
use crate::fetch_error::FetchError;
use crate::{Environment, excerpt, http};

/// A hundred updates of the longest messages, each of which answers another, take less.
const LONGEST_ANSWER: usize = 16 << 20;
/// For where a file is.
const LONGEST_QUESTION: Duration = Duration::from_secs(10);
const QUOTED_CHARS: usize = 300;
const NAME: &str = "telegram";
const PLATFORM: &str = "Telegram";

/// A bot, by its token.
pub struct TelegramBot {
    client: Client,
    base: Url,
    token: String,
}

/// Why a call has no result. No text has the token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BotError {
    /// Another program asks for the bot's updates, or has set a webhook.
    #[error("{0}")]
    Conflict(String),
    /// By the platform of this name, as both others that have it.
    #[error("{0} does not know the bot: its token is wrong or was revoked")]
    Unauthorized(&'static str),
    #[error("{0} wants no call for {seconds} s", seconds = .1.as_secs())]
    TooFast(&'static str, Duration),
    /// It answered, and what it said is cut off, too long, or no answer of the Bot API.
    #[error("{0}")]
    Unreadable(String),
    /// It refuses this call.
    #[error("{0}")]
    Refused(String),
    /// It did not answer, or has a fault of its own.
    #[error("{0}")]
    Away(String),
}

impl TelegramBot {
    /// Judges the base URL of a Bot API server.
    ///
    /// # Errors
    /// In words.
    pub fn check_url(text: &str) -> Result<Url, String> {
        let url = Url::parse(text).map_err(|error| format!("must be a URL: {error}"))?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err("must be a plain base URL, without credentials or query".to_owned());
        }
        secure(&url)?;
        Ok(url)
    }

    /// The bot whose token this variable, or the file that it names, holds.
    ///
    /// # Errors
    /// In words, without the token.
    pub fn open(
        token_env: &str,
        api_url: Option<&str>,
        environment: &Environment,
    ) -> Result<Self, String> {
        let token = environment
            .secret(token_env)
            .map_err(|error| error.to_string())?;
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "what {token_env} holds is no token: it has white space or letters beyond ASCII, or nothing"
            ));
        }
        let base = Self::check_url(api_url.unwrap_or(API_URL))
            .map_err(|reason| format!("api_url {reason}"))?;
        let private = &environment.allow_private_targets;
        http::refuse_private(&base, private).map_err(|reason| format!("api_url: {reason}"))?;
        let client = http::client(&base, private)
            .map_err(|error| format!("no TLS client: {}", http::causes(&error)))?;
        Ok(Self {
            client,
            base,
            token,
        })
    }

    /// Calls a method, and waits no longer than this for the whole answer.
    ///
    /// # Errors
    /// There is no result.
    pub async fn call(
        &self,
        method: &str,
        body: &Value,
        within: Duration,
    ) -> Result<Value, BotError> {
        let until = Instant::now() + within;
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .extend([format!("bot{}", self.token).as_str(), method]);
        }
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let response = match timeout_at(until, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let causes = http::causes(&error.without_url());
                return Err(BotError::Away(self.clean(&format!(
                    "no answer from {}: {causes}",
                    http::origin(&self.base)
                ))));
            }
            Err(_) => {
                return Err(BotError::Away(format!(
                    "no answer from {} within {within:?}",
                    http::origin(&self.base)
                )));
            }
        };
        let status = response.status().as_u16();
        let text = http::whole(response, LONGEST_ANSWER, until).await;
        let answer: Option<Value> = text.and_then(|text| serde_json::from_slice(&text).ok());
        self.judge(status, answer)
    }

    fn judge(&self, status: u16, answer: Option<Value>) -> Result<Value, BotError> {
        let mut answer = answer.unwrap_or_default();
        if status == 200 && answer["ok"] == true {
            return Ok(answer["result"].take());
        }
        let said = self.clean(answer["description"].as_str().unwrap_or_default());
        let told = format!("{NAME} answered {status}: {said}");
        Err(match status {
            401 | 404 => BotError::Unauthorized(PLATFORM),
            409 => BotError::Conflict(told),
            429 => {
                let seconds = answer["parameters"]["retry_after"].as_f64();
                BotError::TooFast(PLATFORM, pause(seconds.unwrap_or(5.0)))
            }
            200..=299 => BotError::Unreadable(format!(
                "what {} answered is cut off, too long, or no answer of the Bot API",
                http::origin(&self.base)
            )),
            400..=499 => BotError::Refused(told),
            _ => BotError::Away(told),
        })
    }

    fn clean(&self, text: &str) -> String {
        let text = text.replace(&self.token, "…");
        excerpt::first(text.as_bytes(), QUOTED_CHARS)
    }
}

impl FileServer for TelegramBot {
    /// From the server of the API alone, without redirects.
    async fn download(
        &self,
        file_id: &str,
        most: u32,
        into: &mut tokio::fs::File,
    ) -> Result<(), FetchError> {
        let too_large = || FetchError::TooLarge { most };
        let question = json!({"file_id": file_id});
        let asking = self.call("getFile", &question, LONGEST_QUESTION);
        let file = asking.await.map_err(|error| match error {
            BotError::Away(_) | BotError::Unreadable(_) | BotError::TooFast(..) => {
                FetchError::Away(error.to_string())
            }
            _ => FetchError::Refused(error.to_string()),
        })?;
        let size = file["file_size"].as_u64();
        if size.is_some_and(|size| size > u64::from(most)) {
            return Err(too_large());
        }
        let path = file["file_path"].as_str().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        // What a server of one's own in local mode names is a path of its host.
        if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(FetchError::Refused(
                "the Bot API server names no path to download: run it without --local".to_owned(),
            ));
        }
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            let token = format!("bot{}", self.token);
            segments
                .pop_if_empty()
                .extend(["file", &token])
                .extend(parts);
        }
        let away = |error: reqwest::Error| {
            let causes = http::causes(&error.without_url());
            FetchError::Away(self.clean(&format!(
                "no file from {}: {causes}",
                http::origin(&self.base)
            )))
        };
        let mut response = self.client.get(url).send().await.map_err(away)?;
        let status = response.status().as_u16();
        match status {
            200 => {}
            408 | 429 | 500.. => {
                return Err(FetchError::Away(format!(
                    "{NAME} answered {status} for the file"
                )));
            }
            _ => {
                return Err(FetchError::Refused(format!(
                    "{NAME} answered {status} for the file"
                )));
            }
        }
        if response
            .content_length()
            .is_some_and(|size| size > u64::from(most))
        {
            return Err(too_large());
        }
        let mut written = 0;
        while let Some(chunk) = response.chunk().await.map_err(away)? {
            written += chunk.len() as u64;
            if written > u64::from(most) {
                return Err(too_large());
            }
            into.write_all(&chunk).await?;
        }
        into.flush().await?;
        match size.is_some_and(|size| written < size) {
            true => Err(FetchError::Away("the file was cut off".to_owned())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bot(url: &str) -> Result<TelegramBot, String> {
        let environment =
            Environment::with_variables(true, [("T", "12:secret"), ("BAD", "12: secret")]);
        TelegramBot::open("T", Some(url), &environment)
    }

    #[test]
    fn answers_say_what_is_to_be_done_and_never_the_token() {
        let bot = bot("http://127.0.0.1:1").unwrap();
        let refused = |status: u16, body: Value| bot.judge(status, Some(body)).unwrap_err();
        let said = json!({"ok": false, "description": "Conflict at /bot12:secret/getUpdates"});
        let BotError::Conflict(told) = refused(409, said.clone()) else {
            panic!("a conflict")
        };
        assert_eq!(told, "telegram answered 409: Conflict at /bot…/getUpdates");
        assert_eq!(refused(401, Value::Null), BotError::Unauthorized(PLATFORM));
        let pause = json!({"parameters": {"retry_after": 7}});
        let seven = Duration::from_secs(7);
        assert_eq!(refused(429, pause), BotError::TooFast(PLATFORM, seven));
        assert!(matches!(refused(502, said), BotError::Away(_)));
        assert!(matches!(refused(400, Value::Null), BotError::Refused(_)));
        let cut = bot.judge(200, None).unwrap_err();
        assert!(matches!(cut, BotError::Unreadable(_)));
        let result = bot.judge(200, Some(json!({"ok": true, "result": [1]})));
        assert_eq!(result, Ok(json!([1])));
    }

    #[test]
    fn a_token_goes_over_https_or_to_this_machine_only() {
        for bad in [
            "http://bots.example",
            "ftp://127.0.0.1",
            "https://a:b@bots.example",
            "https://bots.example/?x=1",
            "bots.example",
        ] {
            assert!(TelegramBot::check_url(bad).is_err(), "{bad}");
        }
        let environment = Environment::with_variables(false, [("BAD", "12: secret")]);
        for (variable, told) in [("BAD", "is no token"), ("NONE", "neither NONE nor")] {
            let refused = TelegramBot::open(variable, None, &environment)
                .err()
                .unwrap();
            assert!(
                refused.contains(told) && !refused.contains("secret"),
                "{refused}"
            );
        }
        let private = TelegramBot::open("BAD", Some("http://127.0.0.1:1"), &environment);
        assert!(private.is_err());
        assert!(bot("https://bots.example").is_ok());
    }
}
