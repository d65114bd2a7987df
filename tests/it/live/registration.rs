//! D4: what followers cost producers and the database: nothing where nobody follows, and nothing while nothing happens.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::Client;

use super::client::Follower;
use super::session::{append, live};
use crate::api::site::Site;
use crate::process::plant::LIMIT;
use crate::support::{connect, wait_until};

async fn is_followed(site: &Site) -> bool {
    let followed = "SELECT count(*) FROM lanekeeper.stream WHERE followed AND name = 'runs'";
    site.plant.count(followed).await == 1
}

/// Advisory locks that an append of one event holds.
async fn locks_of_append(client: &Client) -> i64 {
    client
        .batch_execute("BEGIN; SELECT lanekeeper.enqueue('runs', 'r1', 'step', '1')")
        .await
        .unwrap();
    let locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
                 AND objid::bigint | (classid::bigint << 32) = lanekeeper.follow_lock((SELECT stream_id FROM lanekeeper.stream WHERE name = 'runs'))";
    let held = client.query_one(locks, &[]).await.unwrap().get(0);
    client.batch_execute("ROLLBACK").await.unwrap();
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn only_appends_to_a_followed_stream_probe_for_followers_and_a_dead_worker_is_no_follower() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    let producer = connect(&site.plant.url).await;
    assert_eq!(locks_of_append(&producer).await, 0);
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    follower.seqs(1).await;
    wait_until(LIMIT, "the stream is followed", async || {
        is_followed(&site).await
    })
    .await;
    wait_until(LIMIT, "its lock is held", async || {
        locks_of_append(&producer).await == 0
    })
    .await;
    append(&site, "r1", "step", 1).await;
    assert_eq!(follower.seqs(1).await, [2]);
    // The flag outlives the worker, and its lock does not: a producer gets it, and notifies nobody.
    site.worker.kill().await;
    wait_until(LIMIT, "the lock is free", async || {
        locks_of_append(&producer).await == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nothing_happens_followers_ask_nothing_of_the_database() {
    let site = Site::open(&[("LANEKEEPER_LIVE__HEARTBEAT_MS", "100")]).await;
    append(&site, "r1", "step", 1).await;
    let mut followers = Vec::new();
    for _ in 0..20 {
        followers.push(Follower::open(live(&site, "r1", "")).await);
    }
    let mut whole =
        Follower::open(site.request(reqwest::Method::GET, "/v1/streams/runs/live")).await;
    whole.greeted().await;
    for follower in &mut followers {
        follower.seqs(1).await;
    }
    append(&site, "r1", "step", 1).await;
    for follower in &mut followers {
        follower.seqs(1).await;
    }
    let asked = async || {
        // The listening connection's last statement, and those of the connections that read the log for followers.
        let last = "SELECT coalesce(max(query_start)::text, '') FROM pg_stat_activity
             WHERE (application_name LIKE 'lanekeeper follow%' OR query LIKE '-- Purpose: the next events of several%')
               AND datname = current_database() AND pid <> pg_backend_pid()";
        let row = site.plant.client.query_one(last, &[]).await.unwrap();
        row.get::<_, String>(0)
    };
    // Until the registration is complete and the last fence has passed.
    let mut before = asked().await;
    wait_until(LIMIT, "it is quiet", async || {
        sleep(Duration::from_millis(2_500)).await;
        let quiet = asked().await == before;
        before = asked().await;
        quiet
    })
    .await;
    let heartbeats: usize = followers.iter().map(|follower| follower.heartbeats).sum();
    followers[0].assert_silent(Duration::from_secs(4)).await;
    assert!(followers[0].heartbeats >= heartbeats / 20 + 10);
    assert_eq!(asked().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_of_many_sessions_reaches_all_of_their_followers() {
    let site = Site::open(&[]).await;
    site.plant.enqueue("s", 700, 1).await;
    let mut followers = Vec::new();
    for n in [1, 350, 700] {
        let mut follower = Follower::open(live(&site, &format!("s{n}"), "")).await;
        follower.seqs(1).await;
        followers.push(follower);
    }
    wait_until(LIMIT, "the stream is followed", async || {
        is_followed(&site).await
    })
    .await;
    for n in 2..=6 {
        site.plant.enqueue("s", 700, 1).await;
        for follower in &mut followers {
            assert_eq!(follower.seqs(1).await, [n]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_go_on_when_the_listening_connection_was_cut() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    follower.seqs(1).await;
    let mut whole =
        Follower::open(site.request(reqwest::Method::GET, "/v1/streams/runs/live")).await;
    whole.greeted().await;
    for n in 0..5_i64 {
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'lanekeeper follow%' AND datname = current_database()";
        site.plant.client.execute(cut, &[]).await.unwrap();
        append(&site, "r1", "step", 2).await;
        assert_eq!(follower.seqs(2).await, [2 * n + 2, 2 * n + 3]);
        assert_eq!(whole.seqs(2).await, [2 * n + 2, 2 * n + 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_of_strangers_do_no_harm() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    let mut whole =
        Follower::open(site.request(reqwest::Method::GET, "/v1/streams/runs/live")).await;
    whole.greeted().await;
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    follower.seqs(1).await;
    for payload in [
        "",
        "x",
        "fence 1",
        "token 1",
        "1 999999999",
        "1 ,,",
        "999 1",
        "1 1,2,3,4,5,6",
    ] {
        let notify = format!("NOTIFY lanekeeper_follow, '{payload}'");
        site.plant.client.batch_execute(&notify).await.unwrap();
    }
    append(&site, "r1", "step", 1).await;
    assert_eq!(follower.seqs(1).await, [2]);
    assert_eq!(whole.seqs(1).await, [2]);
}
