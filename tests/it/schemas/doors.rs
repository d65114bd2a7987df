//! Every way in: SQL, HTTP in its formats, commands and hooks. Each says LK006 or its counterpart, and nothing is appended.

use std::time::{SystemTime, UNIX_EPOCH};

use lanekeeper_adapters::Signer;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ORDERS, apply, events, refused};
use crate::api::site::{Answer, Site};
use crate::command::run;
use crate::support::{TestDb, connect};

const DOCUMENTS: &str = r#"
[stream.documents.schema]
DocumentCreated = { properties = { body = { required = ["name"] } } }
DocumentUpdated = { properties = { body = { required = ["name"] } } }
Renamed         = { required = ["to"] }
[stream.inbound.schema]
text = { properties = { content = { maxLength = 5 } } }
"#;

const STD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[tokio::test]
async fn every_function_that_appends_refuses_what_a_schema_does_not_take() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    apply(&mut client, &format!("{ORDERS}{DOCUMENTS}")).await;
    client
        .batch_execute(
            r#"SELECT lanekeeper.put_document('k', 'there', '{"name": "n"}');
               SELECT lanekeeper.enqueue('runs', 's', 'order', '{"number": 1}');
               SELECT lanekeeper.enqueue('runs', 's', 'other', '0')"#,
        )
        .await
        .unwrap();
    let before = events(&client).await;
    for (door, pointer, keyword, event) in [
        ("enqueue('runs', 's', 'order', '{}')", "", "required", None),
        (
            "enqueue('runs', 'new', 'order', '{\"number\": 0}')",
            "/number",
            "minimum",
            None,
        ),
        (
            "enqueue('runs', 's', 'order', '1', dedupe_key => 'k')",
            "",
            "type",
            None,
        ),
        (
            "enqueue('runs', 's', 'order', '1', priority => 3::smallint, headers => '{\"a\": 1}')",
            "",
            "type",
            None,
        ),
        ("enqueue_at('runs', 's', 3, 'order', '1')", "", "type", None),
        ("interrupt('runs', 's', 'order', '1')", "", "type", None),
        (
            r#"enqueue_many('runs', '[{"session":"a","event_type":"order","payload":{"number":1}},
            {"session":"b","event_type":"other","payload":0},{"session":"a","event_type":"order","payload":{"number":1,"x":1}},
            {"session":"a","event_type":"order","payload":1}]')"#,
            "/x",
            "additionalProperties",
            Some(3),
        ),
        (
            r#"enqueue_many('runs', '[{"session":"a","event_type":"order","payload":{"number":1}},
            {"session":"a","event_type":"order","payload":2,"dedupe_key":"k"}]')"#,
            "",
            "type",
            Some(2),
        ),
        (
            "append_durable('runs', 's', 'application/json', '[{\"session\":\"s\",\"event_type\":\"order\",\"payload\":2}]', NULL, NULL, NULL, NULL, false)",
            "",
            "type",
            Some(1),
        ),
        ("put_document('k', 'id', '{}')", "/body", "required", None),
        (
            "put_document('k', 'there', '{}')",
            "/body",
            "required",
            None,
        ),
        (
            "patch_document('k', 'there', '{\"name\": null}')",
            "/body",
            "required",
            None,
        ),
        (
            "put_document('k', 'there', '{\"name\": 1}', event_type => 'Renamed', event => '{}')",
            "",
            "required",
            None,
        ),
        (
            r#"put_documents('[{"kind":"k","id":"other","body":{"name":1}},{"kind":"k","id":"id","body":{}}]')"#,
            "/body",
            "required",
            None,
        ),
        (
            "enqueue_inbound('s', 'chat', 'longer than five')",
            "/content",
            "maxLength",
            None,
        ),
    ] {
        let (code, message, detail) = refused(&client, &format!("SELECT lanekeeper.{door}")).await;
        assert_eq!(
            (
                code.as_str(),
                &detail["pointer"],
                &detail["keyword"],
                detail["event"].as_u64()
            ),
            ("LK006", &json!(pointer), &json!(keyword), event),
            "{door}: {message}"
        );
        assert!(message.ends_with("nothing was enqueued"), "{message}");
        assert_eq!(events(&client).await, before, "{door}");
    }
    // A payload is not repeated in what logs keep.
    let (_, message, detail) = refused(
        &client,
        "SELECT lanekeeper.enqueue('runs', 's', 'order', '{\"secret-name\": 1}')",
    )
    .await;
    assert!(
        !format!("{message}{detail}").contains("secret-name"),
        "{message}"
    );
}

#[tokio::test]
async fn an_event_that_is_there_already_is_answered_as_a_duplicate_whatever_the_schema_is_by_then()
{
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let append =
        "SELECT duplicate FROM lanekeeper.enqueue('runs', 's', 'order', '1', dedupe_key => 'k')";
    client.batch_execute(append).await.unwrap();
    apply(&mut client, ORDERS).await;
    assert!(
        client
            .query_one(append, &[])
            .await
            .unwrap()
            .get::<_, bool>(0)
    );
    // And what waits is appended again behind an interrupt, which is judged itself.
    client
        .batch_execute(
            "UPDATE lanekeeper.stream SET lanes_version = lanes_version WHERE name = 'runs'",
        )
        .await
        .unwrap();
    let file = "[subscription.out]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"https://example.com/\"\nstart = \"earliest\"";
    for backfill in apply(&mut client, file).await.backfills {
        lanekeeper_postgres::subscription::add_lanes(&client, backfill.subscription_id, 0, 100)
            .await
            .unwrap();
    }
    let interrupt = "SELECT appended_again FROM lanekeeper.interrupt('runs', 's', 'order', '{\"number\": 5}', keep_waiting => true)";
    assert_eq!(
        client
            .query_one(interrupt, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        1
    );
    assert_eq!(events(&client).await, 3);
    assert_eq!(
        refused(
            &client,
            "SELECT lanekeeper.enqueue('runs', 's', 'order', '1')"
        )
        .await
        .0,
        "LK006"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_answers_a_client_error_with_the_place() {
    let site = Site::open(&[
        ("LANEKEEPER_DURABLE_STREAMS__STREAMS", "runs"),
        ("STD_SECRET", STD_SECRET),
    ])
    .await;
    let mut client = connect(&site.plant.url).await;
    let messages =
        "[stream.runs.schema]\nmessage = { type = \"object\" }\nnote = { type = \"object\" }\n";
    let source = "[source.std]\nsignature = \"standard\"\nsecret_env = \"STD_SECRET\"\nsession = \"all\"\ncontent = \"{body}\"\n";
    let orders = ORDERS.replace("[stream.runs.schema.order]", "[stream.runs.schema.order]\n");
    apply(
        &mut client,
        &format!("{messages}{orders}{DOCUMENTS}{source}"),
    )
    .await;

    let problem = |answer: &Answer, pointer: &str, event: Option<u64>| {
        answer.assert_problem(422, "schema_violation");
        assert_eq!(
            (&answer.body["pointer"], answer.body["event"].as_u64()),
            (&json!(pointer), event),
            "{}",
            answer.body
        );
        assert!(
            answer.body["keyword"].is_string() && answer.body["hint"].is_string(),
            "{}",
            answer.body
        );
    };
    let order = |payload: Value| json!({"event_type": "order", "payload": payload});
    problem(
        &site
            .post("s", &order(json!({"number": 0})).to_string())
            .await,
        "/number",
        None,
    );
    let many = json!([
        order(json!({"number": 1})),
        order(json!({"number": 1, "z": 1}))
    ]);
    problem(&site.post("s", &many.to_string()).await, "/z", Some(2));

    let event = json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "order", "data": {"number": "x"}});
    let request = site
        .events(Method::POST, "runs", "s")
        .header("content-type", "application/cloudevents+json");
    problem(
        &Answer::of(request.body(event.to_string()).send().await.unwrap()).await,
        "/number",
        None,
    );

    let request = site.request(Method::PUT, "/v1/documents/k/id").body("{}");
    problem(
        &Answer::of(request.send().await.unwrap()).await,
        "/body",
        None,
    );

    let inbound = json!({"origin": "chat", "content": "longer than five"});
    let request = site
        .request(Method::POST, "/v1/inbound/s")
        .body(inbound.to_string());
    problem(
        &Answer::of(request.send().await.unwrap()).await,
        "/content",
        None,
    );

    let token = site.token(&["alice", "--scope", "produce"]).await;
    let frame = json!({"v": 1, "type": "EVENT", "id": uuid::Uuid::now_v7(), "session": "s", "name": "note", "data": 1});
    let request = site
        .request(Method::POST, "/v1/agents/runs/frames")
        .bearer_auth(&token);
    problem(
        &Answer::of(request.body(frame.to_string()).send().await.unwrap()).await,
        "",
        None,
    );

    let durable = |method: Method, body: &'static str| {
        let request = site
            .request(method, "/v1/ds/runs/d1")
            .header("content-type", "application/json");
        async move { request.body(body).send().await.unwrap().status().as_u16() }
    };
    assert_eq!(durable(Method::PUT, "").await, 201);
    // The protocol has no 422.
    assert_eq!(durable(Method::POST, "1").await, 400);
    assert_eq!(durable(Method::POST, "[{\"a\": 1}]").await, 204);

    let at = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64;
    let body = "{\"text\": \"longer than five\"}";
    let signature = Signer::parse(STD_SECRET)
        .unwrap()
        .sign("one", at, body.as_bytes());
    let request = site.request(Method::POST, "/v1/sources/std");
    let request = request
        .header("webhook-id", "one")
        .header("webhook-timestamp", at.to_string());
    let request = request
        .header("webhook-signature", signature.as_str())
        .body(body);
    problem(
        &Answer::of(request.send().await.unwrap()).await,
        "/content",
        None,
    );

    assert_eq!(site.logged_events().await, 1);

    // The commands, with a database and over HTTP.
    let http = site.worker.http();
    for way in [
        ("DATABASE_URL", site.plant.url.as_str()),
        ("LANEKEEPER_URL", http.as_str()),
    ] {
        let ran = run(
            &["enqueue", "runs", "s", "order"],
            &[way],
            "{\"number\": 0}",
        )
        .await;
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("\"/number\", keyword minimum"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(site.logged_events().await, 1);
}
