//! C5: bounds and ages from the file: appends look for them only while a subscription in force refuses.

use super::*;

const STREAM: &str = "[stream.orders]\n";

fn subscription(name: &str, more: &str) -> String {
    format!("[subscription.{name}]\nstream = \"orders\"\nadapter = \"stdout\"\n{more}\n")
}

async fn bounded(client: &Client) -> bool {
    let bounded = "SELECT bounded FROM lanekeeper.stream WHERE name = 'orders'";
    client.query_one(bounded, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_stream_is_bounded_while_a_subscription_in_force_refuses() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let free = subscription("free", "");
    let steps = [
        (free.clone(), false),
        (
            free.clone() + &subscription("drops", "max_pending = 5\non_full = \"drop_oldest\""),
            false,
        ),
        (
            free.clone() + &subscription("refuses", "max_pending = 5"),
            true,
        ),
        (
            free.clone() + &subscription("refuses", "max_pending = 0"),
            false,
        ),
        (
            free.clone() + &subscription("refuses", "max_pending = 7"),
            true,
        ),
        // Removed, and back.
        (free.clone(), false),
        (free + &subscription("refuses", "max_pending = 7"), true),
    ];
    for (file, expected) in steps {
        apply(&mut client, &format!("{STREAM}{file}"), true, false).await;
        assert_eq!(bounded(&client).await, expected, "{file}");
    }
    let again = apply(
        &mut client,
        &format!("{STREAM}{}", subscription("refuses", "max_pending = 7")),
        false,
        false,
    )
    .await;
    assert!(
        kinds(&again)
            .iter()
            .all(|kind| *kind == ChangeKind::Unchanged)
    );
}

#[tokio::test]
async fn a_subscription_takes_the_bound_of_its_stream_unless_it_has_its_own() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let of = |name: &str, more: &str| {
        format!("[subscription.{name}]\nstream = \"messages\"\nadapter = \"stdout\"\n{more}\n")
    };
    let file = of("plain", "")
        + &of(
            "own",
            "max_pending = 7\nmax_age = \"5m\"\nlifecycle = [\"failed\", \"sent\", \"failed\"]",
        )
        + &of("none", "max_pending = 0\nlifecycle = [\"*\"]");
    apply(&mut client, &file, false, false).await;
    let loaded = load(&client).await.unwrap();
    let of = |name: &str| {
        let found = loaded.iter().find(|one| &*one.name == name).unwrap();
        let stages: Vec<&str> = found.lifecycle.iter().map(|stage| stage.as_str()).collect();
        (
            found.pending.max_pending,
            found.max_age.map(|age| age.as_secs()),
            stages.join(" "),
        )
    };
    assert_eq!(of("plain"), (Some(1_000), None, String::new()));
    assert_eq!(of("own"), (Some(7), Some(300), "sent failed".to_owned()));
    assert_eq!(
        of("none"),
        (
            None,
            None,
            "sent acked retried failed expired dropped".to_owned()
        )
    );
    assert_eq!(
        kinds(&apply(&mut client, &file, false, false).await),
        [ChangeKind::Unchanged; 3]
    );
}

#[tokio::test]
async fn the_streams_that_exist_from_the_start_say_how_their_events_are_delivered() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let of = |stream: &str| {
        let redis = "adapter = \"redis_stream\"\nurl_env = \"R\"\nkey = \"k\"";
        format!("[subscription.{stream}]\nstream = \"{stream}\"\n{redis}\n")
    };
    let streams = ["hooks", "inbound", "messages", "runs", "documents"];
    let file: String = streams.map(of).concat();
    apply(&mut client, &file, false, false).await;
    let found = |loaded: &[subscription::Subscription], name: &str| {
        let found = loaded.iter().find(|one| &*one.name == name).unwrap();
        let number = |key: &str| found.settings.get(key).and_then(serde_json::Value::as_u64);
        let floor = found.poll_floor.map(|floor| floor.as_millis());
        (number("timeout_ms"), number("batch"), floor)
    };
    let loaded = load(&client).await.unwrap();
    let all = streams.map(|stream| found(&loaded, stream));
    let expected = [
        (Some(30_000), Some(25), Some(1_000)),
        (Some(300_000), None, None),
        (None, Some(50), None),
        (None, Some(100), Some(200)),
        (None, None, None),
    ];
    assert_eq!(all, expected);

    // What the file says from now on, to the database and back.
    let changed = format!(
        "[stream.runs]\ntimeout = \"2s\"\nbatch = false\npoll_floor = \"5s\"\n{}",
        of("runs")
    );
    let done = apply(&mut client, &changed, false, false).await;
    assert_eq!(kinds(&done), [ChangeKind::Changed; 2]);
    let loaded = load(&client).await.unwrap();
    assert_eq!(found(&loaded, "runs"), (Some(2_000), None, Some(5_000)));
    let again = apply(&mut client, &changed, false, false).await;
    assert_eq!(kinds(&again), [ChangeKind::Unchanged; 2]);
}

#[tokio::test]
async fn a_stream_has_the_terminal_types_of_the_file_and_is_bounded_for_as_long() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let types = async |client: &Client| {
        let row = client
            .query_one(
                "SELECT terminal FROM lanekeeper.stream WHERE name = 'orders'",
                &[],
            )
            .await
            .unwrap();
        row.get::<_, Option<Vec<String>>>(0).unwrap_or_default()
    };
    let ends = "terminal = [\"done\", \"failed\"]\n";
    let refuses = subscription("refuses", "max_pending = 5");
    let steps = [
        (String::new(), vec![], false),
        (ends.to_owned(), vec!["done", "failed"], true),
        // As it is.
        (String::new(), vec!["done", "failed"], true),
        ("terminal = []\n".to_owned(), vec![], false),
        (format!("{ends}{refuses}"), vec!["done", "failed"], true),
        (format!("terminal = []\n{refuses}"), vec![], true),
        (format!("{ends}{refuses}"), vec!["done", "failed"], true),
        (String::new(), vec!["done", "failed"], true),
    ];
    for (more, expected, bound) in steps {
        apply(&mut client, &format!("{STREAM}{more}"), true, false).await;
        assert_eq!(types(&client).await, expected, "{more}");
        assert_eq!(bounded(&client).await, bound, "{more}");
    }
    let again = apply(&mut client, &format!("{STREAM}{ends}"), false, false).await;
    assert!(
        kinds(&again)
            .iter()
            .all(|kind| *kind == ChangeKind::Unchanged)
    );
}
