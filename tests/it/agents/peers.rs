//! C3: ACK frames acknowledge what was sent to the peer that they come from, and nothing else.

use lanekeeper_core::frame;
use serde_json::json;
use uuid::Uuid;

use super::inbox::post;
use crate::api::site::Site;

/// Messages of subscriptions of the adapter `agent` that were sent: to the peers alice and bob.
async fn sent(site: &Site) -> [Uuid; 2] {
    let client = &site.plant.client;
    client
        .batch_execute(
            "INSERT INTO lanekeeper.stream (name) VALUES ('out');
             WITH t AS (
                 UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1 WHERE name = 'out' RETURNING stream_id)
             INSERT INTO lanekeeper.subscription (stream_id, name, adapter, settings, retry_schedule_ms, max_attempts,
                                                  on_exhausted, coalesce, ack, paused_at, pause_reason)
             SELECT t.stream_id, 'to_' || p, 'agent',
                    jsonb_build_object('url', 'http://127.0.0.1:9/', 'peer', p), '{1000}', 0, 'dead_letter', false,
                    'required', now(), 'a test'
             FROM t, unnest(ARRAY['alice', 'bob']) AS p",
        )
        .await
        .unwrap();
    let append = "SELECT message_id FROM lanekeeper.enqueue('out', 's', 'ask', '1')";
    let ids = [
        client.query_one(append, &[]).await.unwrap().get(0),
        client.query_one(append, &[]).await.unwrap().get(0),
    ];
    for (id, name) in [(ids[0], "to_alice"), (ids[1], "to_bob")] {
        let enter = "INSERT INTO lanekeeper.sent (message_id, lane_id, seq)
                     SELECT e.message_id, l.lane_id, e.seq FROM lanekeeper.event AS e
                     JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
                     JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
                     WHERE e.message_id = $1 AND s.name = $2";
        assert_eq!(client.execute(enter, &[&id, &name]).await.unwrap(), 1);
    }
    ids
}

async fn acked(site: &Site) -> i64 {
    site.plant
        .count("SELECT count(*) FROM lanekeeper.sent WHERE acked_at IS NOT NULL")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_acknowledges_what_it_was_sent_and_nobody_elses() {
    let site = Site::open(&[]).await;
    let [to_alice, to_bob] = sent(&site).await;
    let alice = site.token(&["alice", "--scope", "produce"]).await;
    let stranger = site.token(&["stranger", "--scope", "produce"]).await;
    let ack = async |token: &str, ids: &[Uuid]| {
        let body = String::from_utf8(frame::ack(ids)).unwrap();
        let answer = post(&site, "runs", token, body).await;
        // An ACK needs no ACK.
        let expected = json!({"v": 1, "type": "ACK", "ids": [], "accepted": 1});
        assert_eq!((answer.status, answer.body), (200, expected));
    };
    ack(&stranger, &[to_alice, to_bob]).await;
    assert_eq!(acked(&site).await, 0);
    // Another consumer's message, an unknown one, and none at all.
    ack(&alice, &[to_bob, Uuid::now_v7()]).await;
    ack(&alice, &[]).await;
    assert_eq!(acked(&site).await, 0);
    for _ in 0..2 {
        ack(&alice, &[to_alice, to_bob]).await;
        assert_eq!(acked(&site).await, 1);
    }
    ack(&alice, &vec![Uuid::nil(); frame::MOST_IDS]).await;
    assert_eq!(
        site.plant
            .count("SELECT count(*) FROM lanekeeper.event")
            .await,
        2
    );
}
