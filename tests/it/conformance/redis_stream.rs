//! A real Redis that the test makes accept, fail for lack of memory, or stand still.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_adapters as adapter;
use lanekeeper_adapters::Environment;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Verdict};
use redis::{Commands as _, Connection};
use rustix::process::Signal;
use serde_json::json;

use super::conforms;
use super::destination::{
    Conduct, Destination, Recorder, deliver, deliver_batch, event, retry_error,
};
use crate::support::{Protocol, Proxy, RedisServer, Upstream, WatchedRedis, wait_until};

// No final refusal: whatever a server refuses may be mended there.
conforms!(Entries:
    accepted_event_arrives_whole,
    passing_failure_is_retried,
    silence_ends_at_the_time_out_in_a_retry,
    payload_passes_through_unchanged,
    any_session_name_is_carried,
    concurrent_deliveries_do_not_mix,
);

const KEY: &str = "lanekeeper:hooks";

struct Entries {
    redis: RedisServer,
    adapter: Arc<dyn Adapter>,
}

fn build(redis: &RedisServer, settings: serde_json::Value) -> Arc<dyn Adapter> {
    let environment = Environment::with_variables(false, [("EVENTS_REDIS", redis.url())]);
    adapter::build("redis_stream", "audit", &settings, &environment).unwrap()
}

impl Entries {
    /// What a client may do there.
    fn connection(&self) -> Connection {
        let client = redis::Client::open(self.redis.url()).unwrap();
        client.get_connection().unwrap()
    }

    /// The fields of the entries, in order.
    fn entries(&self, key: &str) -> Vec<HashMap<String, String>> {
        let mut command = redis::cmd("XRANGE");
        let asked = command.arg(key).arg("-").arg("+");
        let entries: Vec<(String, HashMap<String, String>)> =
            asked.query(&mut self.connection()).unwrap();
        entries.into_iter().map(|(_, fields)| fields).collect()
    }
}

#[async_trait]
impl Destination for Entries {
    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let full = ["--maxmemory", "1", "--maxmemory-policy", "noeviction"];
        let options: &[&str] = match conduct {
            Conduct::FailForNow => &full,
            _ => &[],
        };
        let redis = RedisServer::with(options);
        if conduct == Conduct::Hang {
            redis.signal(Signal::STOP);
        }
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap();
        let adapter = build(
            &redis,
            json!({"url_env": "EVENTS_REDIS", "timeout_ms": timeout_ms}),
        );
        Self { redis, adapter }
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::clone(&self.adapter)
    }
}

#[async_trait]
impl Recorder for Entries {
    async fn bodies(&self, n: usize) -> Vec<String> {
        while self.entries(KEY).len() < n {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut entries = self.entries(KEY);
        entries
            .iter_mut()
            .map(|fields| fields.remove("event").unwrap())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_can_be_judged_without_its_body_and_goes_to_the_key_of_its_session() {
    let there = Entries::start(Conduct::Accept, Duration::from_secs(20)).await;
    let settings = json!({"url_env": "EVENTS_REDIS", "key": "{stream}/{session}", "max_len": 2});
    let adapter = build(&there.redis, settings);
    let mut traced = event("{stream}", 7, "{}");
    traced.headers = Some(r#"{"traceparent":"00-a-b-01","tracestate":"v=1"}"#.to_owned());
    assert_eq!(deliver(&*adapter, &traced).await, Verdict::Accepted);
    let entries = there.entries("hooks/{stream}");
    let field = |name: &str| entries[0].get(name).cloned();
    for (name, value) in [
        ("id", traced.message_id.to_string()),
        ("stream", "hooks".to_owned()),
        ("session", "{stream}".to_owned()),
        ("seq", "7".to_owned()),
        ("type", "agent_stop".to_owned()),
        ("attempt", "3".to_owned()),
        ("traceparent", "00-a-b-01".to_owned()),
        ("tracestate", "v=1".to_owned()),
    ] {
        assert_eq!(field(name), Some(value), "{name}");
    }
    // About so many: whole nodes of a hundred entries are dropped.
    for seq in 8..400 {
        assert_eq!(
            deliver(&*adapter, &event("{stream}", seq, "{}")).await,
            Verdict::Accepted
        );
    }
    let kept = there.entries("hooks/{stream}").len();
    assert!((2..=200).contains(&kept), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_are_older_than_max_age_are_dropped() {
    let there = Entries::start(Conduct::Accept, Duration::from_secs(20)).await;
    // Of 1970, and enough for whole nodes of a hundred.
    let mut connection = there.connection();
    for number in 1..=400 {
        let mut old = redis::cmd("XADD");
        old.arg(KEY)
            .arg(format!("{number}-0"))
            .arg("event")
            .arg("old");
        let _: String = old.query(&mut connection).unwrap();
    }
    let settings = json!({"url_env": "EVENTS_REDIS", "max_age_s": 3_600});
    let adapter = build(&there.redis, settings);
    for seq in 1..=3 {
        assert_eq!(
            deliver(&*adapter, &event("s", seq, "{}")).await,
            Verdict::Accepted
        );
    }
    let entries = there.entries(KEY);
    let new = entries.iter().filter(|fields| fields.contains_key("seq"));
    assert_eq!(new.count(), 3);
    assert!(entries.len() < 200, "{}", entries.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_is_found_again_and_a_wrong_key_says_so() {
    let mut there = Entries::start(Conduct::Accept, Duration::from_secs(20)).await;
    let adapter = there.adapter();
    assert_eq!(
        deliver(&*adapter, &event("s", 1, "{}")).await,
        Verdict::Accepted
    );
    there.redis.kill();
    let error = retry_error(deliver(&*adapter, &event("s", 2, "{}")).await);
    assert!(error.starts_with("Redis"), "{error}");
    there.redis.restart();
    wait_until(Duration::from_secs(20), "it is found again", async || {
        deliver(&*adapter, &event("s", 2, "{}")).await == Verdict::Accepted
    })
    .await;
    let _: () = there.connection().set("taken", "text").unwrap();
    let settings = json!({"url_env": "EVENTS_REDIS", "key": "taken"});
    let error = retry_error(deliver(&*build(&there.redis, settings), &event("s", 3, "{}")).await);
    assert!(error.contains("WRONGTYPE"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_added_in_order_and_whole_or_not_at_all() {
    let there = Entries::start(Conduct::Accept, Duration::from_secs(20)).await;
    let settings = json!({"url_env": "EVENTS_REDIS", "batch": 100});
    let adapter = build(&there.redis, settings.clone());
    assert_eq!(adapter.max_batch(), 100);
    let events: Vec<_> = (1..=100).map(|seq| event("s", seq, "{}")).collect();
    let verdict = deliver_batch(&*adapter, &events, false).await;
    assert_eq!(verdict, BatchVerdict::Whole(Verdict::Accepted));
    let seqs: Vec<String> = there
        .entries(KEY)
        .iter()
        .map(|fields| fields["seq"].clone())
        .collect();
    let expected: Vec<String> = (1..=100).map(|seq: i64| seq.to_string()).collect();
    assert_eq!(seqs, expected);
    let full = Entries::start(Conduct::FailForNow, Duration::from_secs(20)).await;
    let verdict = deliver_batch(&*build(&full.redis, settings), &events, false).await;
    let BatchVerdict::Whole(verdict) = verdict else {
        panic!("{verdict:?}")
    };
    assert!(retry_error(verdict).starts_with("Redis refused it"));
    assert_eq!(full.redis.says(&["xlen", KEY]).trim(), "0");
}

/// What an operator's name or proxy does: one address that leads to whichever server is the master.
struct Door(Proxy);

impl Door {
    async fn to(redis: &RedisServer) -> Self {
        Self(Proxy::start(Self::server(redis), Protocol::Http).await)
    }

    fn server(redis: &RedisServer) -> Upstream {
        Upstream::Tcp(([127, 0, 0, 1], redis.port()).into())
    }

    /// New connections go there; those that there are stay.
    fn lead_to(&self, redis: &RedisServer) {
        self.0.lead_to(Self::server(redis));
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        let url = format!("redis://127.0.0.1:{}", self.0.port());
        let environment = Environment::with_variables(false, [("EVENTS_REDIS", url)]);
        let settings = json!({"url_env": "EVENTS_REDIS"});
        adapter::build("redis_stream", "audit", &settings, &environment).unwrap()
    }
}

const AMPLE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn entries_go_to_the_server_that_sentinels_promote() {
    let mut redis = WatchedRedis::start("events");
    let door = Door::to(&redis.master).await;
    let adapter = door.adapter();
    let add = async |seq| deliver(&*adapter, &event("s", seq, "{}")).await;
    assert_eq!(add(1).await, Verdict::Accepted);
    let entries = |redis: &RedisServer| redis.says(&["xlen", KEY]).trim().to_owned();
    wait_until(AMPLE, "the replica has it", async || {
        entries(&redis.replica) == "1"
    })
    .await;
    redis.master.kill();
    retry_error(add(2).await);
    wait_until(AMPLE, "the replica is promoted", async || {
        redis.replica.says(&["role"]).starts_with("master")
    })
    .await;
    door.lead_to(&redis.replica);
    assert_eq!(add(2).await, Verdict::Accepted);
    assert_eq!(entries(&redis.replica), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_became_a_replica_is_left_though_its_connection_stands() {
    let [old, new] = [RedisServer::start(), RedisServer::start()];
    let door = Door::to(&old).await;
    let adapter = door.adapter();
    let add = async |seq| deliver(&*adapter, &event("s", seq, "{}")).await;
    assert_eq!(add(1).await, Verdict::Accepted);
    old.says(&["replicaof", "127.0.0.1", &new.port().to_string()]);
    door.lead_to(&new);
    let error = retry_error(add(2).await);
    assert!(error.contains("READONLY"), "{error}");
    assert_eq!(add(2).await, Verdict::Accepted);
    assert_eq!(new.says(&["xlen", KEY]).trim(), "1");
}
