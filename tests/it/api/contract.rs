//! The contract: every answer that a test reads is one that the OpenAPI document has for the path and status.

use std::sync::LazyLock;

use lanekeeper_http::{api, openapi};
use serde_json::{Value, json};

/// The document, as `/openapi.json` shows it.
pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| openapi::document(&api::operations()));

/// Fails where the document has no such answer. A path that it does not have must have been refused.
pub(crate) fn assert_documented(path: &str, status: u16, kind: &str, body: &[u8]) {
    if !path.starts_with("/v1/") || path.starts_with("/v1/ds/") {
        // Pages of the dashboard, and the Durable Streams protocol, which tests/it/durable compares with its own suite.
        return;
    }
    let Some((template, operations)) = operations_at(path) else {
        assert_eq!(status, 404, "{path} is not in the document, and answered");
        return;
    };
    if status == 405 {
        // What a method is answered with that the path does not take.
        return;
    }
    let answers: Vec<&Value> = operations
        .iter()
        .map(|operation| &operation["responses"][status.to_string()])
        .filter(|answer| answer.is_object())
        .collect();
    assert!(
        !answers.is_empty(),
        "{template} answered {status}, which is not in the document"
    );
    let wrong: Vec<String> = answers
        .iter()
        .map(|answer| compare(answer, kind, body))
        .collect();
    let fits = wrong.iter().any(String::is_empty);
    let body = String::from_utf8_lossy(body);
    assert!(
        fits,
        "{template} answered {status} with {body}, and {wrong:?}"
    );
}

/// The operations at the path that a request's path fits.
fn operations_at(path: &str) -> Option<(&'static String, Vec<&'static Value>)> {
    let given: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let wanted: Vec<&str> = template.split('/').collect();
        let is_parameter = |piece: &str| piece.starts_with('{');
        wanted.len() == given.len()
            && wanted
                .iter()
                .zip(&given)
                .all(|(wanted, given)| is_parameter(wanted) || wanted == given)
    };
    let paths = DOCUMENT["paths"].as_object().unwrap();
    // A piece that is written out stands over a parameter.
    let found = paths
        .iter()
        .filter(|(template, _)| fits(template))
        .min_by_key(|(template, _)| template.matches('{').count())?;
    let operations = found.1.as_object().unwrap().values().collect();
    Some((found.0, operations))
}

/// What is wrong with an answer; nothing where it is as it should be.
fn compare(answer: &Value, kind: &str, body: &[u8]) -> String {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let Some(content) = answer["content"].as_object() else {
        return match body.is_empty() {
            true => String::new(),
            false => "it should have no body".to_owned(),
        };
    };
    let Some(of_kind) = content.get(kind) else {
        return format!("it should be one of {:?}", content.keys());
    };
    if !kind.ends_with("json") {
        return String::new();
    }
    let schema = json!({
        "allOf": [of_kind["schema"]],
        "components": DOCUMENT["components"],
    });
    let body: Value = serde_json::from_slice(body).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let errors = schema.iter_errors(&body);
    let errors: Vec<String> = errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    errors.join("; ")
}

#[test]
fn an_answer_that_is_not_as_the_document_says_is_found() {
    let path = "/v1/lanes/7";
    let lane = |state: Value| {
        json!({
            "lane_id": 7, "stream": "runs", "session": "s", "subscription": "out", "state": state, "cursor": 0,
            "newest_seq": 1, "behind": 1, "head_seq": 1, "head_age_s": 0.5, "attempts": 0, "crashes": 0,
            "retry_at": null, "parked_at": null, "last_error": null, "changed_at": "2026-01-02T03:04:05Z",
            "sent_seq": null, "ack_due_at": null, "held_by": null,
        })
    };
    let check = |status, kind: &str, body: &Value| {
        let body = body.to_string();
        let check = || assert_documented(path, status, kind, body.as_bytes());
        std::panic::catch_unwind(check).is_ok()
    };
    let json = "application/json";
    assert!(check(200, json, &lane("ready".into())));
    assert!(
        !check(200, json, &lane(5.into())),
        "a member of another type"
    );
    assert!(
        !check(200, json, &json!({"lane_id": 7})),
        "members are missing"
    );
    assert!(
        !check(200, "text/plain", &lane("ready".into())),
        "another media type"
    );
    assert!(!check(418, json, &lane("ready".into())), "another status");
    let problem = |code: &str| json!({"type": "urn:lanekeeper:problem:x", "title": "x", "status": 404, "detail": "x", "code": code});
    let problem_json = "application/problem+json";
    assert!(check(404, problem_json, &problem("not_found")));
    assert!(
        !check(404, problem_json, &problem("queue_full")),
        "a code of another status"
    );
}
