//! What a follower is sent, and how SSE and WebSocket write it.

use axum::body::Bytes;
use lanekeeper_postgres::follow::Closed;
use serde::Serialize;

use super::inbox::Ended;

/// One message.
#[derive(Debug)]
pub enum Message {
    /// An event of the log. `id`: the cursor after it.
    Event {
        id: String,
        json: Bytes,
    },
    /// Nothing happened. `id`: where the follower stands.
    Heartbeat {
        id: String,
    },
    Notice {
        id: String,
        notice: Notice,
    },
}

/// Something that is no event of the log.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Notice {
    /// Events that were asked for are gone from the log. It goes on with `first_seq`.
    ResyncRequired {
        session: String,
        requested_seq: i64,
        first_seq: i64,
    },
    /// The days that a stream's cursor is from are gone from the log. It goes on with what is kept.
    #[serde(rename = "resync_required")]
    StreamResyncRequired {
        cursor_day: String,
        first_day: String,
    },
    /// The session is closed, and all of its events were sent.
    End {
        session: String,
        closed_seq: i64,
        reason: Option<String>,
    },
    /// The connection ends; the client may come back with its cursor.
    Disconnect {
        reason: &'static str,
        resume_from: String,
    },
}

impl Notice {
    fn name(&self) -> &'static str {
        match self {
            Self::ResyncRequired { .. } | Self::StreamResyncRequired { .. } => "resync_required",
            Self::End { .. } => "end",
            Self::Disconnect { .. } => "disconnect",
        }
    }

    pub fn end(session: &str, closed: Closed) -> Self {
        Self::End {
            session: session.to_owned(),
            closed_seq: closed.seq,
            reason: closed.reason,
        }
    }
}

impl Ended {
    /// As clients and metrics see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooSlow => "too_slow",
            Self::Revoked => "access_ended",
            Self::Expired => "access_expired",
            Self::Stopping => "stopping",
        }
    }
}

impl Message {
    /// As lines of an event stream. Events of the log have no name, so that EventSource's `onmessage` gets all of them.
    pub fn write_sse(&self, to: &mut Vec<u8>) {
        match self {
            Self::Event { id, json } => {
                field(to, "id", id.as_bytes());
                field(to, "data", json);
            }
            // Without data: a browser remembers the id and tells nobody.
            Self::Heartbeat { id } => field(to, "id", id.as_bytes()),
            Self::Notice { id, notice } => {
                field(to, "id", id.as_bytes());
                field(to, "event", notice.name().as_bytes());
                field(
                    to,
                    "data",
                    &serde_json::to_vec(notice).expect("strings and numbers always serialise"),
                );
            }
        }
        to.push(b'\n');
    }

    /// As one text message.
    pub fn json(&self) -> String {
        let string = |text: &str| serde_json::to_string(text).expect("a string always serialises");
        match self {
            Self::Event { id, json } => format!(
                r#"{{"type":"event","id":{},"event":{}}}"#,
                string(id),
                String::from_utf8_lossy(json)
            ),
            Self::Heartbeat { id } => format!(r#"{{"type":"heartbeat","id":{}}}"#, string(id)),
            Self::Notice { id, notice } => {
                let notice =
                    serde_json::to_string(notice).expect("strings and numbers always serialise");
                // After the type, which comes first.
                format!("{},\"id\":{}}}", &notice[..notice.len() - 1], string(id))
            }
        }
    }

    /// Bytes that it takes at the least.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Event { id, json } => id.len() + json.len() + 64,
            Self::Heartbeat { id } | Self::Notice { id, .. } => id.len() + 512,
        }
    }
}

fn field(to: &mut Vec<u8>, name: &str, value: &[u8]) {
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sse(message: &Message) -> String {
        let mut bytes = Vec::new();
        message.write_sse(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_message_is_an_event_of_a_stream_and_a_json_object() {
        let event = Message::Event {
            id: "17.1".to_owned(),
            json: Bytes::from_static(br#"{"seq":1}"#),
        };
        assert_eq!(sse(&event), "id: 17.1\ndata: {\"seq\":1}\n\n");
        assert_eq!(
            event.json(),
            r#"{"type":"event","id":"17.1","event":{"seq":1}}"#
        );
        let id = || "17.9".to_owned();
        assert_eq!(sse(&Message::Heartbeat { id: id() }), "id: 17.9\n\n");
        let notice = Message::Notice {
            id: id(),
            notice: Notice::ResyncRequired {
                session: "r\n1".to_owned(),
                requested_seq: 2,
                first_seq: 10,
            },
        };
        assert_eq!(
            sse(&notice),
            "id: 17.9\nevent: resync_required\ndata: {\"type\":\"resync_required\",\"session\":\"r\\n1\",\"requested_seq\":2,\"first_seq\":10}\n\n"
        );
        let json: serde_json::Value = serde_json::from_str(&notice.json()).unwrap();
        assert_eq!(
            (&json["id"], &json["first_seq"]),
            (&"17.9".into(), &10.into())
        );
    }
}
