//! C3: acknowledging over HTTP, and by command.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::site::{Answer, Site};
use crate::command::run;

/// Messages that were sent and wait: entered as a worker does it.
async fn sent(site: &Site, session: &str, count: i64) -> Vec<Uuid> {
    let client = crate::support::connect(&site.plant.url).await;
    let mut messages = Vec::new();
    for _ in 0..count {
        let append = "SELECT message_id FROM lanekeeper.enqueue('runs', $1, 'step', '1')";
        let row = client.query_one(append, &[&session]).await.unwrap();
        messages.push(row.get(0));
    }
    let enter = "INSERT INTO lanekeeper.sent (message_id, lane_id, seq)
                 SELECT e.message_id, l.lane_id, e.seq FROM lanekeeper.event AS e
                 JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
                 WHERE e.message_id = ANY ($1)";
    assert!(client.execute(enter, &[&messages]).await.unwrap() > 0);
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_acknowledge_over_http_and_on_the_command_line() {
    let site = Site::open(&[]).await;
    let messages = sent(&site, "s", 4).await;
    let token = site.token(&["consumer", "--scope", "produce"]).await;
    let other = site
        .token(&["other", "--scope", "produce", "--stream", "hooks"])
        .await;
    let reader = site.token(&["board", "--scope", "read"]).await;
    let ask = async |token: &str, path: &str, body: &str| {
        let request = site.request(Method::POST, path).bearer_auth(token);
        Answer::of(request.body(body.to_owned()).send().await.unwrap()).await
    };
    let one = format!("/v1/acks/{}", messages[0]);
    ask(&reader, &one, "")
        .await
        .assert_problem(403, "forbidden");
    let elsewhere = ask(&other, &one, "").await;
    assert_eq!(elsewhere.body["result"], "unknown", "of another stream");
    for result in ["acked", "already_acked"] {
        let answer = ask(&token, &one, "").await;
        let expected = json!({"message_id": messages[0], "result": result});
        assert_eq!((answer.status, answer.body), (200, expected));
    }
    let many = json!([messages[1], Uuid::nil(), messages[0]]).to_string();
    let answer = ask(&token, "/v1/acks", &many).await;
    let results: Vec<&Value> = answer
        .body
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["result"])
        .collect();
    assert_eq!(results, ["acked", "unknown", "already_acked"]);
    let of_none = format!("/v1/acks/{}?subscription=none", messages[2]);
    assert_eq!(ask(&token, &of_none, "").await.body["result"], "unknown");
    for (path, body) in [
        ("/v1/acks/x", ""),
        ("/v1/acks", ""),
        ("/v1/acks", "{}"),
        ("/v1/acks", "[1]"),
        ("/v1/acks?why=x", "[]"),
    ] {
        ask(&token, path, body).await.assert_problem(422, "invalid");
    }
    let too_many = json!(vec![Uuid::nil(); 1_001]).to_string();
    ask(&token, "/v1/acks", &too_many)
        .await
        .assert_problem(422, "invalid");

    let id = messages[3].to_string();
    let acked = run(&["ack", &id], &[("DATABASE_URL", &site.plant.url)], "").await;
    assert_eq!(
        (acked.code, acked.stdout),
        (Some(0), format!("{id}: acked\n"))
    );
}
