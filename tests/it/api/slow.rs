//! Many clients, and clients that send or read slowly.

use std::time::Duration;

use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use super::site::{Answer, Site};
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const EVENT: &str = r#"{"event_type":"a","payload":1}"#;
const HEAD: &str = "POST /v1/streams/runs/sessions/s/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 30\r\n\r\n";

fn address(site: &Site) -> String {
    site.worker.http().replace("http://", "")
}

async fn connect(site: &Site) -> TcpStream {
    TcpStream::connect(address(site)).await.unwrap()
}

/// Sends it byte by byte until the server has enough of it; returns what it said, and how long it listened.
async fn dribble(mut connection: TcpStream, text: &str) -> (String, Duration) {
    let since = Instant::now();
    let mut pace = interval(Duration::from_millis(50));
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    let mut rest = text.as_bytes().iter();
    let listening = async {
        loop {
            tokio::select! {
                read = connection.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => answer.extend_from_slice(&buffer[..bytes]),
                },
                _ = pace.tick() => if let Some(byte) = rest.next()
                    && connection.write_all(&[*byte]).await.is_err() { break },
            }
        }
    };
    timeout(LIMIT, listening)
        .await
        .expect("it is closed at last");
    (String::from_utf8(answer).unwrap(), since.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_or_reads_too_slowly_is_cut_off_and_appends_nothing() {
    let site = Site::open(&[("LANEKEEPER_HTTP__READ_TIMEOUT_MS", "1000")]).await;
    let many_headers = format!("GET /livez HTTP/1.1\r\n{}", "x-a: b\r\n".repeat(100));
    let (nothing, head, body) = tokio::join!(
        async { dribble(connect(&site).await, "").await },
        async { dribble(connect(&site).await, &many_headers).await },
        async {
            let mut connection = connect(&site).await;
            connection.write_all(HEAD.as_bytes()).await.unwrap();
            dribble(connection, EVENT).await
        },
    );
    for (what, (said, took)) in [("nothing", &nothing), ("a head", &head)] {
        assert_eq!(said, "", "{what}");
        let expected = Duration::from_millis(900)..Duration::from_secs(20);
        assert!(expected.contains(took), "{what}: {took:?}");
    }
    let (said, took) = body;
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    assert!(said.contains("took too long to arrive"), "{said}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(site.logged_events().await, 0);

    // More than fits the buffers of both sides.
    let large =
        "SELECT lanekeeper.enqueue('runs', 'large', 'a', to_jsonb(repeat(md5(n::text), 30000)))
        FROM generate_series(1, 20) AS n";
    site.plant.client.execute(large, &[]).await.unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut reader = socket
        .connect(address(&site).parse().unwrap())
        .await
        .unwrap();
    let ask = "GET /v1/streams/runs/sessions/large/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    reader.write_all(ask.as_bytes()).await.unwrap();
    // Its own request, and that one.
    wait_until(LIMIT, "the answer is under way", async || {
        under_way(&site, "GET").await == 2
    })
    .await;
    wait_until(LIMIT, "the answer is given up", async || {
        under_way(&site, "GET").await == 1
    })
    .await;
    let mut rest = Vec::new();
    // Reset, or ended early: in any case it is not all.
    let _ = timeout(LIMIT, reader.read_to_end(&mut rest)).await.unwrap();
    let head = String::from_utf8_lossy(&rest[..rest.len().min(1_000)]).to_lowercase();
    let (_, length) = head.split_once("content-length: ").unwrap();
    let length: usize = length.split_once('\r').unwrap().0.parse().unwrap();
    assert!(rest.len() < length, "{} of {length}", rest.len());
    assert!(site.worker.stop().await.success());
}

/// Requests with this method that are not answered yet.
pub(crate) async fn under_way(site: &Site, method: &str) -> usize {
    let metrics = reqwest::get(site.worker.http() + "/metrics").await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let of_method = format!("http_server_active_requests{{http_request_method=\"{method}\"");
    let mut lines = metrics.lines().filter(|line| line.starts_with(&of_method));
    let count = lines.find_map(|line| line.rsplit_once(' '));
    count.map_or(0, |(_, count)| count.parse().unwrap())
}

/// Connections that have sent this much and keep open what they have.
pub(crate) async fn hold(site: &Site, count: usize, sent: &str) -> Vec<TcpStream> {
    let mut opening = JoinSet::new();
    for _ in 0..count {
        let (address, sent) = (address(site), sent.to_owned());
        opening.spawn(async move {
            let mut connection = TcpStream::connect(address).await.unwrap();
            // It may be closed already, for those that came after it.
            let _ = connection.write_all(sent.as_bytes()).await;
            connection
        });
    }
    opening.join_all().await
}

async fn assert_probes_answer(site: &Site) {
    for path in ["/livez", "/readyz", "/startupz", "/metrics"] {
        let asked = reqwest::get(site.worker.http() + path);
        let answer = timeout(Duration::from_secs(5), asked).await;
        let status = answer.expect(path).expect(path).status();
        assert_eq!(status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_of_one_token_leave_others_their_room() {
    let patient = [("LANEKEEPER_HTTP__READ_TIMEOUT_MS", "60000")];
    let site = Site::open(&patient).await;
    let slow = site.token(&["slow", "--scope", "produce"]).await;
    let other = site.token(&["other", "--scope", "produce"]).await;
    let path = "/v1/streams/runs/sessions/s/events";
    // Chunked: nobody knows how large they become.
    let begun = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {slow}\r\n\
         transfer-encoding: chunked\r\n\r\n1\r\n[\r\n"
    );
    let held = hold(&site, 20, &begun).await;
    let under_way = async || under_way(&site, "POST").await == 20;
    wait_until(LIMIT, "all of them are under way", under_way).await;
    for _ in 0..5 {
        let request = site.events(Method::POST, "runs", "t").bearer_auth(&other);
        let answer = Answer::of(request.body(EVENT).send().await.unwrap()).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    drop(held);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_producers_are_served_while_slow_clients_hold_every_place() {
    let patient = [
        ("LANEKEEPER_HTTP__MAX_CONNECTIONS", "32"),
        ("LANEKEEPER_HTTP__READ_TIMEOUT_MS", "60000"),
    ];
    let site = Site::open(&patient).await;
    let _silent = hold(&site, 100, "").await;
    let _half = hold(&site, 100, "GET /livez HTTP/1.1\r\nx: ").await;
    assert_probes_answer(&site).await;
    assert_eq!(site.post("s", EVENT).await.status, 201);

    // With a request under way none of them has to give way: the last places are for probes.
    let mut busy = hold(&site, 16, HEAD).await;
    wait_until(LIMIT, "no more requests are taken", async || {
        // One may have been turned away for another reason.
        busy.extend(hold(&site, 1, HEAD).await);
        site.post("t", EVENT).await.status == 429
    })
    .await;
    let _silent = hold(&site, 100, "").await;
    assert_probes_answer(&site).await;
    // Those that were taken were not cut off for it.
    let before = site.logged_events().await;
    let mut appended = 0;
    for connection in &mut busy {
        // Those that were turned away are closed.
        if connection.write_all(EVENT.as_bytes()).await.is_err() {
            continue;
        }
        let mut answer = [0; 12];
        let read = timeout(LIMIT, connection.read_exact(&mut answer)).await;
        if read.expect("it is answered").is_ok() && &answer == b"HTTP/1.1 201" {
            appended += 1;
        }
    }
    assert_eq!(appended, 16);
    assert_eq!(site.logged_events().await, before + 16);
    drop(busy);
    wait_until(LIMIT, "requests are taken again", async || {
        site.post("t", EVENT).await.status == 201
    })
    .await;
    assert!(site.worker.stop().await.success());
}
