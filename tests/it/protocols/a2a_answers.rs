//! A2A 1.0: what is sent, and what becomes of an agent's answers, those of a hostile one too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_adapters::{Environment, build, check};
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_core::memory::{Memory, MemoryError, MessageName, ProcessMemory};
use serde_json::{Value, json};

use crate::conformance::destination::{event, rejection, retry_error};
use crate::conformance::http_server::{HttpServer, Reply, Request};

const PUSH_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// An adapter for this server, and what it remembers.
fn adapter(server: &HttpServer, more: &Value) -> Arc<dyn Adapter> {
    with_memory(server, more, Arc::new(ProcessMemory::default()))
}

fn with_memory(server: &HttpServer, more: &Value, memory: Arc<dyn Memory>) -> Arc<dyn Adapter> {
    let mut settings = json!({
        "protocol": "a2a", "url": server.url("/agent"), "token_env": "TOKEN", "timeout_ms": 1000,
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    let environment = Environment::with_variables(true, [("TOKEN", "t-1"), ("PUSH", PUSH_SECRET)]);
    build("agent", "bob", &settings, &environment.with_memory(memory)).unwrap()
}

fn completed() -> Value {
    json!({"acknowledge_on": "completed"})
}

async fn deliver(adapter: &dyn Adapter, event: &Event) -> Verdict {
    adapter
        .deliver(&Delivery {
            event,
            subscription: "bob",
            attempt: 2,
            requeued: false,
            asks_ack: true,
            trace: None,
            observed: None,
        })
        .await
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// The answer of JSON-RPC with this `result` or `error`.
fn rpc(request: &Request, member: &str, value: &Value) -> Reply {
    let answer = json!({"jsonrpc": "2.0", "id": body(request)["id"], member: value});
    Reply::with_body("200 OK", answer.to_string())
}

fn task(id: &str, state: &str) -> Value {
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

fn methods(server: &HttpServer) -> Vec<String> {
    let requests = server.log().requests;
    requests
        .iter()
        .map(|request| body(request)["method"].as_str().unwrap().to_owned())
        .collect()
}

const SUBMITTED: &str = "TASK_STATE_SUBMITTED";
const WORKING: &str = "TASK_STATE_WORKING";
const COMPLETED: &str = "TASK_STATE_COMPLETED";

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
    let [rpc, rest] = &server.log().requests[..] else {
        panic!()
    };
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

#[tokio::test]
async fn an_answer_that_is_none_is_a_failure_and_bounded() {
    type Answers = fn(&Request) -> Reply;
    let large = |_: &Request| Reply::with_body("200 OK", vec![b' '; 1024 * 1024 + 1]);
    let cases: [(&str, Answers); 13] = [
        ("cut off", |_| Reply::Half),
        ("byte by byte", |_| Reply::Drip("200 OK")),
        ("silent", |_| Reply::Silence),
        ("large", large),
        ("no JSON", |_| Reply::with_body("200 OK", "<html>")),
        ("empty", |_| Reply::status("204 No Content")),
        ("nested", |_| {
            Reply::with_body(
                "200 OK",
                format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
            )
        }),
        ("of another request", |_| {
            Reply::with_body(
                "200 OK",
                json!({"id": "x", "result": {"message": {}}}).to_string(),
            )
        }),
        ("nothing", |request| rpc(request, "result", &json!({}))),
        ("both", |request| {
            rpc(
                request,
                "result",
                &json!({"message": {}, "task": task("t", COMPLETED)}),
            )
        }),
        ("a way out", |request| {
            rpc(request, "result", &json!({"task": task("..", COMPLETED)}))
        }),
        ("a long id", |request| {
            rpc(
                request,
                "result",
                &json!({"task": task(&"x".repeat(257), COMPLETED)}),
            )
        }),
        ("internal", |request| {
            rpc(request, "error", &json!({"code": -32603, "message": "x"}))
        }),
    ];
    for (name, answer) in cases {
        let server = HttpServer::start(answer).await;
        let began = Instant::now();
        for more in [json!({}), completed()] {
            let error = retry_error(deliver(&*adapter(&server, &more), &event("s", 1, "1")).await);
            assert!(
                !error.contains("t-1") && error.len() < 1_000,
                "{name}: {error}"
            );
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{name}");
    }
    // A look that is answered with another task says nothing of ours.
    let server = HttpServer::start(|request| match body(request)["method"].as_str().unwrap() {
        "SendMessage" => rpc(request, "result", &json!({"task": task("t", WORKING)})),
        _ => rpc(request, "result", &task("u", COMPLETED)),
    })
    .await;
    retry_error(deliver(&*adapter(&server, &completed()), &event("s", 1, "1")).await);
}

#[tokio::test]
async fn a_refusal_is_final_and_redirects_lead_nowhere() {
    let cases: [(&str, fn(&Request) -> Reply); 4] = [
        ("-32602", |request| {
            rpc(
                request,
                "error",
                &json!({"code": -32602, "message": "parts"}),
            )
        }),
        ("-32009", |request| {
            rpc(
                request,
                "error",
                &json!({"code": -32009, "message": "version"}),
            )
        }),
        ("401", |_| Reply::status("401 Unauthorized")),
        ("302", |_| {
            Reply::with_header("302 Found", "location: http://169.254.169.254/")
        }),
    ];
    for (reason, answer) in cases {
        let server = HttpServer::start(answer).await;
        let error = rejection(deliver(&*adapter(&server, &json!({})), &event("s", 1, "1")).await);
        assert!(error.contains(reason), "{error}");
        assert_eq!(server.log().requests.len(), 1);
    }
    let private = json!({"protocol": "a2a", "url": "http://[::ffff:169.254.169.254]/"});
    check("agent", &private).unwrap();
    let refused = build(
        "agent",
        "bob",
        &private,
        &Environment::with_variables(false, [("", ""); 0]),
    );
    assert!(
        refused
            .err()
            .unwrap()
            .to_string()
            .contains("not a public address")
    );
}

/// A memory that says of these events that they were given up.
struct GivingUp {
    inner: ProcessMemory,
    seqs: Mutex<Vec<i64>>,
}

#[async_trait]
impl Memory for GivingUp {
    async fn recall(&self, name: MessageName<'_>) -> Result<Vec<(i32, String)>, MemoryError> {
        self.inner.recall(name).await
    }

    async fn remember(
        &self,
        name: MessageName<'_>,
        part: i32,
        reference: &str,
    ) -> Result<(), MemoryError> {
        self.inner.remember(name, part, reference).await
    }

    async fn forget(&self, name: MessageName<'_>, part: i32) -> Result<(), MemoryError> {
        self.inner.forget(name, part).await
    }

    async fn given_up(
        &self,
        subscription: &str,
        session: &str,
        seqs: &[i64],
    ) -> Result<Vec<i64>, MemoryError> {
        assert_eq!((subscription, session), ("bob", "s"));
        let given_up = self.seqs.lock().unwrap();
        Ok(seqs
            .iter()
            .copied()
            .filter(|seq| given_up.contains(seq))
            .collect())
    }
}

#[tokio::test]
async fn the_tasks_of_messages_that_were_given_up_are_cancelled_before_the_next_is_sent() {
    for cancels in [true, false] {
        let server = HttpServer::start(move |request| {
            let call = body(request);
            let of = |message: &Value| format!("t-{}", message["metadata"]["lanekeeper"]["seq"]);
            match call["method"].as_str().unwrap() {
                "SendMessage" => {
                    let id = of(&call["params"]["message"]);
                    rpc(request, "result", &json!({"task": task(&id, WORKING)}))
                }
                "CancelTask" if cancels => {
                    let id = call["params"]["id"].as_str().unwrap();
                    rpc(request, "result", &task(id, "TASK_STATE_CANCELED"))
                }
                "CancelTask" => rpc(request, "error", &json!({"code": -32002, "message": "no"})),
                _ => rpc(
                    request,
                    "result",
                    &task(call["params"]["id"].as_str().unwrap(), WORKING),
                ),
            }
        })
        .await;
        let memory = Arc::new(GivingUp {
            inner: ProcessMemory::default(),
            seqs: Mutex::default(),
        });
        let more = json!({"acknowledge_on": "completed", "timeout_ms": 100});
        let adapter = with_memory(&server, &more, Arc::clone(&memory) as Arc<dyn Memory>);
        for seq in [1, 2] {
            assert_eq!(
                deliver(&*adapter, &event("s", seq, "1")).await,
                Verdict::Sent
            );
        }
        let cancelled = || -> Vec<String> {
            let calls: Vec<Value> = server.log().requests.iter().map(body).collect();
            let cancels = calls.iter().filter(|call| call["method"] == "CancelTask");
            cancels
                .map(|call| call["params"]["id"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(cancelled(), [""; 0], "the window has room for both");
        *memory.seqs.lock().unwrap() = vec![1];
        assert_eq!(deliver(&*adapter, &event("s", 3, "1")).await, Verdict::Sent);
        assert_eq!(cancelled(), ["t-1"]);
        let last: Vec<String> = methods(&server);
        let cancel = last
            .iter()
            .position(|method| method == "CancelTask")
            .unwrap();
        assert_eq!(last[cancel + 1], "SendMessage");
        assert_eq!(deliver(&*adapter, &event("s", 4, "1")).await, Verdict::Sent);
        assert_eq!(cancelled(), ["t-1"], "once");
    }
}
