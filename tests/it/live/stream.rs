//! D4: a whole stream. Its cursor never skips what commits late.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use tokio_postgres::Client;

use super::client::{Follower, LIMIT};
use super::session::append;
use crate::api::site::{Answer, Site};
use crate::support::{connect, wait_until};

fn live(site: &Site, id: &str) -> RequestBuilder {
    let path = "/v1/streams/runs/live";
    site.request(Method::GET, path).header("last-event-id", id)
}

/// A producer whose transaction is open and has appended to this session.
async fn open_transaction(site: &Site, session: &str) -> Client {
    let client = connect(&site.plant.url).await;
    client.batch_execute("BEGIN").await.unwrap();
    enqueue(&client, session).await;
    client
}

async fn enqueue(client: &Client, session: &str) {
    let statement = "SELECT lanekeeper.enqueue('runs', $1, 'step', '1')";
    client.execute(statement, &[&session]).await.unwrap();
}

/// Waits until the worker, which is registered, has asked several times whether transactions from before are over.
async fn wait_until_asked_again(site: &Site) {
    let last = "SELECT max(query_start)::text FROM pg_stat_activity
                WHERE application_name LIKE 'lanekeeper follow%' AND datname = current_database()
                  AND state = 'idle' AND query LIKE '%lanekeeper.follow_is_complete(%'";
    let mut asked = BTreeSet::new();
    wait_until(LIMIT, "it goes on asking", async || {
        let row = site.plant.client.query_one(last, &[]).await.unwrap();
        asked.extend(row.get::<_, Option<String>>(0));
        asked.len() == 4
    })
    .await;
}

/// With what happens next the horizon takes the place of the list, when the worker is told of every append and unless another
/// test's transaction is open.
async fn wait_until_nothing_is_listed(site: &Site, follower: &mut Follower) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while follower.id.contains(';') {
        assert!(tokio::time::Instant::now() < deadline, "{}", follower.id);
        append(site, "r1", "step", 1).await;
        let _ = tokio::time::timeout(Duration::from_secs(1), async {
            while follower.next().await.is_some() {}
        })
        .await;
    }
}

async fn of(follower: &mut Follower, session: &str, seq: i64) {
    let got = follower.got().await;
    assert_eq!(
        (got.session(), got.seq()),
        (session, seq),
        "{}",
        follower.id
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_a_stream_gets_every_session_in_order_from_now_on() {
    let site = Site::open(&[]).await;
    append(&site, "old", "step", 2).await;
    let mut follower = Follower::open(live(&site, "")).await;
    follower.greeted().await;
    append(&site, "old", "step", 1).await;
    of(&mut follower, "old", 3).await;
    for n in 1..=20 {
        append(&site, "a", "step", 1).await;
        append(&site, "b", "step", 1).await;
        // Until the worker has registered it scans, and then two sessions have no order between them.
        let mut got = Vec::new();
        for _ in 0..2 {
            let one = follower.got().await;
            got.push((one.session().to_owned(), one.seq()));
        }
        got.sort();
        assert_eq!(got, [("a".to_owned(), n), ("b".to_owned(), n)]);
    }
    let id = follower.id.clone();
    drop(follower);
    append(&site, "c", "step", 2).await;
    append(&site, "a", "step", 1).await;
    let mut follower = Follower::open(live(&site, &id)).await;
    let mut got = Vec::new();
    for _ in 0..3 {
        let one = follower.got().await;
        got.push((one.session().to_owned(), one.seq()));
    }
    got.sort();
    let expected = [("a", 21), ("c", 1), ("c", 2)].map(|(session, seq)| (session.to_owned(), seq));
    assert_eq!(got, expected);
    follower.assert_silent(Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_commit_in_reverse_order_or_stay_open_are_not_skipped_by_the_cursor() {
    let site = Site::open(&[("LANEKEEPER_LIVE__HEARTBEAT_MS", "200")]).await;
    append(&site, "r1", "step", 1).await;
    let mut follower = Follower::open(live(&site, "")).await;
    follower.greeted().await;
    // What transactions append that began before is found when all of them are over, and one stays open here.
    let registered = "SELECT count(*) FROM lanekeeper.stream WHERE followed AND name = 'runs'";
    wait_until(LIMIT, "the worker has registered", async || {
        site.plant.count(registered).await == 1
    })
    .await;
    let first = open_transaction(&site, "late").await;
    let second = open_transaction(&site, "early").await;
    let stays = open_transaction(&site, "open").await;
    // Under a savepoint, its events have the number of a subtransaction.
    first.batch_execute("SAVEPOINT s").await.unwrap();
    enqueue(&first, "late").await;
    enqueue(&first, "under").await;
    second.batch_execute("COMMIT").await.unwrap();
    of(&mut follower, "early", 1).await;
    // Fences pass meanwhile, which must not take the cursor past what is open.
    for n in 2..=6 {
        append(&site, "early", "step", 1).await;
        of(&mut follower, "early", n).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let before = follower.id.clone();
    first.batch_execute("RELEASE s; COMMIT").await.unwrap();
    let expected = [("late", 1), ("late", 2), ("under", 1)];
    for mut resumed in [follower, Follower::open(live(&site, &before)).await] {
        let mut got = Vec::new();
        for _ in 0..3 {
            let one = resumed.got().await;
            got.push((one.session().to_owned(), one.seq()));
        }
        got.sort();
        assert_eq!(
            got,
            expected.map(|(session, seq)| (session.to_owned(), seq))
        );
        resumed.assert_silent(Duration::from_millis(500)).await;
    }
    let mut resumed = Follower::open(live(&site, &before)).await;
    stays.batch_execute("COMMIT").await.unwrap();
    let mut got = Vec::new();
    for _ in 0..4 {
        got.push(resumed.got().await.session().to_owned());
    }
    got.sort();
    assert_eq!(got, ["late", "late", "open", "under"]);
    wait_until_nothing_is_listed(&site, &mut resumed).await;
    let mut last = Follower::open(live(&site, &resumed.id)).await;
    last.assert_silent(Duration::from_millis(500)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_began_before_the_first_follower_does_not_escape_it() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    // It has read that nobody follows, and notifies nobody. In the simple protocol it has no snapshot between two statements,
    // which would be waited for as well.
    let early = open_transaction(&site, "early").await;
    let append_silently = "SELECT lanekeeper.enqueue('runs', 'r1', 'step', '1')";
    early.batch_execute(append_silently).await.unwrap();
    let mut follower = Follower::open(live(&site, "")).await;
    follower.greeted().await;
    let path = "/v1/streams/runs/sessions/r1/events/live?from=end";
    let mut of_session = Follower::open(site.request(Method::GET, path)).await;
    of_session.greeted().await;
    wait_until_asked_again(&site).await;
    early.batch_execute("COMMIT").await.unwrap();
    assert_eq!(of_session.seqs(1).await, [2]);
    let mut got = [follower.got().await, follower.got().await].map(|got| got.session().to_owned());
    got.sort();
    assert_eq!(got, ["early", "r1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streams_cursor_that_is_none_or_ahead_is_refused_and_an_old_one_is_told_to_begin_anew() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    for (id, status, code) in [
        ("5", 409, "foreign_cursor"),
        ("1.5", 409, "foreign_cursor"),
        ("w99999999.1", 409, "cursor_ahead"),
        ("wx", 422, "invalid"),
    ] {
        let answer = Answer::of(live(&site, id).send().await.unwrap()).await;
        answer.assert_problem(status, code);
    }
    let from = site.request(Method::GET, "/v1/streams/runs/live?from=1");
    Answer::of(from.send().await.unwrap())
        .await
        .assert_problem(422, "invalid");
    let mut follower = Follower::open(live(&site, "w3.100")).await;
    let got = follower.got().await;
    assert_eq!(got.name, "resync_required");
    assert!(got.data["first_day"].is_string(), "{got:?}");
    of(&mut follower, "r1", 1).await;
}

/// Else what is appended between the greeting and the first look would be taken for what was there before.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_is_not_greeted_before_what_is_there_was_passed_over() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    let holding = connect(&site.plant.url).await;
    holding
        .batch_execute("BEGIN; LOCK TABLE lanekeeper.event")
        .await
        .unwrap();
    let mut follower = Follower::open(live(&site, "")).await;
    let greeted = tokio::time::timeout(Duration::from_millis(500), follower.greeted()).await;
    assert!(greeted.is_err(), "the log cannot be read");
    holding.batch_execute("COMMIT").await.unwrap();
    follower.greeted().await;
    append(&site, "r1", "step", 1).await;
    of(&mut follower, "r1", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_does_not_notify_is_not_passed_by_the_cursor() {
    let site = Site::open(&[("LANEKEEPER_LIVE__HEARTBEAT_MS", "200")]).await;
    append(&site, "r1", "step", 1).await;
    let mut follower = Follower::open(live(&site, "")).await;
    follower.greeted().await;
    append(&site, "r1", "step", 1).await;
    of(&mut follower, "r1", 2).await;
    // Before that it scans, and finds whatever is there.
    wait_until_nothing_is_listed(&site, &mut follower).await;
    let newest = "SELECT max(e.seq) FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
                  WHERE s.name = 'r1'";
    let newest = site.plant.count(newest).await;
    let silent = connect(&site.plant.url).await;
    silent
        .batch_execute("SET lanekeeper.notify = off")
        .await
        .unwrap();
    enqueue(&silent, "silent").await;
    enqueue(&silent, "r1").await;
    append(&site, "r2", "step", 1).await;
    let mut got = Vec::new();
    for _ in 0..3 {
        let one = follower.got().await;
        got.push((one.session().to_owned(), one.seq()));
    }
    got.sort();
    let expected = [("r1", newest + 1), ("r2", 1), ("silent", 1)];
    assert_eq!(
        got,
        expected.map(|(session, seq)| (session.to_owned(), seq))
    );
}
