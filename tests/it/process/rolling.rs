//! A rolling restart at full load: three workers are replaced one by one. `make rolling PREVIOUS=REF` runs it
//! with the workers of an earlier commit to begin with: then the schema is that one's too, and is migrated while
//! they deliver; and at the end those workers are back, on the newer schema.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::plant::LIMIT;
use crate::support::{
    Receiver, SECRET_ENV, Seen, TestDb, WorkerProcess, connect, lanekeeper, lanekeeper_at,
    wait_until,
};

const SESSIONS: i64 = 60;
/// Events that wait at any time, so that no worker is ever idle.
const BACKLOG: i64 = 3_000;
/// Asked for is a second; a machine that does something else meanwhile gets more.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Keeps every session busy until it is told to stop; how many events each has.
pub async fn produce(url: String, receiver: Arc<Receiver>, stop: Arc<AtomicBool>) -> i64 {
    let client = connect(&url).await;
    let mut events = 0;
    while !stop.load(Ordering::SeqCst) {
        let arrived = i64::try_from(receiver.accepted()).unwrap();
        if events * SESSIONS - arrived > BACKLOG {
            sleep(Duration::from_millis(20)).await;
            continue;
        }
        client
            .execute(
                "SELECT lanekeeper.enqueue_many('runs', (
                     SELECT jsonb_agg(jsonb_build_object('session', 's' || s, 'event_type', 'step', 'payload', n)
                                      ORDER BY n, s)
                     FROM generate_series(1, $1::bigint) AS s, generate_series(1, 10) AS n))",
                &[&SESSIONS],
            )
            .await
            .unwrap();
        events += 10;
    }
    events
}

/// Waits until each of these workers has delivered something from now on.
pub async fn each_delivers(receiver: &Receiver, workers: &[WorkerProcess]) {
    let senders: Vec<_> = workers.iter().map(|worker| worker.sender).collect();
    let from = receiver.accepted();
    receiver
        .wait_until(LIMIT, "each of them delivers", |seen| {
            let newer = seen.arrivals.iter().skip(from);
            let seen: Vec<_> = newer.map(|one| one.sender).collect();
            senders.iter().all(|sender| seen.contains(sender))
        })
        .await;
}

/// The longest time between two arrivals of one session, and of all, from the first to the last instant.
fn pauses(seen: &Seen, from: Instant, to: Instant) -> (Duration, Duration) {
    let mut last: HashMap<&str, Instant> = HashMap::new();
    let (mut last_of_all, mut session, mut all) = (from, Duration::ZERO, Duration::ZERO);
    for arrival in seen.arrivals.iter().filter(|one| one.at <= to) {
        let before = last.insert(&arrival.session, arrival.at);
        if arrival.at >= from {
            let before = before.unwrap_or(from).max(from);
            session = session.max(arrival.at - before);
            all = all.max(arrival.at - last_of_all);
            last_of_all = arrival.at;
        }
    }
    (session, all)
}

async fn run(mut program: Command, arguments: &[&str], url: &str) {
    let ran = program.args(arguments).env("DATABASE_URL", url).output();
    let ran = ran.await.unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn three_workers_are_replaced_at_full_load_and_nobody_notices() {
    let previous = std::env::var_os("PREVIOUS_LANEKEEPER").map(PathBuf::from);
    let program = || {
        previous
            .as_ref()
            .map_or_else(lanekeeper, |path| lanekeeper_at(path))
    };
    let db = TestDb::new().await;
    let url = db.url();
    if previous.is_some() {
        let client = db.connect().await;
        client
            .batch_execute("DROP SCHEMA lanekeeper CASCADE")
            .await
            .unwrap();
        run(program(), &["migrate"], url).await;
    }
    let receiver = Arc::new(Receiver::start(Duration::from_millis(5)).await);
    let file = tempfile::NamedTempFile::new().unwrap();
    let subscription = format!(
        "[subscription.out]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{}\"\nsecret_env = \"{SECRET_ENV}\"\n",
        receiver.url()
    );
    std::fs::write(file.path(), subscription).unwrap();
    run(
        program(),
        &["apply", "-f", file.path().to_str().unwrap()],
        url,
    )
    .await;

    // Room for a third of the sessions each: every one of them is full, and none can do without the others.
    let room = [("LANEKEEPER_WORKER__MAX_LANES", "20")];
    let start = async |program: Command| {
        let (sender, secret) = receiver.new_secret();
        let worker = WorkerProcess::spawn_as(program, url, sender, &secret, &room);
        worker.serves().await;
        worker
    };
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(start(program()).await);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let producing = tokio::spawn(produce(
        url.to_owned(),
        Arc::clone(&receiver),
        Arc::clone(&stop),
    ));
    each_delivers(&receiver, &old).await;
    let began = Instant::now();
    if previous.is_some() {
        run(lanekeeper(), &["migrate"], url).await;
        each_delivers(&receiver, &old).await;
    }
    let mut new = Vec::new();
    for leaving in old {
        new.push(start(lanekeeper()).await);
        assert_eq!(leaving.stop().await.code(), Some(0));
        each_delivers(&receiver, &new).await;
    }
    if previous.is_some() {
        // The way back: on the newer schema.
        let mut back = Vec::new();
        for leaving in new {
            back.push(start(program()).await);
            assert_eq!(leaving.stop().await.code(), Some(0));
            each_delivers(&receiver, &back).await;
        }
        new = back;
    }
    let ended = Instant::now();
    stop.store(true, Ordering::SeqCst);
    let events = producing.await.unwrap();
    let client = db.connect().await;
    wait_until(LIMIT, "everything is settled", async || {
        let left = "SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL";
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    let seen = receiver.seen();
    let (session, all) = pauses(&seen, began, ended);
    println!(
        "{} events; replaced in {:.1?}; longest pause of a session {session:.0?}, of all {all:.0?}",
        seen.arrivals.len(),
        ended - began
    );
    let (sessions, repeats) = seen.deduplicated();
    assert_eq!((seen.refused.len(), repeats, sessions.len()), (0, 0, 60));
    for (session, seqs) in sessions {
        assert_eq!(seqs, (1..=events).collect::<Vec<_>>(), "session {session}");
    }
    assert!(session < LONGEST_PAUSE, "{session:?}");
    for worker in new {
        assert_eq!(worker.stop().await.code(), Some(0));
    }
}
