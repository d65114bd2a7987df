//! E9: interrupts and cancellations over HTTP.

use reqwest::Method;
use serde_json::json;

use super::site::{Answer, Site};

async fn ask(site: &Site, path: &str, token: &str, body: &str) -> Answer {
    let request = site.request(Method::POST, path).bearer_auth(token);
    Answer::of(request.body(body.to_owned()).send().await.unwrap()).await
}

const INTERRUPT: &str = "/v1/streams/runs/sessions/s/interrupt";
const EVENT: &str = r#"{"event_type":"stop","payload":{"why":1},"dedupe_key":"k"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_may_append_and_operate_interrupts_a_session_and_no_other_does() {
    let site = Site::open(&[]).await;
    let both = site
        .token(&["both", "--scope", "produce", "--scope", "operate"])
        .await;
    for scopes in [
        &["ci", "--scope", "produce"][..],
        &["console", "--scope", "operate"],
        &["reader", "--scope", "read"],
        &[
            "else", "--scope", "produce", "--scope", "operate", "--stream", "inbound",
        ],
    ] {
        let token = site.token(scopes).await;
        let refused = ask(&site, INTERRUPT, &token, EVENT).await;
        refused.assert_problem(403, "forbidden");
    }
    for bad in [
        "",
        "[]",
        "[1]",
        r#"{"event_type":"stop"}"#,
        r#"{"event_type":"stop","payload":1,"keep":true}"#,
        r#"{"event_type":"stop","payload":1,"keep_waiting":"yes"}"#,
        r#"{"event_type":"","payload":1}"#,
        r#"{"event_type":"stop","payload":1,"priority":101}"#,
        r#"{"event_type":"stop","payload":1,"headers":[]}"#,
    ] {
        let refused = ask(&site, INTERRUPT, &both, bad).await;
        refused.assert_problem(422, "invalid");
    }
    let none = "/v1/streams/none/sessions/s/interrupt";
    let refused = ask(&site, none, &both, EVENT).await;
    refused.assert_problem(404, "unknown_stream");
    let engine = "/v1/streams/lifecycle/sessions/s/interrupt";
    let refused = ask(&site, engine, &both, EVENT).await;
    refused.assert_problem(403, "forbidden");

    let done = ask(&site, INTERRUPT, &both, EVENT).await;
    assert_eq!(done.status, 201, "{:?}", done.body);
    assert_eq!(done.body["seq"], 1);
    assert_eq!(done.body["superseded"], 0);
    let again = ask(&site, INTERRUPT, &both, EVENT).await;
    assert_eq!(
        (again.status, &again.body["duplicate"]),
        (200, &json!(true))
    );
    let wrong = site.request(Method::GET, INTERRUPT).bearer_auth(&both);
    let wrong = Answer::of(wrong.send().await.unwrap()).await;
    wrong.assert_problem(405, "method_not_allowed");
    let close = ask(&site, "/v1/sessions/runs/s/close", &both, "").await;
    assert_eq!(close.status, 200);
    let new = r#"{"event_type":"stop","payload":1}"#;
    let refused = ask(&site, INTERRUPT, &both, new).await;
    refused.assert_problem(409, "session_closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cancels_messages_of_his_streams_and_of_no_other() {
    let site = Site::open(&[]).await;
    let token = site.token(&["console", "--scope", "operate"]).await;
    let producer = site
        .token(&["ci", "--scope", "produce", "--scope", "read"])
        .await;
    let append = site
        .events(Method::POST, "runs", "s")
        .bearer_auth(&producer);
    let append = append.body(r#"{"event_type":"a","payload":1}"#);
    let appended = Answer::of(append.send().await.unwrap()).await;
    let id = appended.body["message_id"].as_str().unwrap();
    let path = format!("/v1/messages/{id}/cancel");
    let refused = ask(&site, &path, &producer, "").await;
    refused.assert_problem(403, "forbidden");
    let elsewhere = site
        .token(&["other", "--scope", "operate", "--stream", "inbound"])
        .await;
    let answer = ask(&site, &path, &elsewhere, "").await;
    assert_eq!(answer.body["result"], "unknown", "it learns nothing of it");
    let answer = ask(&site, &path, &token, "").await;
    assert_eq!(answer.status, 200);
    // It may be under way, or delivered, by now.
    let result = answer.body["result"].as_str().unwrap();
    assert!(
        ["cancelled", "running", "already_settled"].contains(&result),
        "{result}"
    );
    let within = format!("{path}?stream=runs&session=t");
    let answer = ask(&site, &within, &token, "").await;
    assert_eq!(answer.body["result"], "unknown");
    for bad in [
        "/v1/messages/x/cancel".to_owned(),
        format!("{path}?stream=runs"),
        format!("{path}?at=1"),
    ] {
        ask(&site, &bad, &token, "")
            .await
            .assert_problem(422, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_keeps_the_trace_of_its_request_and_counts_as_an_append() {
    let site = Site::open(&[]).await;
    let both = ["both", "--scope", "produce", "--scope", "operate"];
    let both = site.token(&both).await;
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let interrupt = async |body: &str| {
        let request = site.request(Method::POST, INTERRUPT).bearer_auth(&both);
        let request = request.header("traceparent", TRACE).body(body.to_owned());
        Answer::of(request.send().await.unwrap()).await
    };
    let own =
        format!(r#"{{"event_type":"stop","payload":1,"headers":{{"x":1,"traceparent":"{OWN}"}}}}"#);
    for body in [
        EVENT,
        EVENT,
        r#"{"event_type":"stop","payload":1,"headers":{"x":1}}"#,
        &own,
    ] {
        assert!([200, 201].contains(&interrupt(body).await.status));
    }
    let kept = "SELECT e.headers ->> 'traceparent' FROM lanekeeper.event AS e ORDER BY e.seq";
    let rows = site.plant.client.query(kept, &[]).await.unwrap();
    let kept: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [TRACE, TRACE, OWN]);
    let with_x = "SELECT count(*) FROM lanekeeper.event AS e WHERE e.headers ->> 'x' = '1'";
    assert_eq!(site.plant.count(with_x).await, 2);

    let metrics = reqwest::get(site.worker.http() + "/metrics").await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let counted = |duplicate: bool| {
        let mut lines = metrics.lines().filter(|line| {
            line.starts_with("lanekeeper_http_events")
                && line.contains("\"runs\"")
                && line.contains(&format!("lanekeeper_duplicate=\"{duplicate}\""))
        });
        lines
            .find_map(|line| line.rsplit_once(' '))
            .map(|(_, count)| count.to_owned())
    };
    assert_eq!(counted(false).as_deref(), Some("3"), "{metrics}");
    assert_eq!(counted(true).as_deref(), Some("1"), "{metrics}");
}
