//! Follows a session through a worker's HTTP API (`…/events/live`), for programs without a database.

use lanekeeper_postgres::append::AppendError;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Response;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{ProducerError, RemoteError};
use crate::remote::{Remote, refusal};

/// The longest message that is read: the largest payload that a stream may take, and room for the rest.
const LONGEST: usize = 300 << 20;
/// What an answer may have that is no event stream.
const LONGEST_PROBLEM: usize = 64 * 1024;

/// What a worker says.
#[derive(Debug)]
pub enum Said {
    /// An event of the log, as JSON.
    Event(Box<RawValue>),
    /// The session is closed.
    End,
    /// Events are gone from the log.
    Resync { requested_seq: i64, first_seq: i64 },
    /// The worker ends the connection.
    Disconnect { reason: String },
}

/// An open connection.
pub struct Following {
    response: Response,
    buffer: Vec<u8>,
    /// The cursor of what was read last.
    pub cursor: Option<String>,
}

#[derive(Deserialize)]
struct Notice {
    #[serde(default)]
    requested_seq: i64,
    #[serde(default)]
    first_seq: i64,
    #[serde(default)]
    reason: Option<String>,
}

impl Remote {
    /// Follows a session from a seq, or from the cursor of an earlier connection. `None`: it is closed, and there is nothing
    /// more.
    ///
    /// # Errors
    /// The worker cannot be reached, or refuses.
    pub async fn follow(
        &self,
        stream: &str,
        session: &str,
        from: &str,
        cursor: Option<&str>,
    ) -> Result<Option<Following>, ProducerError> {
        let part = |name| utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
        let path = format!(
            "v1/streams/{}/sessions/{}/events/live?from={}",
            part(stream),
            part(session),
            part(from)
        );
        let mut request = self.get(&path).await?;
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        let mut response = request
            .send()
            .await
            .map_err(|error| RemoteError::Unreachable(error.without_url()))?;
        if response.status() == reqwest::StatusCode::NO_CONTENT {
            return Ok(None);
        }
        if !response.status().is_success() {
            let status = response.status();
            let mut body = Vec::new();
            while let Ok(Some(chunk)) = response.chunk().await
                && body.len() < LONGEST_PROBLEM
            {
                body.extend_from_slice(&chunk);
            }
            return Err(refusal(status, None, &body));
        }
        Ok(Some(Following {
            response,
            buffer: Vec::new(),
            cursor: cursor.map(str::to_owned),
        }))
    }
}

impl Following {
    /// The next thing that the worker says; `None`: the connection ended.
    ///
    /// # Errors
    /// It broke, or what came is no event stream.
    pub async fn next(&mut self) -> Result<Option<Said>, ProducerError> {
        loop {
            while let Some(end) = find(&self.buffer) {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(said) = self.read(&block[..end])? {
                    return Ok(Some(said));
                }
            }
            if self.buffer.len() > LONGEST {
                return Err(RemoteError::Foreign.into());
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(RemoteError::Broken(error.without_url()).into()),
            }
        }
    }

    fn read(&mut self, block: &[u8]) -> Result<Option<Said>, ProducerError> {
        let block = std::str::from_utf8(block).map_err(|_| RemoteError::Foreign)?;
        let (mut name, mut data) = ("", None);
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => self.cursor = Some(id.to_owned()),
                Some(("event", event)) => name = event,
                Some(("data", text)) => data = Some(text),
                _ => {}
            }
        }
        let Some(data) = data else {
            return Ok(None);
        };
        let foreign = |_| ProducerError::from(RemoteError::Foreign);
        if name.is_empty() {
            let event = RawValue::from_string(data.to_owned()).map_err(foreign)?;
            return Ok(Some(Said::Event(event)));
        }
        let notice: Notice = serde_json::from_str(data).map_err(foreign)?;
        Ok(match name {
            "end" => Some(Said::End),
            "resync_required" => Some(Said::Resync {
                requested_seq: notice.requested_seq,
                first_seq: notice.first_seq,
            }),
            "disconnect" => Some(Said::Disconnect {
                reason: notice.reason.unwrap_or_default(),
            }),
            // Of a newer worker.
            _ => None,
        })
    }
}

/// Where the first empty line begins.
fn find(buffer: &[u8]) -> Option<usize> {
    buffer.windows(2).position(|pair| pair == b"\n\n")
}

/// Whether the same call may work later.
pub fn is_temporary(error: &ProducerError) -> bool {
    match error {
        ProducerError::Remote(RemoteError::Unreachable(_) | RemoteError::Broken(_)) => true,
        ProducerError::Remote(RemoteError::Refused { status, .. }) => {
            *status == 429 || *status >= 500
        }
        ProducerError::Remote(RemoteError::Foreign) => false,
        ProducerError::Append(error) => matches!(error, AppendError::TimedOut),
    }
}
