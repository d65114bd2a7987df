//! Discord for a worker that listens to its gateway, rather than delivers to it: calls of the API as a bot, and the
//! WebSocket connection (docs.discord.com/developers/events/gateway).
//!
//! The connection is the upgrade of a request of the HTTP client that all adapters have, so certificates, addresses that
//! are refused, and the missing redirects are the same. The gateway's address comes from Discord: only hosts of
//! `discord.gg` are taken, or, where the operator names an API of his own, the host of that.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::{
    CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use reqwest::{Client, Method, Upgraded};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use url::Url;
use uuid::Uuid;

use super::API_URL;
use crate::chat::pause;
use crate::telegram::{BotError, TelegramBot};
use crate::{Environment, excerpt, http};

/// `READY` of a bot in thousands of servers is shorter.
const LONGEST_FRAME: usize = 16 << 20;
const LONGEST_ANSWER: usize = 1 << 20;
const QUOTED_CHARS: usize = 300;
const SENT_WITHIN: Duration = Duration::from_secs(10);
const NAME: &str = "Discord";
/// Messages of servers, direct messages, and what is written in them.
const INTENTS: u64 = 1 << 9 | 1 << 12 | 1 << 15;

/// A bot, by its token.
pub struct DiscordBot {
    client: Client,
    /// Upgrades are of HTTP/1.1.
    upgrading: Client,
    base: Url,
    /// The host of `api_url`, where that is not Discord's.
    own_host: Option<String>,
    token: String,
}

/// A connection to the gateway.
pub struct Gateway {
    socket: WebSocketStream<Upgraded>,
}

/// What the gateway sends.
#[derive(Debug, PartialEq)]
pub struct Frame {
    pub op: u64,
    /// Of a dispatch.
    pub seq: Option<i64>,
    pub event: Option<String>,
    pub data: Value,
}

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed {
    /// Discord's close code.
    pub code: Option<u16>,
    pub reason: String,
}

impl Closed {
    fn broken(reason: impl ToString) -> Self {
        let reason = excerpt::first(reason.to_string().as_bytes(), QUOTED_CHARS);
        Self { code: None, reason }
    }
}

impl DiscordBot {
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
        let base = TelegramBot::check_url(api_url.unwrap_or(API_URL))
            .map_err(|reason| format!("api_url {reason}"))?;
        let private = &environment.allow_private_targets;
        http::refuse_private(&base, private).map_err(|reason| format!("api_url: {reason}"))?;
        let no_client = |error: reqwest::Error| format!("no TLS client: {}", http::causes(&error));
        let own_host = api_url.and(base.host_str()).map(str::to_owned);
        Ok(Self {
            client: http::client(&base, private).map_err(no_client)?,
            upgrading: http::upgrading_client(&base, private).map_err(no_client)?,
            base,
            own_host,
            token,
        })
    }

    /// Asks for something, or posts a body, and waits no longer than this for the whole answer.
    ///
    /// # Errors
    /// There is no result.
    pub async fn call(
        &self,
        path: &str,
        body: Option<&Value>,
        within: Duration,
    ) -> Result<Value, BotError> {
        let until = Instant::now() + within;
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        let method = match body {
            Some(_) => Method::POST,
            None => Method::GET,
        };
        let mut request = self
            .client
            .request(method, url)
            .header("authorization", format!("Bot {}", self.token));
        if let Some(body) = body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.to_string());
        }
        let response = match timeout_at(until, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(BotError::Away(self.no_answer(error))),
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
        if status == 204 {
            return Ok(Value::Null);
        }
        let said = answer.as_ref().map(|answer| &answer["message"]);
        let said = self.clean(said.and_then(Value::as_str).unwrap_or_default());
        let told = format!("{NAME} answered {status}: {said}");
        match (status, answer) {
            (200..=299, Some(answer)) => Ok(answer),
            (200..=299, None) => Err(BotError::Unreadable(format!(
                "what {} answered is cut off, too long, or no JSON",
                http::origin(&self.base)
            ))),
            (401, _) => Err(BotError::Unauthorized(NAME)),
            (429, answer) => {
                let seconds = answer.and_then(|answer| answer["retry_after"].as_f64());
                Err(BotError::TooFast(NAME, pause(seconds.unwrap_or(5.0))))
            }
            (400..=499, _) => Err(BotError::Refused(told)),
            _ => Err(BotError::Away(told)),
        }
    }

    /// Connects to the gateway at an address that Discord named.
    ///
    /// # Errors
    /// There is no connection.
    pub async fn connect(&self, address: &str, within: Duration) -> Result<Gateway, BotError> {
        let url = self.target(address).map_err(BotError::Refused)?;
        let key = BASE64_STANDARD.encode(Uuid::new_v4().as_bytes());
        let request = self
            .upgrading
            .get(url)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key);
        let connecting = async {
            let response = request
                .send()
                .await
                .map_err(|error| self.no_answer(error))?;
            let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
            let expected = derive_accept_key(key.as_bytes());
            let status = response.status().as_u16();
            if status != 101 || accepted.is_none_or(|accepted| accepted != expected.as_str()) {
                return Err(format!(
                    "{NAME}'s gateway answered {status} and no WebSocket"
                ));
            }
            let stream = response.upgrade().await;
            stream.map_err(|error| self.no_answer(error))
        };
        let stream = match timeout(within, connecting).await {
            Ok(connected) => connected.map_err(BotError::Away)?,
            Err(_) => {
                return Err(BotError::Away(format!(
                    "no answer of {NAME}'s gateway within {within:?}"
                )));
            }
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(LONGEST_FRAME))
            .max_frame_size(Some(LONGEST_FRAME));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await;
        Ok(Gateway { socket })
    }

    /// Where a connection goes, as an address of HTTP.
    fn target(&self, address: &str) -> Result<Url, String> {
        let refused = || {
            let said = excerpt::first(address.as_bytes(), QUOTED_CHARS);
            format!("{NAME} names {said:?} as its gateway, to which no worker connects")
        };
        let mut url = Url::parse(address).map_err(|_| refused())?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let (is_known, scheme) = match &self.own_host {
            Some(own) => (*own == host, self.base.scheme()),
            None => (host.ends_with(".discord.gg"), "https"),
        };
        let is_secure = url.scheme() == "wss" || (url.scheme() == "ws" && scheme == "http");
        let is_plain = url.username().is_empty() && url.password().is_none();
        let scheme = match url.scheme() {
            "ws" => "http",
            _ => "https",
        };
        if !is_known || !is_secure || !is_plain {
            return Err(refused());
        }
        // The scheme of a special URL cannot be set to that of another kind.
        let rest = url
            .as_str()
            .split_once(':')
            .map(|(_, rest)| rest.to_owned());
        url =
            Url::parse(&format!("{scheme}:{}", rest.unwrap_or_default())).map_err(|_| refused())?;
        url.set_query(Some("v=10&encoding=json"));
        Ok(url)
    }

    /// Begins a session.
    pub fn identify(&self) -> Value {
        let properties = json!({"os": "linux", "browser": "lanekeeper", "device": "lanekeeper"});
        json!({"op": 2, "d": {"token": self.token, "intents": INTENTS, "properties": properties}})
    }

    /// Goes on with a session behind this dispatch.
    pub fn resume(&self, session_id: &str, seq: i64) -> Value {
        json!({"op": 6, "d": {"token": self.token, "session_id": session_id, "seq": seq}})
    }

    fn no_answer(&self, error: reqwest::Error) -> String {
        let origin = http::origin(&self.base);
        let causes = http::causes(&error.without_url());
        self.clean(&format!("no answer from {origin}: {causes}"))
    }

    fn clean(&self, text: &str) -> String {
        let text = text.replace(&self.token, "…");
        excerpt::first(text.as_bytes(), QUOTED_CHARS)
    }
}

impl Gateway {
    /// The next frame. May be dropped before it is there, and loses none.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn next(&mut self) -> Result<Frame, Closed> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Frame::read(text.as_str()),
                Some(Ok(Message::Close(frame))) => {
                    return Err(match frame {
                        Some(frame) => Closed {
                            code: Some(frame.code.into()),
                            ..Closed::broken(frame.reason.as_str())
                        },
                        None => Closed::broken("it closed the connection"),
                    });
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Closed::broken(error)),
                None => return Err(Closed::broken("the connection ended")),
            }
        }
    }

    /// # Errors
    /// The connection has ended, or takes nothing.
    pub async fn send(&mut self, frame: &Value) -> Result<(), Closed> {
        let sending = self.socket.send(Message::text(frame.to_string()));
        match timeout(SENT_WITHIN, sending).await {
            Ok(sent) => sent.map_err(Closed::broken),
            Err(_) => Err(Closed::broken("the connection takes nothing")),
        }
    }
}

impl Frame {
    fn read(text: &str) -> Result<Self, Closed> {
        let mut frame: Value = serde_json::from_str(text).unwrap_or_default();
        let op = frame["op"].as_u64();
        Ok(Self {
            op: op.ok_or_else(|| Closed::broken("it sent what is no frame of the gateway"))?,
            seq: frame["s"].as_i64(),
            event: frame["t"].as_str().map(str::to_owned),
            data: frame["d"].take(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bot(url: Option<&str>) -> DiscordBot {
        let environment = Environment::with_variables(true, [("T", "a.secret.token")]);
        DiscordBot::open("T", url, &environment).unwrap()
    }

    #[test]
    fn a_worker_connects_to_discord_and_to_nobody_whom_it_names() {
        let bot = self::bot(None);
        let target = |address: &str| bot.target(address).map(|url| url.to_string());
        assert_eq!(
            target("wss://gateway-us-east1-b.discord.gg").unwrap(),
            "https://gateway-us-east1-b.discord.gg/?v=10&encoding=json"
        );
        for bad in [
            "ws://gateway.discord.gg",
            "https://gateway.discord.gg",
            "wss://discord.gg.example",
            "wss://evil.example/.discord.gg",
            "wss://a:b@gateway.discord.gg",
            "wss://127.0.0.1",
            "nonsense",
        ] {
            assert!(target(bad).is_err(), "{bad}");
        }
        let own = self::bot(Some("http://127.0.0.1:9/api"));
        assert!(own.target("ws://127.0.0.1:10/ws").is_ok());
        assert!(own.target("wss://gateway.discord.gg").is_err());
    }

    #[test]
    fn answers_say_what_is_to_be_done_and_never_the_token() {
        let bot = self::bot(None);
        let said = json!({"message": "no a.secret.token"});
        let refused = |status: u16| bot.judge(status, Some(said.clone())).unwrap_err();
        assert_eq!(refused(401), BotError::Unauthorized(NAME));
        let BotError::Refused(told) = refused(403) else {
            panic!("refused")
        };
        assert_eq!(told, "Discord answered 403: no …");
        assert!(matches!(refused(502), BotError::Away(_)));
        assert!(matches!(refused(429), BotError::TooFast(..)));
        assert_eq!(bot.judge(204, None), Ok(Value::Null));
        assert!(matches!(bot.judge(200, None), Err(BotError::Unreadable(_))));
    }
}
