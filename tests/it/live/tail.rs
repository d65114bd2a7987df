//! D4: `lanekeeper tail --follow` through a worker's HTTP API.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use super::client::LIMIT;
use super::session::append;
use crate::api::site::Site;
use crate::command::{command, run};

#[tokio::test(flavor = "multi_thread")]
async fn tail_follows_through_a_worker_until_the_session_is_closed() {
    let site = Site::open(&[]).await;
    append(&site, "r 1", "step", 3).await;
    let token = site.token(&["t", "--scope", "read"]).await;
    let url = site.worker.http();
    let variables = [
        ("LANEKEEPER_URL", url.as_str()),
        ("LANEKEEPER_TOKEN", token.as_str()),
    ];
    let arguments = [
        "tail", "runs", "r 1", "--follow", "--from", "2", "--output", "json",
    ];
    let mut tail = command(&arguments, &variables)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    for seq in 2..=5 {
        let line = timeout(LIMIT, lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&event["seq"], &event["session"]),
            (&seq.into(), &"r 1".into())
        );
        if seq == 3 {
            append(&site, "r 1", "step", 2).await;
        }
    }
    let close = "SELECT lanekeeper.close_session('runs', 'r 1')";
    site.plant.client.batch_execute(close).await.unwrap();
    let ended = timeout(LIMIT, tail.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
    let text = run(&["tail", "runs", "r 1", "--follow"], &variables, "").await;
    assert_eq!(
        (text.code, text.stdout.lines().count()),
        (Some(0), 5),
        "{}",
        text.stderr
    );
    for (arguments, said) in [
        (["tail", "runs", "r 1"].as_slice(), "needs a database"),
        (&["tail", "runs", "none", "--follow"], "has no session"),
    ] {
        let ran = run(arguments, &variables, "").await;
        assert_ne!(ran.code, Some(0));
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}
