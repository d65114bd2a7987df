//! A real Redis with a subscriber, whose connection the test reads.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_adapters as adapter;
use lanekeeper_adapters::Environment;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Verdict};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::conforms;
use super::destination::{
    Conduct, Destination, Recorder, deliver, deliver_batch, event, retry_error,
};
use crate::support::{RedisServer, wait_until};

// A server refuses no message for lack of memory, and none for good.
conforms!(Subscriber:
    accepted_event_arrives_whole,
    silence_ends_at_the_time_out_in_a_retry,
    payload_passes_through_unchanged,
    any_session_name_is_carried,
    concurrent_deliveries_do_not_mix,
);

const LIMIT: Duration = Duration::from_secs(20);

struct Subscriber {
    redis: RedisServer,
    adapter: Arc<dyn Adapter>,
    /// Channels and messages.
    heard: Mutex<Receiver<(String, String)>>,
    bodies: Mutex<Vec<String>>,
}

fn build(redis: &RedisServer, settings: Value) -> Arc<dyn Adapter> {
    let environment = Environment::with_variables(false, [("EVENTS_REDIS", redis.url())]);
    adapter::build("redis_pubsub", "audit", &settings, &environment).unwrap()
}

/// Subscribes to all channels before it returns. Ends with the server.
fn subscribe(redis: &RedisServer) -> Receiver<(String, String)> {
    let (to, heard) = channel();
    let (is_there, there) = channel();
    let url = redis.url();
    thread::spawn(move || {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut messages = connection.as_pubsub();
        messages.psubscribe("*").unwrap();
        is_there.send(()).unwrap();
        while let Ok(message) = messages.get_message() {
            let body = message.get_payload().unwrap();
            if to
                .send((message.get_channel_name().to_owned(), body))
                .is_err()
            {
                return;
            }
        }
    });
    there.recv_timeout(LIMIT).unwrap();
    heard
}

#[async_trait]
impl Destination for Subscriber {
    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let redis = RedisServer::start();
        let heard = subscribe(&redis);
        if conduct == Conduct::Hang {
            redis.signal(Signal::STOP);
        }
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap();
        let adapter = build(
            &redis,
            json!({"url_env": "EVENTS_REDIS", "timeout_ms": timeout_ms}),
        );
        Self {
            redis,
            adapter,
            heard: Mutex::new(heard),
            bodies: Mutex::default(),
        }
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::clone(&self.adapter)
    }
}

impl Subscriber {
    fn next(&self) -> (String, Value) {
        let (channel, body) = self.heard.lock().unwrap().recv_timeout(LIMIT).unwrap();
        (channel, serde_json::from_str(&body).unwrap())
    }
}

#[async_trait]
impl Recorder for Subscriber {
    async fn bodies(&self, n: usize) -> Vec<String> {
        let mut bodies = self.bodies.lock().unwrap();
        while bodies.len() < n {
            bodies.push(self.heard.lock().unwrap().recv_timeout(LIMIT).unwrap().1);
        }
        bodies.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_to_the_channel_of_its_session_whoever_listens() {
    let there = Subscriber::start(Conduct::Accept, LIMIT).await;
    assert_eq!(
        deliver(&*there.adapter(), &event("{stream}", 7, "{}")).await,
        Verdict::Accepted
    );
    let (channel, body) = there.next();
    assert_eq!(channel, "lanekeeper:hooks:{stream}");
    assert_eq!(
        (&body["session"], &body["seq"]),
        (&json!("{stream}"), &json!(7))
    );
    let settings = json!({"url_env": "EVENTS_REDIS", "channel": "all"});
    let adapter = build(&there.redis, settings);
    assert_eq!(
        deliver(&*adapter, &event("s", 8, "{}")).await,
        Verdict::Accepted
    );
    assert_eq!(there.next().0, "all");
    let alone = RedisServer::start();
    let adapter = build(&alone, json!({"url_env": "EVENTS_REDIS"}));
    let verdict = deliver(&*adapter, &event("s", 9, "{}")).await;
    assert_eq!(verdict, Verdict::Accepted, "nobody listens");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_published_in_order_in_one_round_trip() {
    let there = Subscriber::start(Conduct::Accept, LIMIT).await;
    let adapter = build(
        &there.redis,
        json!({"url_env": "EVENTS_REDIS", "batch": 100}),
    );
    assert_eq!(adapter.max_batch(), 100);
    let events: Vec<_> = (1..=100).map(|seq| event("s", seq, "{}")).collect();
    let verdict = deliver_batch(&*adapter, &events, false).await;
    assert_eq!(verdict, BatchVerdict::Whole(Verdict::Accepted));
    for seq in 1..=100 {
        assert_eq!(there.next().1["seq"], seq);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_is_found_again() {
    let mut redis = RedisServer::start();
    let adapter = build(&redis, json!({"url_env": "EVENTS_REDIS"}));
    let publish = async |seq| deliver(&*adapter, &event("s", seq, "{}")).await;
    assert_eq!(publish(1).await, Verdict::Accepted);
    redis.kill();
    let error = retry_error(publish(2).await);
    assert!(error.starts_with("Redis"), "{error}");
    redis.restart();
    wait_until(LIMIT, "it is found again", async || {
        publish(2).await == Verdict::Accepted
    })
    .await;
}
