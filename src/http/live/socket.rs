//! A follower as a WebSocket: each message is one JSON object. The client sends nothing: what it sends ends the connection.

use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message as Frame, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use tokio::time::timeout;

use super::Live;
use super::follower::Follower;
use super::inbox::Ended;
use super::reader::ANSWER_WITHIN;
use crate::connections::Following;

/// The largest message that is read of a client, to be refused.
const MOST_READ: usize = 1024;

pub fn answer(
    live: &Arc<Live>,
    upgrade: WebSocketUpgrade,
    follower: Box<Follower>,
    following: Following,
) -> Response {
    let sockets = live.sockets.clone();
    upgrade
        .max_message_size(MOST_READ)
        .max_frame_size(MOST_READ)
        .write_buffer_size(0)
        .on_upgrade(move |socket| sockets.track_future(run(socket, follower, following)))
}

/// Sends what the follower gets, until it ends or its client leaves.
async fn run(mut socket: WebSocket, mut follower: Box<Follower>, _following: Following) {
    loop {
        // Not in an arm that may be dropped half-way: what it has begun to hand over would be lost with it. Here the
        // connection ends with it, and the client goes on from its cursor.
        let messages = tokio::select! {
            messages = follower.next() => messages,
            sent = refuse(&mut socket) => {
                if sent {
                    follower.live.instruments.disconnected("client_sent");
                    follower.is_over = true;
                    close(socket, close_code::POLICY, "this socket only sends").await;
                }
                return;
            }
        };
        let Some(messages) = messages else {
            close(socket, close_code::NORMAL, "").await;
            return;
        };
        for message in messages {
            // A client that takes nothing is closed by its socket's own bound (`http.read_timeout_ms`).
            if socket
                .send(Frame::Text(message.json().into()))
                .await
                .is_err()
            {
                return;
            }
        }
        if follower.inbox.ended() == Some(Ended::Stopping) && follower.is_over {
            close(socket, close_code::RESTART, "the worker stops").await;
            return;
        }
    }
}

/// Returns when the client left: false; or sent something: true. Pings are answered meanwhile.
async fn refuse(socket: &mut WebSocket) -> bool {
    loop {
        match socket.recv().await {
            None | Some(Ok(Frame::Close(_))) | Some(Err(_)) => return false,
            Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => {}
            Some(Ok(Frame::Text(_) | Frame::Binary(_))) => return true,
        }
    }
}

async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    let reason = reason.into();
    let closing = socket.send(Frame::Close(Some(CloseFrame { code, reason })));
    // It is gone already, or takes nothing: either way this is the end.
    let _ = timeout(ANSWER_WITHIN, closing).await;
}
