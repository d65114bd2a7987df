//! D4: one session, or a set of them: backfill, then live, and what is said where something is not there.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::client::Follower;
use crate::api::site::{Answer, Site};

pub fn live(site: &Site, session: &str, query: &str) -> RequestBuilder {
    let path = format!("/v1/streams/runs/sessions/{session}/events/live?{query}");
    site.request(Method::GET, &path)
}

pub async fn append(site: &Site, session: &str, event_type: &str, count: i64) {
    site.plant
        .client
        .execute(
            "SELECT lanekeeper.enqueue('runs', $1, $2, to_jsonb(n)) FROM generate_series(1, $3::bigint) AS n",
            &[&session, &event_type, &count],
        )
        .await
        .unwrap();
}

async fn close(site: &Site, session: &str) {
    let path = format!("/v1/sessions/runs/{session}/close");
    let answer = site
        .request(Method::POST, &path)
        .body(r#"{"reason":"done"}"#);
    assert_eq!(answer.send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_the_log_and_then_what_comes_without_a_gap_or_a_double_at_the_seam() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 700).await;
    let mut followers = Vec::new();
    for from in [1, 350, 701] {
        followers.push((
            from,
            Follower::open(live(&site, "r1", &format!("from={from}"))).await,
        ));
    }
    // While the first ones read the log.
    for _ in 0..100 {
        append(&site, "r1", "step", 3).await;
    }
    followers.push((900, Follower::open(live(&site, "r1", "from=900")).await));
    for (from, mut follower) in followers {
        let count = usize::try_from(1_000 - from + 1).unwrap();
        assert_eq!(
            follower.seqs(count).await,
            (from..=1_000).collect::<Vec<_>>()
        );
        let mut events = follower;
        events.assert_silent(Duration::from_millis(200)).await;
    }
    let mut follower = Follower::open(live(&site, "r1", "from=end")).await;
    follower.greeted().await;
    append(&site, "r1", "step", 1).await;
    let got = follower.got().await;
    assert_eq!(
        (got.seq(), got.session(), &got.data["event_type"]),
        (1_001, "r1", &json!("step"))
    );
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_was_cut_off_goes_on_behind_its_last_event_id() {
    let site = Site::open(&[("LANEKEEPER_LIVE__HEARTBEAT_MS", "100")]).await;
    append(&site, "r1", "step", 10).await;
    let mut follower = Follower::open(live(&site, "r1", "from=3")).await;
    assert_eq!(follower.seqs(4).await, [3, 4, 5, 6]);
    let id = follower.id.clone();
    drop(follower);
    append(&site, "r1", "step", 2).await;
    // As a browser does: the URL as it was, and the header.
    let mut follower =
        Follower::open(live(&site, "r1", "from=3").header("last-event-id", &id)).await;
    assert_eq!(follower.seqs(6).await, [7, 8, 9, 10, 11, 12]);
    let mut follower = Follower::open(live(&site, "r1", &format!("cursor={id}"))).await;
    assert_eq!(follower.seqs(1).await, [7]);
    // What is filtered out is passed over by the heartbeat's id.
    let mut follower = Follower::open(live(&site, "r1", "types=other")).await;
    follower.assert_silent(Duration::from_millis(1_000)).await;
    assert!(
        follower.heartbeats >= 2 && follower.id.ends_with(".12"),
        "{}",
        follower.id
    );
    append(&site, "r1", "other", 1).await;
    assert_eq!(follower.seqs(1).await, [13]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_events_are_gone_is_told_the_first_seq_that_is_there() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 20).await;
    let gone = "DELETE FROM lanekeeper.event WHERE seq < 10";
    site.plant.client.batch_execute(gone).await.unwrap();
    let mut follower = Follower::open(live(&site, "r1", "from=4")).await;
    let got = follower.got().await;
    assert_eq!(got.name, "resync_required");
    assert_eq!(
        (&got.data["requested_seq"], &got.data["first_seq"]),
        (&json!(4), &json!(10))
    );
    assert_eq!(follower.seqs(2).await, [10, 11]);
    // Nobody asked for a number: what is there is all.
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    assert_eq!(follower.seqs(1).await, [10]);
    // All of it is gone, as when retention dropped its last day.
    site.plant
        .client
        .batch_execute(
            "INSERT INTO lanekeeper.session_tail (session_id, seq) SELECT session_id, max(seq) FROM lanekeeper.event GROUP BY 1;
             DELETE FROM lanekeeper.event",
        )
        .await
        .unwrap();
    let mut follower = Follower::open(live(&site, "r1", "from=4")).await;
    let got = follower.got().await;
    assert_eq!(
        (got.name.as_str(), &got.data["first_seq"]),
        ("resync_required", &json!(21))
    );
    append(&site, "r1", "step", 1).await;
    assert_eq!(follower.seqs(1).await, [21]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_closed_session_is_said_once_and_a_browser_that_comes_back_is_told_to_stay_away()
 {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 3).await;
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    assert_eq!(follower.seqs(3).await, [1, 2, 3]);
    close(&site, "r1").await;
    let got = follower.got().await;
    assert_eq!(got.name, "end");
    assert_eq!(
        got.data,
        json!({"type": "end", "session": "r1", "closed_seq": 3, "reason": "done"})
    );
    assert_eq!(follower.next().await, None);
    let back = live(&site, "r1", "").header("last-event-id", &follower.id);
    assert_eq!(back.send().await.unwrap().status(), 204);
    // Whoever begins gets all, and then the end.
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    assert_eq!(follower.seqs(3).await, [1, 2, 3]);
    assert_eq!(follower.got().await.name, "end");
    assert_eq!(follower.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_the_terminal_event_of_a_run_and_then_its_end() {
    let site = Site::open(&[]).await;
    let terminal = "UPDATE lanekeeper.stream SET bounded = true, terminal = '{run_completed}' WHERE name = 'runs'";
    site.plant.client.batch_execute(terminal).await.unwrap();
    append(&site, "r1", "step", 2).await;
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    assert_eq!(follower.seqs(2).await, [1, 2]);
    append(&site, "r1", "run_completed", 1).await;
    let got = follower.got().await;
    assert_eq!(
        (got.seq(), &got.data["event_type"]),
        (3, &json!("run_completed"))
    );
    let got = follower.got().await;
    assert_eq!(got.name, "end");
    assert_eq!(
        got.data,
        json!({"type": "end", "session": "r1", "closed_seq": 3, "reason": "ended by run_completed"})
    );
    assert_eq!(follower.next().await, None);
    site.post("r1", r#"{"event_type":"step","payload":1}"#)
        .await
        .assert_problem(409, "session_closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_that_cannot_be_are_refused_with_their_reason() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 3).await;
    append(&site, "r2", "step", 3).await;
    let mut other = Follower::open(live(&site, "r2", "")).await;
    other.seqs(2).await;
    for (query, id, status, code) in [
        ("from=5", "", 409, "cursor_ahead"),
        ("", "99", 409, "cursor_ahead"),
        ("", other.id.as_str(), 409, "foreign_cursor"),
        ("", "w1.2", 409, "foreign_cursor"),
        ("", "what", 422, "invalid"),
        ("from=0", "", 422, "invalid"),
        ("form=1", "", 422, "invalid"),
        ("session=r1", "", 422, "invalid"),
        ("cursor=1&cursor=2", "", 422, "invalid"),
    ] {
        let request = live(&site, "r1", query).header("last-event-id", id);
        let answer = Answer::of(request.send().await.unwrap()).await;
        answer.assert_problem(status, code);
    }
    for path in [
        "/v1/streams/none/sessions/r1/events/live",
        "/v1/streams/runs/sessions/none/events/live",
    ] {
        let answer = site.request(Method::GET, path).send().await.unwrap();
        Answer::of(answer).await.assert_problem(404, "not_found");
    }
    let wrong = site.request(Method::POST, "/v1/streams/runs/sessions/r1/events/live");
    Answer::of(wrong.send().await.unwrap())
        .await
        .assert_problem(405, "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_of_sessions_is_followed_by_one_cursor_and_a_session_that_is_not_there_is_waited_for()
{
    let site = Site::open(&[]).await;
    append(&site, "a", "step", 2).await;
    append(&site, "x", "step", 2).await;
    let set = |id: &str| {
        let path = "/v1/streams/runs/live?session=a,b";
        site.request(Method::GET, path).header("last-event-id", id)
    };
    let mut follower = Follower::open(set("")).await;
    assert_eq!(follower.seqs(2).await, [1, 2]);
    append(&site, "x", "step", 1).await;
    append(&site, "b", "step", 2).await;
    for seq in [1, 2] {
        let got = follower.got().await;
        assert_eq!((got.session(), got.seq()), ("b", seq));
    }
    let id = follower.id.clone();
    append(&site, "a", "step", 1).await;
    let got = follower.got().await;
    assert_eq!((got.session(), got.seq()), ("a", 3));
    let mut again = Follower::open(set(&id)).await;
    let got = again.got().await;
    assert_eq!((got.session(), got.seq()), ("a", 3));
    again.assert_silent(Duration::from_millis(200)).await;
    // It ends with the last of them.
    close(&site, "a").await;
    assert_eq!(again.got().await.data["session"], "a");
    append(&site, "b", "step", 1).await;
    assert_eq!(again.got().await.seq(), 3);
    close(&site, "b").await;
    assert_eq!(again.got().await.data["session"], "b");
    assert_eq!(again.next().await, None);
    let back = set(&again.id).send().await.unwrap();
    assert_eq!(back.status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_come_whole_and_in_order() {
    let site = Site::open(&[("LANEKEEPER_LIVE__BUFFER_BYTES", "1048576")]).await;
    append(&site, "r1", "step", 1).await;
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    follower.seqs(1).await;
    let large = "SELECT e.seq FROM generate_series(1, 4) AS n,
         LATERAL lanekeeper.enqueue('runs', 'r1', 'step', to_jsonb(repeat(n::text, 900000))) AS e";
    site.plant.client.batch_execute(large).await.unwrap();
    append(&site, "r1", "step", 1).await;
    for n in 1..=4 {
        let got = follower.got().await;
        assert_eq!(
            (got.seq(), got.data["payload"].as_str().unwrap().len()),
            (n + 1, 900_000)
        );
    }
    assert_eq!(follower.seqs(1).await, [6]);
    let mut follower = Follower::open(live(&site, "r1", "from=2")).await;
    assert_eq!(follower.seqs(5).await, [2, 3, 4, 5, 6]);
}
