//! H10: `hook`, `spool` and `enqueue` with a worker's URL instead of a database.

use reqwest::Method;
use tempfile::tempdir;

use super::site::Site;
use crate::command::run;

const CALL: &str =
    r#"{"hook_event_name":"Stop","session_id":"s-1","cwd":"/w","stop_hook_active":false}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_call_goes_to_the_worker_or_waits_in_the_spool_until_there_is_one() {
    let site = Site::open(&[]).await;
    let token = site.token(&["laptop", "--scope", "produce"]).await;
    let spool = tempdir().unwrap();
    let folder = spool.path().to_str().unwrap();
    let hook = ["hook", "--cli", "claude-code"];
    let at = async |url: &str, arguments: &[&str], input: &str| {
        let variables = [
            ("LANEKEEPER_URL", url),
            ("LANEKEEPER_TOKEN", &token),
            ("LANEKEEPER_SPOOL__DIR", folder),
            // Enough for a loaded machine.
            ("LANEKEEPER_HOOK__TIMEOUT_MS", "5000"),
        ];
        run(arguments, &variables, input).await
    };
    let http = site.worker.http();
    let stored = at(&http, &hook, CALL).await;
    assert_eq!((stored.code, stored.stderr.as_str()), (Some(0), ""));
    assert_eq!(site.logged_events().await, 1);

    let nobody = "http://127.0.0.1:9";
    for _ in 0..3 {
        let kept = at(nobody, &hook, CALL).await;
        assert_eq!(kept.code, Some(0));
        assert!(kept.stderr.contains("kept in the spool"), "{}", kept.stderr);
        assert!(
            !kept.stderr.contains(&token) && !kept.stderr.contains("127.0.0.1"),
            "{}",
            kept.stderr
        );
    }
    let sent = at(&http, &["spool"], "").await;
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert!(
        sent.stdout.starts_with("3 events of 1 sessions sent"),
        "{}",
        sent.stdout
    );
    assert_eq!(site.logged_events().await, 4);
    // All of one session, in their order.
    let sessions = "SELECT count(DISTINCT session_id) FROM lanekeeper.event";
    assert_eq!(site.plant.count(sessions).await, 1);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_sends_to_the_worker_and_says_what_it_answered() {
    let site = Site::open(&[]).await;
    let token = site.token(&["laptop", "--scope", "produce"]).await;
    let http = site.worker.http();
    let enqueue = async |token: &str, arguments: &[&str]| {
        let arguments = [&["enqueue"], arguments].concat();
        run(
            &arguments,
            &[("LANEKEEPER_URL", &http), ("LANEKEEPER_TOKEN", token)],
            "",
        )
        .await
    };
    let event = [
        "runs",
        "run 7/ü",
        "step_done",
        "--payload",
        "{\"n\":1}",
        "--dedupe-key",
        "k",
    ];
    let sent = enqueue(&token, &event).await;
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert!(
        sent.stdout.starts_with("enqueued as seq 1, message "),
        "{}",
        sent.stdout
    );
    let again = enqueue(&token, &event).await;
    assert!(
        again.stdout.starts_with("duplicate of seq 1"),
        "{}",
        again.stdout
    );
    let read = site.events(Method::GET, "runs", "run%207%2F%C3%BC");
    let reader = site.token(&["reader", "--scope", "read"]).await;
    assert_eq!(read.bearer_auth(reader).send().await.unwrap().status(), 200);

    let unknown = enqueue(&token, &["nowhere", "s", "t", "--payload", "1"]).await;
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("nowhere"), "{}", unknown.stderr);
    let forged = token[..token.len() - 4].to_owned() + "0000";
    let refused = enqueue(&forged, &event).await;
    assert_eq!(refused.code, Some(75), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("not valid here") && !refused.stderr.contains(&forged),
        "{}",
        refused.stderr
    );
    assert!(site.worker.stop().await.success());
}
