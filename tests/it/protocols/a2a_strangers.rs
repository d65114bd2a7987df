//! A2A 1.0: agents whose answers are none, and tasks that are wanted no more.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_adapters::{Environment, build, check};
use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::memory::{Memory, MemoryError, MessageName, ProcessMemory};
use serde_json::{Value, json};

use super::a2a_answers::{
    COMPLETED, WORKING, adapter, body, completed, deliver, methods, rpc, task, with_memory,
};
use crate::conformance::destination::{event, rejection, retry_error};
use crate::conformance::http_server::{HttpServer, Reply, Request};

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

type Case = (&'static str, fn(&Request) -> Reply);

#[tokio::test]
async fn a_refusal_is_final_and_redirects_lead_nowhere() {
    let cases: [Case; 4] = [
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
