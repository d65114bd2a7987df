//! E1 to E3: fields, states, what is refused, and what is recognised as sent before.

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::Stopped;
use lanekeeper_postgres::append::AppendError;
use lanekeeper_postgres::closing::close_session;
use lanekeeper_postgres::inbound::{NewInbound, enqueue_inbound};
use lanekeeper_postgres::maintenance;
use serde_json::{Value, json};

use super::text;
use crate::engine::bed::{Bed, LIMIT, Sub};
use crate::statements::role::Role;
use crate::support::{TestDb, wait_until};

fn sub() -> Sub {
    Sub {
        stream: "inbound",
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    }
}

async fn state(bed: &Bed, seq: i64) -> String {
    let read = "SELECT state FROM lanekeeper.inbound_message WHERE session = 's' AND seq = $1";
    bed.client.query_one(read, &[&seq]).await.unwrap().get(0)
}

async fn comes_to(bed: &Bed, seq: i64, expected: &str) {
    wait_until(LIMIT, expected, async || state(bed, seq).await == expected).await;
}

#[tokio::test]
async fn a_message_is_shown_with_all_its_fields() {
    let bed = Bed::with(&sub()).await;
    let message = NewInbound {
        message_type: "file",
        payload: Some(r#"{"path":"/srv/in/plan.pdf","caption":null}"#),
        actor_id: Some("77"),
        actor_name: Some("Ada"),
        actor_avatar_url: Some("https://example.com/ada.png"),
        source_message_id: Some("8812"),
        source_channel_id: Some("-100"),
        headers: Some(r#"{"h":"v"}"#),
        ..NewInbound::text("s", "telegram", "the plan")
    };
    let enqueued = enqueue_inbound(&bed.client, &message).await.unwrap();
    assert_eq!((enqueued.seq, enqueued.duplicate), (1, false));
    let shown =
        "SELECT to_jsonb(m) - 'created_at' - 'message_id' FROM lanekeeper.inbound_message AS m";
    let shown: Value = bed.client.query_one(shown, &[]).await.unwrap().get(0);
    let expected = json!({
        "session": "s", "seq": 1, "origin": "telegram", "message_type": "file", "content": "the plan",
        "payload": {"path": "/srv/in/plan.pdf", "caption": null},
        "actor_id": "77", "actor_name": "Ada", "actor_avatar_url": "https://example.com/ada.png",
        "source_message_id": "8812", "source_channel_id": "-100",
        "subscription": "out", "state": "pending", "message_state": "pending", "attempts": 0,
        "error": null, "settled_at": null, "typed": null,
    });
    assert_eq!(shown, expected);
    let stored = "SELECT event_type = 'file' AND headers = '{\"h\":\"v\"}' FROM lanekeeper.event";
    assert!(
        bed.client
            .query_one(stored, &[])
            .await
            .unwrap()
            .get::<_, bool>(0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_from_pending_over_processing_and_failed_to_delivered_or_expired() {
    let mut bed = Bed::with(&sub()).await;
    bed.fake = Fake::new();
    bed.fake
        .script("s", 1, [Verdict::retry("the pane is gone")]);
    bed.fake.hold("s");
    for seq in 1..=3 {
        let enqueued = text(&bed.client, "s", "hello", None).await.unwrap();
        assert_eq!(enqueued.seq, seq);
        assert_eq!(state(&bed, seq).await, "pending");
    }
    let worker = bed.worker().await;
    comes_to(&bed, 1, "processing").await;
    assert_eq!(state(&bed, 2).await, "pending");
    bed.fake.release("s");
    comes_to(&bed, 1, "failed").await;
    let failed = "SELECT attempts, error FROM lanekeeper.inbound_message WHERE seq = 1";
    let failed = bed.client.query_one(failed, &[]).await.unwrap();
    assert_eq!(
        (failed.get(0), failed.get(1)),
        (1, "the pane is gone"),
        "attempts and error"
    );
    let retry = "SELECT lanekeeper.change_lane(lane_id, 'retry') FROM lanekeeper.lane";
    bed.fake.hold("s");
    bed.client.execute(retry, &[]).await.unwrap();
    wait_until(LIMIT, "it is tried again", async || {
        bed.fake.seen().deliveries.len() == 2
    })
    .await;
    bed.fake.release("s");
    comes_to(&bed, 3, "delivered").await;
    assert_eq!(state(&bed, 1).await, "delivered");
    assert_eq!(worker.stop().await, Stopped::Clean);

    text(&bed.client, "s", "too late", None).await.unwrap();
    close_session(&bed.client, "inbound", "s", None, false)
        .await
        .unwrap();
    assert_eq!(state(&bed, 4).await, "expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_message_is_enqueued_once_whatever_became_of_the_first() {
    let bed = Bed::with(&sub()).await;
    let send = async |session: &str, id: &str| {
        let sent = text(&bed.client, session, "hello", Some(id)).await.unwrap();
        (sent.seq, sent.duplicate)
    };
    assert_eq!(send("s", "1").await, (1, false));
    assert_eq!(send("s", "1").await, (1, true), "while it is pending");
    assert_eq!(send("another", "1").await, (1, true), "to another session");
    let worker = bed.worker().await;
    comes_to(&bed, 1, "delivered").await;
    assert_eq!(worker.stop().await, Stopped::Clean);
    assert_eq!(send("s", "1").await, (1, true), "after its delivery");

    assert_eq!(send("s", "2").await, (2, false));
    close_session(&bed.client, "inbound", "s", None, false)
        .await
        .unwrap();
    assert_eq!(state(&bed, 2).await, "expired");
    assert_eq!(send("s", "2").await, (2, true), "after its expiry");
    let refused = text(&bed.client, "s", "hello", Some("3"))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, AppendError::SessionClosed(_)),
        "{refused}"
    );

    // Of another origin it is another message, and so is each without an id.
    let elsewhere = NewInbound {
        source_message_id: Some("1"),
        ..NewInbound::text("t", "discord", "hello")
    };
    let elsewhere = enqueue_inbound(&bed.client, &elsewhere).await.unwrap();
    assert!(!elsewhere.duplicate);
    for seq in 2..=3 {
        let sent = text(&bed.client, "t", "hello", None).await.unwrap();
        assert_eq!((sent.seq, sent.duplicate), (seq, false));
    }

    // For `retention.dedupe_days`.
    let forget = async |days| {
        let maintained = maintenance::run(&bed.client, 7, days, false).await;
        maintained.unwrap().keys_forgotten
    };
    let age = "UPDATE lanekeeper.dedupe SET created_at = created_at - interval '29 days'";
    bed.client.execute(age, &[]).await.unwrap();
    assert_eq!(forget(30).await, 0);
    assert_eq!(send("t", "2").await, (2, true));
    assert_eq!(forget(28).await, 3);
    assert_eq!(send("t", "2").await, (4, false));
}

#[tokio::test]
async fn a_message_whose_transaction_is_rolled_back_may_be_sent_again() {
    let bed = Bed::with(&sub()).await;
    let mut client = bed.db.connect().await;
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let transaction = client.transaction().await.unwrap();
        let set = format!("SET TRANSACTION ISOLATION LEVEL {isolation}");
        transaction.batch_execute(&set).await.unwrap();
        let message = NewInbound {
            source_message_id: Some(isolation),
            ..NewInbound::text("s", "telegram", "hello")
        };
        let sent = enqueue_inbound(&transaction, &message).await.unwrap();
        assert!(!sent.duplicate);
        transaction.rollback().await.unwrap();
        let again = enqueue_inbound(&client, &message).await.unwrap();
        assert!(!again.duplicate, "{isolation}");
    }
    assert_eq!(bed.count("SELECT max(seq) FROM lanekeeper.event").await, 3);
}

#[tokio::test]
async fn what_is_no_message_is_refused_with_its_reason_and_the_largest_one_is_taken() {
    let bed = Bed::with(&sub()).await;
    let good = NewInbound::text("s", "telegram", "hello");
    let (long, longer) = ("x".repeat(513), "x".repeat(2_049));
    // All escaped in JSON, with six characters each.
    let largest = "\u{1b}".repeat(1 << 20);
    let too_large = format!("{largest}x");
    let url = format!("https://{longer}");
    let cases = [
        ("an origin is", NewInbound { origin: "", ..good }),
        (
            "an origin is",
            NewInbound {
                origin: "Tele gram",
                ..good
            },
        ),
        (
            "an origin is",
            NewInbound {
                origin: "a:b",
                ..good
            },
        ),
        (
            "must have content",
            NewInbound {
                content: "",
                ..good
            },
        ),
        (
            "at most 1048576 bytes",
            NewInbound {
                content: &too_large,
                ..good
            },
        ),
        (
            "text, voice or file",
            NewInbound {
                message_type: "image",
                ..good
            },
        ),
        (
            "must have a payload",
            NewInbound {
                message_type: "voice",
                ..good
            },
        ),
        (
            "must have a payload",
            NewInbound {
                message_type: "file",
                payload: Some("[1]"),
                ..good
            },
        ),
        (
            "actor_id takes",
            NewInbound {
                actor_id: Some(&long),
                ..good
            },
        ),
        (
            "actor_name takes",
            NewInbound {
                actor_name: Some(&long),
                ..good
            },
        ),
        (
            "actor_avatar_url is",
            NewInbound {
                actor_avatar_url: Some("javascript:x"),
                ..good
            },
        ),
        (
            "actor_avatar_url is",
            NewInbound {
                actor_avatar_url: Some(&url),
                ..good
            },
        ),
        (
            "source_message_id takes",
            NewInbound {
                source_message_id: Some(""),
                ..good
            },
        ),
        (
            "source_message_id takes",
            NewInbound {
                source_message_id: Some(&long),
                ..good
            },
        ),
        (
            "source_channel_id takes",
            NewInbound {
                source_channel_id: Some(&long),
                ..good
            },
        ),
        (
            "session",
            NewInbound {
                session: "",
                ..good
            },
        ),
        (
            "headers",
            NewInbound {
                headers: Some("[]"),
                ..good
            },
        ),
    ];
    for (reason, message) in cases {
        let refused = enqueue_inbound(&bed.client, &message).await.unwrap_err();
        let AppendError::Invalid(said) = &refused else {
            panic!("{reason}: {refused:?}");
        };
        assert!(said.message.contains(reason), "{reason}: {}", said.message);
        assert!(said.message.contains("nothing was enqueued"), "{said:?}");
    }
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.event").await, 0);

    let message = NewInbound {
        content: &largest,
        ..good
    };
    enqueue_inbound(&bed.client, &message).await.unwrap();
    let kept = "SELECT content = repeat(chr(27), 1 << 20) FROM lanekeeper.inbound_message";
    assert!(
        bed.client
            .query_one(kept, &[])
            .await
            .unwrap()
            .get::<_, bool>(0)
    );
}

#[tokio::test]
async fn a_role_with_this_one_grant_sends_messages_and_uses_up_no_id_of_others() {
    let db = TestDb::new().await;
    let owner = db.connect().await;
    let role = Role::stranger(&db, "bot").await;
    let grant = format!(
        "GRANT USAGE ON SCHEMA lanekeeper TO {0};
         GRANT EXECUTE ON FUNCTION lanekeeper.enqueue_inbound(
             text, text, text, text, jsonb, text, text, text, text, text, jsonb) TO {0}",
        role.name
    );
    owner.batch_execute(&grant).await.unwrap();
    let bot = role.connect().await;
    assert!(!text(&bot, "s", "hello", Some("1")).await.unwrap().duplicate);
    assert!(text(&bot, "s", "hello", Some("1")).await.unwrap().duplicate);
    let own = text(&owner, "s", "hello", Some("1")).await.unwrap();
    assert!(!own.duplicate, "its keys are no other's");
    for forbidden in [
        "SELECT * FROM lanekeeper.enqueue('inbound', 's', 'text', '{}')",
        "SELECT * FROM lanekeeper.check_inbound('a', 'b', 'text', NULL, NULL, NULL, NULL, NULL, NULL)",
        "SELECT content FROM lanekeeper.inbound_message",
    ] {
        let refused = bot.query(forbidden, &[]).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{forbidden}");
    }
    let others = "SELECT lanekeeper.set_producers('inbound', '{}')";
    owner.execute(others, &[]).await.unwrap();
    let refused = text(&bot, "s", "hello", None).await.unwrap_err();
    assert!(matches!(refused, AppendError::NotAProducer(_)), "{refused}");
    drop(bot);
    role.drop_role(&db).await;
}
