//! D4: the same over a WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::client::LIMIT;
use super::session::append;
use crate::api::site::Site;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn open(site: &Site, query: &str, headers: &[(&'static str, &str)]) -> Result<Socket, u16> {
    let url = site.worker.http().replace("http://", "ws://");
    let url = format!("{url}/v1/streams/runs/sessions/r1/events/live?{query}");
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match connect_async(request).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(other) => panic!("{other:?}"),
    }
}

/// The next message that is no heartbeat; `None` with the close.
async fn next(socket: &mut Socket) -> Result<Value, u16> {
    loop {
        let frame = timeout(LIMIT, socket.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        match frame {
            Message::Text(text) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["type"] != "heartbeat" {
                    return Ok(message);
                }
            }
            Message::Close(frame) => return Err(frame.unwrap().code.into()),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_gets_what_an_event_stream_gets_and_resumes_by_its_cursor() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 3).await;
    let mut socket = open(&site, "from=2", &[]).await.unwrap();
    let mut id = Value::Null;
    for seq in 2..=5 {
        let message = next(&mut socket).await.unwrap();
        assert_eq!(
            (&message["type"], &message["event"]["seq"]),
            (&json!("event"), &json!(seq))
        );
        id = message["id"].clone();
        append(&site, "r1", "step", 1).await;
    }
    drop(socket);
    let query = format!("cursor={}", id.as_str().unwrap());
    let mut socket = open(&site, &query, &[]).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap()["event"]["seq"], 6);
    assert_eq!(open(&site, "cursor=99", &[]).await.err(), Some(409));
    assert_eq!(next(&mut socket).await.unwrap()["event"]["seq"], 7);
    let close = "SELECT lanekeeper.close_session('runs', 'r1')";
    site.plant.client.batch_execute(close).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap()["type"], "end");
    assert_eq!(next(&mut socket).await, Err(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_is_disconnected_and_a_page_of_another_origin_is_not_let_in() {
    let site = Site::open(&[("LANEKEEPER_LIVE__CORS_ORIGINS", "https://app.example")]).await;
    append(&site, "r1", "step", 1).await;
    let token = site.token(&["a", "--scope", "read"]).await;
    let bearer = format!("Bearer {token}");
    let bearer = ("authorization", bearer.as_str());
    for sent in [Message::text("hello"), Message::binary(vec![0; 500])] {
        let mut socket = open(&site, "from=end", &[bearer]).await.unwrap();
        socket.send(Message::Ping(vec![1].into())).await.unwrap();
        socket.send(sent).await.unwrap();
        assert_eq!(next(&mut socket).await, Err(1008));
    }
    assert_eq!(open(&site, "", &[]).await.err(), Some(401));
    for (origin, refused) in [
        ("https://app.example", None),
        ("https://evil.example", Some(403)),
    ] {
        let headers = [("origin", origin), bearer];
        assert_eq!(open(&site, "", &headers).await.err(), refused, "{origin}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_closes_its_sockets_with_the_cursor_to_resume_from() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    let mut socket = open(&site, "", &[]).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap()["event"]["seq"], 1);
    let stopped = tokio::spawn(site.worker.stop());
    let told = next(&mut socket).await.unwrap();
    assert_eq!(
        (&told["type"], &told["reason"]),
        (&json!("disconnect"), &json!("stopping"))
    );
    assert_eq!(told["resume_from"], told["id"]);
    assert_eq!(next(&mut socket).await, Err(1012));
    assert!(stopped.await.unwrap().success());
}
