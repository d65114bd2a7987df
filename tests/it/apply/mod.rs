//! `lanekeeper apply` against a real database.

mod bounds;
mod command;
mod open_transactions;

use lanekeeper_core::subscription::ChangeKind;
use lanekeeper_postgres::operate;
use lanekeeper_postgres::subscription::{self, Applied, load};
use lanekeeper_subscription::SubscriptionFile;
use serde_json::Value;
use tokio_postgres::Client;

use crate::command::run;
use crate::support::TestDb;

const AUDIT: &str = r#"
[subscription.audit]
stream  = "hooks"
adapter = "webhook"
url     = "https://example.com/hooks"
retry   = { max_attempts = 3 }
"#;

async fn apply(client: &mut Client, text: &str, prune: bool, dry_run: bool) -> Applied {
    let file = SubscriptionFile::parse(text, "test.toml").unwrap();
    subscription::apply(client, dry_run, |current| file.plan(current, prune))
        .await
        .unwrap()
}

fn kinds(applied: &Applied) -> Vec<ChangeKind> {
    applied.changes.iter().map(|change| change.change).collect()
}

/// Everything that an apply may write, as text.
async fn contents(client: &Client) -> String {
    let row = client
        .query_one(
            "SELECT json_build_array(
                 (SELECT json_agg(s ORDER BY s.stream_id) FROM lanekeeper.stream AS s),
                 (SELECT json_agg(s ORDER BY s.subscription_id) FROM lanekeeper.subscription AS s),
                 (SELECT json_agg(v ORDER BY v.subscription_id, v.version)
                  FROM lanekeeper.subscription_version AS v),
                 (SELECT json_agg(r ORDER BY r.id) FROM lanekeeper.ready AS r)
             )::text",
            &[],
        )
        .await
        .unwrap();
    row.get(0)
}

async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

async fn enqueue(client: &Client, session: &str, event_type: &str) {
    client
        .execute(
            "SELECT * FROM lanekeeper.enqueue('hooks', $1, $2, '{}')",
            &[&session, &event_type],
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn applying_twice_changes_nothing_the_second_time() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    assert_eq!(
        kinds(&apply(&mut client, AUDIT, true, false).await),
        [ChangeKind::Created]
    );
    let before = contents(&client).await;
    assert_eq!(
        kinds(&apply(&mut client, AUDIT, true, false).await),
        [ChangeKind::Unchanged]
    );
    assert_eq!(contents(&client).await, before);

    let loaded = load(&client).await.unwrap();
    assert_eq!(
        (&*loaded[0].name, &*loaded[0].stream, loaded[0].version),
        ("audit", "hooks", 1)
    );
    assert_eq!(loaded[0].max_attempts, 3);
    assert_eq!(loaded[0].retry_schedule.len(), 7, "the stream's schedule");
    assert!(loaded[0].coalesce);
}

#[tokio::test]
async fn a_dry_run_tells_the_difference_and_writes_nothing() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    apply(&mut client, AUDIT, false, false).await;
    let before = contents(&client).await;
    let changed = format!(
        "{}\n[stream.mine]",
        AUDIT.replace("max_attempts = 3", "max_attempts = 5")
    );
    let told = apply(&mut client, &changed, true, true).await;
    assert_eq!(kinds(&told), [ChangeKind::Created, ChangeKind::Changed]);
    assert_eq!(contents(&client).await, before);

    let done = apply(&mut client, &changed, true, false).await;
    assert_eq!(done.changes, told.changes);
    assert_ne!(contents(&client).await, before);
}

#[tokio::test]
async fn a_change_is_on_record_with_its_version_and_a_removal_too() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    apply(&mut client, AUDIT, false, false).await;
    apply(&mut client, &AUDIT.replace("3", "5"), false, false).await;
    assert_eq!(
        apply(&mut client, "", false, false).await.unlisted,
        ["audit"]
    );
    assert!(!load(&client).await.unwrap()[0].removed);
    apply(&mut client, "", true, false).await;
    assert!(load(&client).await.unwrap()[0].removed);

    let rows = client
        .query(
            "SELECT version, definition FROM lanekeeper.subscription_version ORDER BY version",
            &[],
        )
        .await
        .unwrap();
    let versions: Vec<(i64, Value)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let attempts = |index: usize| &versions[index].1["retry"]["max_attempts"];
    assert_eq!(
        versions
            .iter()
            .map(|(version, _)| *version)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(
        (attempts(0), attempts(1)),
        (&Value::from(3), &Value::from(5))
    );
    assert_eq!(versions[2].1["removed"], true);
}

#[tokio::test]
async fn of_two_applies_at_once_the_second_sees_what_the_first_did() {
    let db = TestDb::new().await;
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    let (one, two) = tokio::join!(
        apply(&mut one, AUDIT, false, false),
        apply(&mut two, AUDIT, false, false)
    );
    let mut both = [kinds(&one), kinds(&two)].concat();
    both.sort_by_key(|kind| *kind == ChangeKind::Unchanged);
    assert_eq!(both, [ChangeKind::Created, ChangeKind::Unchanged]);
    let client = db.connect().await;
    assert_eq!(
        number(
            &client,
            "SELECT count(*) FROM lanekeeper.subscription_version"
        )
        .await,
        1
    );
}

#[tokio::test]
async fn a_new_subscription_makes_appends_look_for_missing_lanes() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    enqueue(&client, "s", "agent_stop").await;
    apply(&mut client, AUDIT, false, false).await;
    enqueue(&client, "s", "agent_stop").await;
    assert_eq!(
        number(&client, "SELECT count(*) FROM lanekeeper.lane").await,
        1
    );
    assert_eq!(
        number(&client, "SELECT cursor FROM lanekeeper.progress").await,
        1
    );
}

#[tokio::test]
async fn a_subscription_that_is_applied_again_gets_ready_entries_for_events_that_came_meanwhile() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    apply(&mut client, AUDIT, false, false).await;
    enqueue(&client, "s", "agent_stop").await;
    apply(&mut client, "", true, false).await;
    client
        .execute("DELETE FROM lanekeeper.ready", &[])
        .await
        .unwrap();
    enqueue(&client, "s", "agent_stop").await;
    assert_eq!(
        number(&client, "SELECT count(*) FROM lanekeeper.ready").await,
        0
    );

    let applied = apply(&mut client, AUDIT, false, false).await;
    assert_eq!(kinds(&applied), [ChangeKind::Revived]);
    assert_eq!(
        number(&client, "SELECT count(*) FROM lanekeeper.ready").await,
        1
    );
    assert_eq!(
        number(&client, "SELECT count(*) FROM lanekeeper.subscription").await,
        1
    );
}

#[tokio::test]
async fn a_wider_filter_wakes_lanes_whose_events_were_filtered_before() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let narrow = format!("{AUDIT}events = [\"agent_stop\"]");
    apply(&mut client, &narrow, false, false).await;
    enqueue(&client, "s", "notification").await;
    client
        .execute("DELETE FROM lanekeeper.ready", &[])
        .await
        .unwrap();

    apply(
        &mut client,
        &narrow.replace("agent_stop", "notification"),
        false,
        false,
    )
    .await;
    assert_eq!(
        number(&client, "SELECT count(*) FROM lanekeeper.ready").await,
        1
    );
}

#[tokio::test]
async fn a_first_filter_is_asked_by_the_next_append_to_lanes_that_had_none() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let all = AUDIT.replace("hooks", "runs");
    apply(&mut client, &all, false, false).await;
    let append = |kind| format!("SELECT lanekeeper.enqueue('runs', 's', '{kind}', '1')");
    client.batch_execute(&append("wanted")).await.unwrap();
    let plain = "SELECT count(*) FROM lanekeeper.lane AS l WHERE l.plain";
    assert_eq!(number(&client, plain).await, 1);
    let narrow = format!("{all}events = [\"wanted\"]");
    apply(&mut client, &narrow, false, false).await;
    assert_eq!(number(&client, plain).await, 0);
    client
        .batch_execute(
            "UPDATE lanekeeper.progress SET cursor = 1;
             DELETE FROM lanekeeper.ready",
        )
        .await
        .unwrap();
    let tokens = "SELECT count(*) FROM lanekeeper.ready";
    client.batch_execute(&append("other")).await.unwrap();
    assert_eq!(number(&client, tokens).await, 0);
    client.batch_execute(&append("wanted")).await.unwrap();
    assert_eq!(number(&client, tokens).await, 1);
}

#[tokio::test]
async fn an_interrupted_backfill_is_offered_again_until_every_session_has_its_lane() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    for session in ["a", "b", "c"] {
        enqueue(&client, session, "agent_stop").await;
    }
    let earliest = format!("{AUDIT}start = \"earliest\"");
    for _ in 0..2 {
        let applied = apply(&mut client, &earliest, false, false).await;
        assert_eq!(applied.backfills.len(), 1, "nobody has added the lanes yet");
    }
    let url = [("DATABASE_URL", db.url())];
    let ran = run(&["apply", "-f", "-"], &url, &earliest).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let from_the_start =
        "SELECT count(*) FROM lanekeeper.lane JOIN lanekeeper.progress USING (lane_id)
                          JOIN lanekeeper.ready USING (lane_id) WHERE cursor = 0";
    assert_eq!(number(&client, from_the_start).await, 3);
    assert_eq!(
        apply(&mut client, &earliest, false, false)
            .await
            .backfills
            .len(),
        0
    );
}

#[tokio::test]
async fn workers_are_notified_of_a_change_and_of_nothing_else() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let (listener, mut connection) = db
        .url()
        .parse::<tokio_postgres::Config>()
        .unwrap()
        .connect(tokio_postgres::NoTls)
        .await
        .unwrap();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let tokio_postgres::AsyncMessage::Notification(notification) = message {
                told.send(notification.channel().to_owned()).unwrap();
            }
        }
    });
    listener
        .batch_execute("LISTEN lanekeeper; LISTEN last")
        .await
        .unwrap();
    for _ in 0..2 {
        apply(&mut client, AUDIT, false, false).await;
    }
    client.batch_execute("NOTIFY last").await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), "lanekeeper");
    assert_eq!(heard.recv().await.unwrap(), "last");
}

#[tokio::test]
async fn a_paused_subscription_stays_paused_through_a_change() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    apply(&mut client, AUDIT, false, false).await;
    assert!(
        operate::pause_subscription(&client, "audit", "410")
            .await
            .unwrap()
    );
    assert!(
        !operate::pause_subscription(&client, "audit", "410")
            .await
            .unwrap()
    );
    apply(&mut client, &AUDIT.replace("3", "5"), false, false).await;
    assert!(load(&client).await.unwrap()[0].paused);
}
