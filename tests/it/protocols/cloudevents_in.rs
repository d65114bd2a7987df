//! CloudEvents that are appended over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use super::sdk;
use crate::api::site::{Answer, Site};

const STRUCTURED: &str = "application/cloudevents+json";
const BATCHED: &str = "application/cloudevents-batch+json";

async fn post(
    site: &Site,
    token: Option<&str>,
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> Answer {
    let mut request = site.events(Method::POST, "runs", "s");
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::of(request.body(body).send().await.unwrap()).await
}

fn cloudevent(id: &str, data: &Value) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "/a", "type": "t", "data": data})
}

/// Type, payload and attributes of each event, in their order.
async fn appended(site: &Site) -> Vec<(String, Value, Value)> {
    let rows = "SELECT event_type, payload::jsonb AS payload, headers -> 'cloudevent' AS attributes
                FROM lanekeeper.event ORDER BY seq";
    let rows = site.plant.client.query(rows, &[]).await.unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloudevent_is_appended_once_for_each_sender_source_and_id_in_whatever_mode() {
    let site = Site::open(&[]).await;
    let answer = post(
        &site,
        None,
        &[("content-type", STRUCTURED)],
        cloudevent("1", &json!({"n": 1})).to_string(),
    )
    .await;
    assert_eq!(
        (answer.status, &answer.body["seq"]),
        (201, &json!(1)),
        "{}",
        answer.body
    );
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/a"),
        ("ce-type", "t"),
    ];
    let answer = post(&site, None, &binary, r#"{"n": 1}"#).await;
    assert_eq!(
        (answer.status, &answer.body["duplicate"]),
        (200, &json!(true)),
        "{}",
        answer.body
    );
    let batch = json!([cloudevent("1", &json!(null)), cloudevent("2", &json!([2]))]);
    let answer = post(&site, None, &[("content-type", BATCHED)], batch.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let duplicates: Vec<&Value> = answer
        .body
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["duplicate"])
        .collect();
    assert_eq!(duplicates, [true, false]);
    // Another source has ids of its own.
    let other = [
        ("ce-specversion", "1.0"),
        ("ce-id", "2"),
        ("ce-source", "/b"),
        ("ce-type", "t"),
        ("ce-n", "%C3%A4"),
    ];
    let answer = post(&site, None, &other, "").await;
    assert_eq!(
        (answer.status, &answer.body["seq"]),
        (201, &json!(3)),
        "{}",
        answer.body
    );
    let answer = post(&site, None, &[("content-type", BATCHED)], "[]").await;
    assert_eq!((answer.status, &answer.body), (200, &json!([])));
    let of = |source: &str, id: &str| json!({"source": source, "id": id});
    let expected = [
        ("t".to_owned(), json!({"n": 1}), of("/a", "1")),
        ("t".to_owned(), json!([2]), of("/a", "2")),
        (
            "t".to_owned(),
            json!(null),
            json!({"source": "/b", "id": "2", "n": "ä"}),
        ),
    ];
    assert_eq!(appended(&site).await, expected);

    let tokens = [
        site.token(&["alice", "--scope", "produce"]).await,
        site.token(&["mallory", "--scope", "produce"]).await,
    ];
    for token in tokens.iter().rev() {
        let answer = post(&site, Some(token), &binary, "5").await;
        assert_eq!(
            (answer.status, &answer.body["duplicate"]),
            (201, &json!(false)),
            "{}",
            answer.body
        );
    }
    site.plant.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_cloudevent_is_refused_with_its_reason_and_appends_nothing() {
    let site = Site::open(&[]).await;
    let half = json!([cloudevent("1", &json!(1)), {"specversion": "1.0", "id": "2", "type": "t"}]);
    let long_type =
        json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "t".repeat(201)});
    let thousand_and_one = vec![cloudevent("1", &json!(1)); 1_001];
    for (content_type, body, status, code, reason) in [
        (
            "application/cloudevents+avro",
            "x".to_owned(),
            415,
            "unsupported_media_type",
            "avro",
        ),
        (STRUCTURED, "{}".to_owned(), 422, "invalid", "specversion"),
        (STRUCTURED, "[]".to_owned(), 422, "invalid", "object"),
        (
            STRUCTURED,
            r#"{"specversion":"1.0""#.to_owned(),
            422,
            "invalid",
            "EOF",
        ),
        (
            STRUCTURED,
            long_type.to_string(),
            422,
            "invalid",
            "event_type",
        ),
        (
            BATCHED,
            cloudevent("1", &json!(1)).to_string(),
            422,
            "invalid",
            "array",
        ),
        (BATCHED, half.to_string(), 422, "invalid", "event 2"),
        (
            BATCHED,
            json!(thousand_and_one).to_string(),
            422,
            "invalid",
            "1000",
        ),
    ] {
        let answer = post(&site, None, &[("content-type", content_type)], body).await;
        answer.assert_problem(status, code);
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.contains(reason), "{detail}");
    }
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/a"),
    ];
    post(&site, None, &binary, "1")
        .await
        .assert_problem(422, "invalid");
    let binary = [
        &binary[..],
        &[("ce-type", "t"), ("content-type", "application/json")],
    ]
    .concat();
    post(&site, None, &binary, "no JSON")
        .await
        .assert_problem(422, "not_json");
    let token = site.token(&["reader", "--scope", "read"]).await;
    post(&site, Some(&token), &binary, "1")
        .await
        .assert_problem(403, "forbidden");
    assert_eq!(site.logged_events().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sdk_sends_is_appended_and_goes_on_as_it_came() {
    let Some(written) = sdk::ask("cloudevents_sdk.py", &["write"], &json!(null)) else {
        return;
    };
    let site = Site::open(&[]).await;
    for (at, message) in written.as_array().unwrap().iter().enumerate() {
        let headers: Vec<(&str, &str)> = message["headers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
            .collect();
        let body = STANDARD.decode(message["body"].as_str().unwrap()).unwrap();
        let answer = post(&site, None, &headers, body).await;
        // The last two repeat the third and the first, in another mode.
        let expected = [(201, 1), (201, 2), (201, 3), (200, 3), (200, 1)][at];
        assert_eq!(
            (answer.status, &answer.body["seq"]),
            (expected.0, &json!(expected.1)),
            "{}",
            answer.body
        );
    }
    let events = appended(&site).await;
    let payloads: Vec<&Value> = events.iter().map(|(_, payload, _)| payload).collect();
    assert_eq!(
        payloads,
        [
            &json!({"n": 1, "s": "ü"}),
            &json!("plain ü"),
            &json!("/wAB")
        ]
    );
    let (_, _, first) = &events[0];
    assert_eq!(first["subject"], "Euro € \"😀\" 100%");
    assert_eq!(
        (&first["partitionkey"], &first["sequence"]),
        (&json!("p"), &json!("001"))
    );
    assert_eq!(events[2].2["data_base64"], true);
}
