//! A2A 1.0: what is sent, and what becomes of an agent's answers.

use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_core::memory::{Memory, ProcessMemory};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::conformance::destination::event;
use crate::conformance::http_server::{HttpServer, Reply, Request};

const PUSH_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// An adapter for this server, and what it remembers.
pub(super) fn adapter(server: &HttpServer, more: &Value) -> Arc<dyn Adapter> {
    with_memory(server, more, Arc::new(ProcessMemory::default()))
}

pub(super) fn with_memory(
    server: &HttpServer,
    more: &Value,
    memory: Arc<dyn Memory>,
) -> Arc<dyn Adapter> {
    let mut settings = json!({
        "protocol": "a2a", "url": server.url("/agent"), "token_env": "TOKEN", "timeout_ms": 1000,
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    let environment = Environment::with_variables(true, [("TOKEN", "t-1"), ("PUSH", PUSH_SECRET)]);
    build("agent", "bob", &settings, &environment.with_memory(memory)).unwrap()
}

pub(super) fn completed() -> Value {
    json!({"acknowledge_on": "completed"})
}

pub(super) async fn deliver(adapter: &dyn Adapter, event: &Event) -> Verdict {
    adapter
        .deliver(&Delivery {
            event,
            subscription: "bob",
            attempt: 2,
            requeued: false,
            replay_id: None,
            asks_ack: true,
            trace: None,
            observed: None,
        })
        .await
}

pub(super) fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// The answer of JSON-RPC with this `result` or `error`.
pub(super) fn rpc(request: &Request, member: &str, value: &Value) -> Reply {
    let answer = json!({"jsonrpc": "2.0", "id": body(request)["id"], member: value});
    Reply::with_body("200 OK", answer.to_string())
}

pub(super) fn task(id: &str, state: &str) -> Value {
    json!({"id": id, "contextId": "s", "status": {"state": state}})
}

/// An agent that gives each message a task with this state, and answers looks at it with these, the last for ever.
async fn agent(first: &'static str, then: &'static [&'static str]) -> HttpServer {
    let looks = AtomicUsize::new(0);
    HttpServer::start(
        move |request| match body(request)["method"].as_str().unwrap() {
            "SendMessage" => rpc(request, "result", &json!({"task": task("t", first)})),
            "GetTask" => {
                let at = looks.fetch_add(1, Ordering::SeqCst).min(then.len() - 1);
                rpc(request, "result", &task("t", then[at]))
            }
            _ => rpc(request, "error", &json!({"code": -32002, "message": "no"})),
        },
    )
    .await
}

pub(super) fn methods(server: &HttpServer) -> Vec<String> {
    let requests = server.log().requests;
    requests
        .iter()
        .map(|request| body(request)["method"].as_str().unwrap().to_owned())
        .collect()
}

const SUBMITTED: &str = "TASK_STATE_SUBMITTED";
pub(super) const WORKING: &str = "TASK_STATE_WORKING";
pub(super) const COMPLETED: &str = "TASK_STATE_COMPLETED";

#[tokio::test]
async fn a_message_has_its_id_its_session_as_context_and_its_payload_as_a_part() {
    let server = HttpServer::start(|request| {
        if request.line.contains("/agent/red/message:send") {
            return Reply::with_body("200 OK", json!({"message": {"messageId": "m"}}).to_string());
        }
        rpc(request, "result", &json!({"message": {"messageId": "m"}}))
    })
    .await;
    let of_rpc = adapter(&server, &json!({}));
    let of_rest = adapter(&server, &json!({"binding": "http+json", "tenant": "red"}));
    let event = event("s ü", 3, r#"{"n": 1.00}"#);
    for adapter in [&of_rpc, &of_rest] {
        assert_eq!(deliver(&**adapter, &event).await, Verdict::Accepted);
    }
    let requests = server.log().requests;
    let [rpc, rest] = &requests[..] else { panic!() };
    assert!(rpc.line.starts_with("POST /agent "), "{}", rpc.line);
    assert_eq!(rpc.headers["content-type"], "application/json");
    assert_eq!(rest.headers["content-type"], "application/a2a+json");
    for request in [rpc, rest] {
        assert_eq!(request.headers["a2a-version"], "1.0");
        assert_eq!(request.headers["authorization"], "Bearer t-1");
    }
    let envelope = body(rpc);
    assert_eq!(
        (&envelope["jsonrpc"], &envelope["method"]),
        (&json!("2.0"), &json!("SendMessage"))
    );
    let mut params = envelope["params"].clone();
    assert_eq!(params, body(rest));
    let metadata = params["message"]
        .as_object_mut()
        .unwrap()
        .remove("metadata")
        .unwrap();
    let expected = json!({
        "message": {
            "messageId": event.message_id, "contextId": "s ü", "role": "ROLE_USER",
            "parts": [{"data": {"n": 1.00}, "mediaType": "application/json"}],
        },
        "configuration": {"returnImmediately": true, "historyLength": 0},
    });
    assert_eq!(params, expected);
    assert_eq!(
        (
            &metadata["lanekeeper"]["seq"],
            &metadata["lanekeeper"]["attempt"]
        ),
        (&json!(3), &json!(2))
    );
    assert_eq!(metadata["lanekeeper"]["type"], "agent_stop");
}

#[tokio::test]
async fn what_acknowledges_is_the_acceptance_or_the_end_of_the_task() {
    for (state, accepted, completes) in [
        (COMPLETED, "accepted", "accepted"),
        (SUBMITTED, "accepted", "sent"),
        (WORKING, "accepted", "sent"),
        ("TASK_STATE_OF_LATER", "accepted", "sent"),
        ("TASK_STATE_FAILED", "accepted", "retry"),
        ("TASK_STATE_REJECTED", "rejected", "rejected"),
        ("TASK_STATE_CANCELED", "accepted", "rejected"),
        ("TASK_STATE_INPUT_REQUIRED", "accepted", "rejected"),
        ("TASK_STATE_AUTH_REQUIRED", "accepted", "rejected"),
    ] {
        for (more, expected) in [(json!({}), accepted), (completed(), completes)] {
            let server = HttpServer::start(move |request| {
                let mut task = task("t", state);
                task["status"]["message"] =
                    json!({"parts": [{"data": 1}, {"text": "why\u{1b}[31m"}]});
                let sends = body(request)["method"] == "SendMessage";
                let result = if sends { json!({"task": task}) } else { task };
                rpc(request, "result", &result)
            })
            .await;
            let verdict = deliver(&*adapter(&server, &more), &event("s", 1, "1")).await;
            let named = match &verdict {
                Verdict::Accepted => "accepted",
                Verdict::Sent => "sent",
                Verdict::Retry { .. } => "retry",
                Verdict::Rejected { .. } => "rejected",
                other => panic!("{other:?}"),
            };
            assert_eq!(named, expected, "{state} {more}");
            if let Verdict::Retry { error, .. } | Verdict::Rejected { error } = verdict
                && expected != "sent"
            {
                assert!(
                    error.contains("why") && !error.contains('\u{1b}'),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_task_is_followed_until_it_ends_and_its_message_is_sent_once() {
    let server = agent(SUBMITTED, &[WORKING, WORKING, COMPLETED]).await;
    let quick = adapter(&server, &completed());
    assert_eq!(
        deliver(&*quick, &event("s", 1, "1")).await,
        Verdict::Accepted
    );
    assert_eq!(
        methods(&server),
        ["SendMessage", "GetTask", "GetTask", "GetTask"]
    );

    let server = agent(
        SUBMITTED,
        &[
            WORKING, WORKING, WORKING, WORKING, WORKING, WORKING, WORKING, COMPLETED,
        ],
    )
    .await;
    let memory: Arc<dyn Memory> = Arc::new(ProcessMemory::default());
    let event = event("s", 1, "1");
    let mut verdict = Verdict::Sent;
    for round in 0..10 {
        if verdict != Verdict::Sent {
            break;
        }
        // The next one to hold the lane is another process.
        let adapter = with_memory(&server, &completed(), Arc::clone(&memory));
        verdict = deliver(&*adapter, &event).await;
        assert!(round > 0 || verdict == Verdict::Sent, "{verdict:?}");
    }
    assert_eq!(verdict, Verdict::Accepted);
    let sent = methods(&server)
        .iter()
        .filter(|method| *method == "SendMessage")
        .count();
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn a_task_that_the_agent_lost_is_sent_again() {
    let known = Arc::new(Mutex::new(true));
    let knows = Arc::clone(&known);
    let server =
        HttpServer::start(
            move |request| match body(request)["method"].as_str().unwrap() {
                "SendMessage" => rpc(request, "result", &json!({"task": task("t", WORKING)})),
                _ if *knows.lock().unwrap() => rpc(request, "result", &task("t", WORKING)),
                _ => rpc(
                    request,
                    "error",
                    &json!({"code": -32001, "message": "gone"}),
                ),
            },
        )
        .await;
    let adapter = adapter(
        &server,
        &json!({"acknowledge_on": "completed", "timeout_ms": 150}),
    );
    let event = event("s", 1, "1");
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Sent);
    *known.lock().unwrap() = false;
    let before = server.log().requests.len();
    // Before it is followed further, it is sent.
    let _ = deliver(&*adapter, &event).await;
    assert_eq!(
        methods(&server)[before..before + 2],
        ["GetTask", "SendMessage"]
    );
}

#[tokio::test]
async fn with_notifications_nothing_is_followed_and_the_agent_gets_a_token_for_this_message() {
    let server = agent(SUBMITTED, &[WORKING]).await;
    let push = json!({
        "acknowledge_on": "completed", "push_url": "https://lk.example/base/", "push_secret_env": "PUSH",
    });
    let adapter = adapter(&server, &push);
    let event = event("s", 1, "1");
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Sent);
    // Its acknowledgement is late.
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Sent);
    assert_eq!(methods(&server), ["SendMessage", "GetTask"]);
    let config =
        &body(&server.log().requests[0])["params"]["configuration"]["taskPushNotificationConfig"];
    assert_eq!(
        config["url"],
        format!("https://lk.example/base/v1/a2a/bob/{}", event.message_id)
    );
    assert_eq!(config["authentication"]["scheme"], "Bearer");
    let token = config["authentication"]["credentials"].as_str().unwrap();
    assert!(token.len() > 40 && !PUSH_SECRET.contains(token));
}
