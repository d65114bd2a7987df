//! `/v1/agents/{name}/frames`: takes frames of other agents into the stream of that name (C3, C9).
//!
//! An agent's inbox is a stream, and the scope `produce` on it lets a peer in. Who sent a frame is told by its access
//! token, never by the frame. A message is appended once for each (sender, session, id): a repeat is acknowledged again,
//! and appended no more. The answer is an ACK frame. Where the stream acknowledges `on_handled`, the request waits for a
//! while until the stream's subscriptions have handled the messages; what is not handled by then is not in the answer,
//! and is acknowledged when the peer sends it again.
//!
//! An ACK frame acknowledges messages of ours that were sent to that very peer: by subscriptions of the adapter `agent`
//! whose `peer` is the name of its access token.
//!
//! Frames of a BATCH are taken in order up to the first that is refused. The refusal says how many were taken.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use lanekeeper_core::frame::{self, Frame, Kind, Message, Received};
use lanekeeper_core::subscription::FrameAcknowledge;
use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::append::{Enqueued, Fate, NewEvent};
use lanekeeper_postgres::appender::AppenderError;
use lanekeeper_postgres::response::enter_responses;
use lanekeeper_postgres::token::{Grant, Scope};
use lanekeeper_postgres::{frames, sent};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::access::{Peer, Reach, may_reach};
use super::events::{Desk, HeldBody, json, trace_of};
use super::openapi::operation::post;
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

/// How long a request waits until what it sent is handled: less than the time-out of a delivery.
const HANDLED_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at what was handled; it doubles up to the second.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(320)];

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Desk>: FromRef<S>,
{
    Routes::new().on(
        post("/v1/agents/{stream}/frames", "receive_frames", "Take frames of another agent")
            .details(
                "A frame, or a BATCH of them, as docs/frames.md says. They are taken in order up to the first that is \
                 refused; a problem says how many were.",
            )
            .scopes(&[Scope::Produce])
            .header("traceparent", "W3C Trace Context.")
            .header("tracestate", "Beside `traceparent`.")
            .body::<Map<String, Value>>()
            .answers::<Answer>(200, "An ACK frame")
            .problems(problem_type::OF_APPENDS),
        receive,
    )
}

/// The answer: an ACK frame that says how many frames were taken, too.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AckFrame")]
struct Answer {
    v: u64,
    r#type: &'static str,
    ids: Vec<Uuid>,
    accepted: usize,
}

async fn receive(
    State(desk): State<Arc<Desk>>,
    path: Result<Path<String>, PathRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path(stream) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let judged = desk
        .access
        .judge_reach(&headers, peer, Scope::Produce, &stream, Reach::Named);
    let grant = judged.await?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let HeldBody { bytes, room } = desk.body_of_append(token_id, body).await?;
    let place = desk.request()?;
    let inbox = Inbox {
        desk: Arc::clone(&desk),
        stream,
        grant,
        trace: trace_of(&headers),
    };
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let taking = tokio::spawn(async move {
        let _held = (room, place);
        let taken = inbox.take(&bytes).await?;
        Ok((inbox, taken))
    });
    let (inbox, taken) = taking.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    // Here nothing is held, and a client that leaves ends it.
    let ids = inbox.acknowledged(&taken).await;
    let accepted = taken.accepted;
    match taken.refused {
        Some(refused) => Err(refused.behind(accepted, ids)),
        None => {
            let answer = Answer {
                v: frame::VERSION,
                r#type: "ACK",
                ids,
                accepted,
            };
            let body = serde_json::to_vec(&answer).expect("ids and numbers always serialise");
            Ok(json(StatusCode::OK, body))
        }
    }
}

/// Where frames arrive, and from whom.
struct Inbox {
    desk: Arc<Desk>,
    stream: String,
    grant: Option<Arc<Grant>>,
    trace: Option<TraceContext>,
}

/// What was done with the frames of a request.
struct Taken {
    /// The first so many frames.
    accepted: usize,
    acknowledge: FrameAcknowledge,
    session: String,
    /// The messages among them.
    messages: Vec<Appended>,
    /// Why the next one was not.
    refused: Option<Problem>,
}

struct Appended {
    /// The sender's id.
    id: Uuid,
    seq: i64,
    event_type: String,
}

/// What an event says of the frame that it came as.
#[derive(Serialize)]
struct Headers<'a> {
    frame: &'a str,
    frame_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame_from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
}

impl Inbox {
    fn sender(&self) -> Option<&str> {
        self.grant.as_ref().map(|grant| grant.name.as_str())
    }

    async fn take(&self, body: &[u8]) -> Result<Taken, Problem> {
        let Received { frames, refused } = frame::read(body);
        let refused = refused.map(|error| {
            let detail = format!("a frame is not what is expected: {error}");
            Problem::new(problem_type::INVALID, detail).hint("docs/frames.md says what a frame is")
        });
        let Some(acknowledge) = self.acknowledge().await? else {
            let detail = format!(
                "there is no stream {:?} that could take frames: nothing was enqueued",
                Problem::excerpt(&self.stream)
            );
            return Err(Problem::new(problem_type::UNKNOWN_STREAM, detail));
        };
        let mut taken = Taken {
            accepted: frames.len(),
            acknowledge,
            session: String::new(),
            messages: Vec::new(),
            refused,
        };
        let messages: Vec<(usize, &Message<'_>)> = frames
            .iter()
            .enumerate()
            .filter_map(|(at, frame)| match frame {
                Frame::Message(message) => Some((at, message)),
                Frame::Ack(_) => None,
            })
            .collect();
        for (_, message) in &messages {
            let grant = self.grant.as_deref();
            may_reach(grant, Scope::Produce, &self.stream, &message.session)?;
        }
        if let Some((_, first)) = messages.first() {
            taken.session.clone_from(&first.session);
            self.append(&messages, &mut taken).await?;
            self.tell_who_waits(&messages, &taken).await?;
        }
        let acks = frames[..taken.accepted]
            .iter()
            .filter_map(|frame| match frame {
                Frame::Ack(ids) => Some(ids),
                Frame::Message(_) => None,
            });
        let ids: Vec<Uuid> = acks.flatten().copied().collect();
        if !ids.is_empty() {
            self.take_acks(&ids).await?;
        }
        Ok(taken)
    }

    async fn acknowledge(&self) -> Result<Option<FrameAcknowledge>, Problem> {
        self.desk
            .ask(async |client| frames::inbox(client, &self.stream).await)
            .await
    }

    /// Appends messages, each with its place among the frames; of those that cannot all be appended, those before the
    /// first that is refused for good.
    async fn append(
        &self,
        messages: &[(usize, &Message<'_>)],
        taken: &mut Taken,
    ) -> Result<(), Problem> {
        let appended = self.append_all(messages).await;
        let (Err(error), [_, _, ..]) = (&appended, messages) else {
            return match appended {
                Ok(all) => {
                    taken.messages.extend(all);
                    Ok(())
                }
                Err(error) if is_final(&error) => {
                    taken.refuse(messages[0].0, error);
                    Ok(())
                }
                Err(error) => Err(error.into()),
            };
        };
        if !is_final(error) {
            return Err(appended.err().map_or_else(Problem::failed, Problem::from));
        }
        // None was appended. Which one is refused is found out one by one.
        for message in messages {
            match self.append_all(std::slice::from_ref(message)).await {
                Ok(one) => taken.messages.extend(one),
                Err(error) if is_final(&error) => {
                    taken.refuse(message.0, error);
                    break;
                }
                Err(error) => {
                    // Those before it are appended, and the sender may send it again.
                    taken.refuse(message.0, error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Enters the answers among the messages for those who wait for them. If that fails nothing is acknowledged: the peer
    /// sends them again.
    async fn tell_who_waits(
        &self,
        messages: &[(usize, &Message<'_>)],
        taken: &Taken,
    ) -> Result<(), Problem> {
        let answers: Vec<(Uuid, i64)> = messages
            .iter()
            .zip(&taken.messages)
            .filter(|((_, message), _)| message.kind.answers())
            .filter_map(|((_, message), appended)| Some((message.correlation_id?, appended.seq)))
            .collect();
        if answers.is_empty() {
            return Ok(());
        }
        let (stream, session, peer) = (&self.stream, &taken.session, self.sender());
        self.desk
            .ask(async |client| enter_responses(client, &answers, stream, session, peer).await)
            .await
    }

    async fn append_all(
        &self,
        messages: &[(usize, &Message<'_>)],
    ) -> Result<Vec<Appended>, AppenderError> {
        let producer = self.grant.as_ref().map(|grant| grant.producer());
        let keys: Vec<String> = messages
            .iter()
            .map(|(_, message)| format!("frame {} {}", message.id, message.session))
            .collect();
        let headers: Vec<String> = messages
            .iter()
            .map(|(_, message)| self.headers(message))
            .collect();
        let events: Vec<NewEvent<'_>> = messages
            .iter()
            .zip(keys.iter().zip(&headers))
            .map(|((_, message), (key, headers))| NewEvent {
                dedupe_key: Some(key),
                headers: Some(headers),
                producer: producer.as_deref(),
                ..NewEvent::new(&message.session, &message.name, message.data)
            })
            .collect();
        let enqueued = self.desk.appender.append(&self.stream, &events).await?;
        for duplicate in [false, true] {
            let count = enqueued.iter().filter(|one| one.duplicate == duplicate);
            self.desk
                .serving
                .appended(&self.stream, count.count() as u64, duplicate);
        }
        let appended = |((_, message), enqueued): (&(usize, &Message<'_>), Enqueued)| Appended {
            id: message.id,
            seq: enqueued.seq,
            event_type: message.name.clone(),
        };
        Ok(messages.iter().zip(enqueued).map(appended).collect())
    }

    fn headers(&self, message: &Message<'_>) -> String {
        let trace = self.trace.as_ref();
        let headers = Headers {
            frame: message.kind.as_str(),
            frame_id: message.id,
            frame_from: self.sender(),
            correlation_id: message
                .correlation_id
                .filter(|_| message.kind != Kind::Event),
            traceparent: trace.and_then(|trace| trace.traceparent.as_deref()),
            tracestate: trace.and_then(|trace| trace.tracestate.as_deref()),
        };
        serde_json::to_string(&headers).expect("texts always serialise")
    }

    /// Acknowledges what was sent to this peer. Other ids, late ones and repeated ones do nothing.
    async fn take_acks(&self, ids: &[Uuid]) -> Result<(), Problem> {
        self.desk
            .ask(async |client| {
                for subscription in frames::sent_to(client, self.sender()).await? {
                    sent::ack_many(client, ids, Some(&subscription), None).await?;
                }
                Ok(())
            })
            .await
    }

    /// The ids that the answer acknowledges.
    async fn acknowledged(&self, taken: &Taken) -> Vec<Uuid> {
        let all = || taken.messages.iter().map(|message| message.id).collect();
        if taken.acknowledge == FrameAcknowledge::OnCommit || taken.messages.is_empty() {
            return all();
        }
        let until = Instant::now() + HANDLED_WITHIN;
        let [mut pause, longest] = LOOK_EVERY;
        // Where many wait already, this one is told only what it can be told at once.
        let waiting = self.desk.waiting.try_acquire();
        loop {
            let handled = match self.handled(taken).await {
                Ok(handled) => handled,
                // Not acknowledged: the peer sends it again.
                Err(_) => return Vec::new(),
            };
            let is_last =
                waiting.is_err() || taken.refused.is_some() || Instant::now() + pause >= until;
            if is_last || handled.len() == taken.messages.len() {
                return handled;
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    async fn handled(&self, taken: &Taken) -> Result<Vec<Uuid>, Problem> {
        let events: Vec<(i64, &str)> = taken
            .messages
            .iter()
            .map(|message| (message.seq, message.event_type.as_str()))
            .collect();
        let (stream, session) = (&self.stream, &taken.session);
        let handled = self
            .desk
            .ask(async |client| frames::handled(client, stream, session, &events).await)
            .await?;
        Ok(taken
            .messages
            .iter()
            .filter(|message| handled.contains(&message.seq))
            .map(|message| message.id)
            .collect())
    }
}

impl Taken {
    /// The frame at this place was refused, and with it those behind it.
    fn refuse(&mut self, at: usize, error: AppenderError) {
        self.accepted = at;
        self.refused = Some(error.into());
    }
}

/// Whether it is the message's own fault.
fn is_final(error: &AppenderError) -> bool {
    matches!(error, AppenderError::Append(error) if matches!(error.fate(), Fate::Event | Fate::Payload))
}
