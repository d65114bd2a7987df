//! The output of `lanekeeper apply`, and how it fails if it cannot apply.

use serde_json::Value;

use super::{AUDIT, contents};
use crate::command::run;
use crate::support::TestDb;

#[tokio::test]
async fn the_command_prints_the_difference_for_people_and_for_scripts() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    let dry = run(&["apply", "-f", "-", "--dry-run"], &url, AUDIT).await;
    assert_eq!(
        dry.stdout, "+ audit (webhook https://example.com/…)\n",
        "{}",
        dry.stderr
    );
    assert!(
        dry.stderr.contains("dry run: nothing was changed"),
        "{}",
        dry.stderr
    );
    assert_eq!(
        run(&["apply", "-f", "-"], &url, AUDIT).await.stdout,
        dry.stdout
    );

    let changed = AUDIT.replace("max_attempts = 3", "max_attempts = 5");
    let ran = run(
        &["apply", "-f", "-", "--dry-run", "--output", "json"],
        &url,
        &changed,
    )
    .await;
    let change: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&change["name"], &change["change"]),
        (&"audit".into(), &"changed".into())
    );
    assert_eq!(change["fields"][0]["field"], "retry.max_attempts");
    let ran = run(&["apply", "-f", "-"], &url, &changed).await;
    assert_eq!(ran.stdout, "~ audit retry.max_attempts 3 → 5\n");
    assert_eq!(
        run(&["apply", "-f", "-", "--prune"], &url, "").await.stdout,
        "- audit\n"
    );
}

#[tokio::test]
async fn a_wrong_file_exits_2_with_its_place_and_changes_nothing() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let before = contents(&client).await;
    let url = [("DATABASE_URL", db.url())];
    for (text, told) in [
        (AUDIT.replace("retry ", "retries "), "did you mean retry?"),
        (
            AUDIT.replace("\"hooks\"", "\"hoks\""),
            "did you mean \"hooks\"?",
        ),
    ] {
        let ran = run(&["apply", "-f", "-"], &url, &text).await;
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("standard input:"), "{}", ran.stderr);
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
    assert_eq!(contents(&client).await, before);
}

#[tokio::test]
async fn every_way_in_which_a_database_is_not_ours_is_told_apart() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .execute(
            "INSERT INTO lanekeeper.schema_version (version, name, hash, oldest_worker) VALUES (9999, 'future', '', 9999)",
            &[],
        )
        .await
        .unwrap();
    let url = [("DATABASE_URL", db.url())];
    let newer = run(&["apply", "-f", "-"], &url, AUDIT).await;
    assert_eq!(newer.code, Some(1));
    assert!(newer.stderr.contains("has version 9999") && newer.stderr.contains("or a newer one"));

    client
        .batch_execute("DROP SCHEMA lanekeeper CASCADE")
        .await
        .unwrap();
    let bare = run(&["apply", "-f", "-"], &url, AUDIT).await;
    assert_eq!(bare.code, Some(1));
    assert!(
        bare.stderr.contains("do: run `lanekeeper migrate`"),
        "{}",
        bare.stderr
    );
    assert_eq!(run(&["migrate"], &url, "").await.code, Some(0));
    assert!(run(&["migrate"], &url, "").await.stdout.contains("already"));
    assert_eq!(run(&["apply", "-f", "-"], &url, AUDIT).await.code, Some(0));

    let missing = db.url().replace("lanekeeper_test_", "no_such_");
    let ran = run(&["apply", "-f", "-"], &[("DATABASE_URL", &missing)], AUDIT).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("has no database no_such_"),
        "{}",
        ran.stderr
    );

    let mut stranger = url::Url::parse(db.url()).unwrap();
    stranger.set_username("no_such_role").unwrap();
    let stranger = stranger.to_string();
    let ran = run(&["apply", "-f", "-"], &[("DATABASE_URL", &stranger)], AUDIT).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("does not let user no_such_role in"),
        "{}",
        ran.stderr
    );
}
