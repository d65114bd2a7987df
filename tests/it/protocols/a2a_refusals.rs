//! A2A 1.0: an agent behind a queue: who may not call it, and with what; its card, and what makes no agent.

use reqwest::Method;
use serde_json::{Value, json};

use super::a2a_house::{House, PATH, message, state};
use crate::api::site::Answer;
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const EVENTS: &str = "SELECT count(*) FROM lanekeeper.event";

#[tokio::test(flavor = "multi_thread")]
async fn nobody_finds_the_task_of_another_and_a_token_does_what_it_is_good_for() {
    let house = House::open().await;
    house.pause(Some("a test")).await;
    let alice = house.sender("alice", &["--session", "a*"]).await;
    let bob = house.sender("bob", &[]).await;
    house.send(&alice, "m1", "a1").await;
    for id in ["task-m1", "task-m2", "m1", ""] {
        assert_eq!(house.task(&bob, id).await, Err(-32001), "{id}");
        let cancel = house.call(&bob, "CancelTask", json!({"id": id})).await;
        assert_eq!(cancel, Err(-32001), "{id}");
        let follow = house.call(&bob, "SubscribeToTask", json!({"id": id})).await;
        assert_eq!(follow, Err(-32001), "{id}");
    }
    // Bob's message of the same id, in the same context, is another.
    assert_eq!(
        house.send(&bob, "m1", "a1").await["metadata"]["lanekeeper"]["seq"],
        2
    );
    assert_eq!(
        house.task(&alice, "task-m1").await.unwrap()["metadata"]["lanekeeper"]["seq"],
        1
    );

    let send = |context: &str| {
        let params = message("m2", context, true);
        json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).to_string()
    };
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "task-m1"}});
    let cancel =
        json!({"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": "task-m1"}});
    let reader = house.site.token(&["reader", "--scope", "read"]).await;
    let producer = house.site.token(&["producer", "--scope", "produce"]).await;
    let operator = house.site.token(&["operator", "--scope", "operate"]).await;
    let elsewhere = house.sender("elsewhere", &["--stream", "runs"]).await;
    for (token, body) in [
        // A forged context, and none, which would be a new one.
        (&alice, send("b1")),
        (&alice, send("")),
        (&reader, send("a1")),
        (&reader, cancel.to_string()),
        (&producer, get.to_string()),
        (&operator, get.to_string()),
        (&elsewhere, send("a1")),
        (&elsewhere, get.to_string()),
    ] {
        house
            .post(token, "1.0", body)
            .await
            .assert_problem(403, "forbidden");
    }
    house
        .post("lk_1_x", "1.0", get.to_string())
        .await
        .assert_problem(401, "unauthorized");
    let other = house
        .site
        .request(Method::POST, "/v1/agents/runs/a2a")
        .bearer_auth(&bob);
    let other = other.body(get.to_string()).send().await.unwrap();
    Answer::of(other).await.assert_problem(404, "not_found");
    assert_eq!(house.count(EVENTS).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_calls_are_errors_of_json_rpc_and_append_nothing() {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    let send = |message: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{message}}}}}"#
        )
    };
    let with = |parts: &str| {
        send(&format!(
            r#"{{"messageId":"m","role":"ROLE_USER","contextId":"c","parts":{parts}}}"#
        ))
    };
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let many = format!("[{}{{\"text\":\"a\"}}]", "{\"text\":\"a\"},".repeat(100));
    let good = with(r#"[{"text":"a"}]"#);
    for (version, body, code) in [
        ("0.3", good.clone(), -32009),
        ("", good.clone(), -32009),
        ("1.0", "{".to_owned(), -32700),
        ("1.0", format!("[{good}]"), -32600),
        ("1.0", good.replace("SendMessage", "message/send"), -32601),
        ("1.0", good.replace("SendMessage", "ListTasks"), -32004),
        ("1.0", good.replace("\"contextId\"", "\"taskId\""), -32004),
        ("1.0", with("[]"), -32602),
        ("1.0", with(r#"[{"text":"a","url":"b"}]"#), -32602),
        ("1.0", with(&many), -32602),
        ("1.0", with(&format!(r#"[{{"data":{deep}}}]"#)), -32602),
        ("1.0", with(r#"[{"text":"\u0000"}]"#), -32602),
        ("1.0", send(&deep), -32602),
        (
            "1.0",
            good.replace(
                r#""contextId":"c""#,
                &format!(r#""contextId":"{}""#, "c".repeat(513)),
            ),
            -32602,
        ),
        (
            "1.0",
            good.replace(
                r#"[{"text":"a"}]"#,
                &format!(r#"[{{"text":"{}"}}]"#, "a".repeat(1_100_000)),
            ),
            -32602,
        ),
    ] {
        let answer = house.post(&token, version, body).await;
        let error = &answer.body["error"];
        assert_eq!(
            (answer.status, &error["code"]),
            (200, &json!(code)),
            "{}",
            answer.body
        );
        assert!(answer.body.to_string().len() < 2_000);
    }
    assert_eq!(house.count(EVENTS).await, 0);
    assert_eq!(
        house.post(&token, "1.0", good).await.body["error"],
        Value::Null
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_says_how_the_agent_is_called_and_other_streams_have_none() {
    let house = House::with("name = \"Desk\"\nskills = [{ id = \"n\", name = \"Notes\", description = \"Takes them\", tags = [\"notes\"] }]", "").await;
    let card = |stream: &str| {
        let path = format!("/v1/agents/{stream}/a2a/.well-known/agent-card.json");
        house.site.request(Method::GET, &path).send()
    };
    let found = Answer::of(card("inbox").await.unwrap()).await;
    let interface = json!([{
        "url": house.site.worker.http() + PATH, "protocolBinding": "JSONRPC", "protocolVersion": "1.0",
    }]);
    assert_eq!(
        (&found.body["name"], &found.body["supportedInterfaces"]),
        (&json!("Desk"), &interface)
    );
    assert_eq!(found.body["skills"][0]["id"], "n");
    for other in ["runs", "none"] {
        Answer::of(card(other).await.unwrap())
            .await
            .assert_problem(404, "not_found");
    }
    house.apply("[stream.inbox]\na2a = false\n").await;
    wait_until(LIMIT, "it is no agent any more", async || {
        card("inbox").await.unwrap().status() == 404
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_agent_is_refused_with_its_key_and_an_agent_that_is_not_named_stays() {
    let house = House::open().await;
    let url = "url = \"https://a.example\"";
    let description = "description = \"d\"";
    for (agent, key) in [
        (url.to_owned(), "description"),
        (description.to_owned(), "url"),
        (format!("url = \"ftp://a.example\"\n{description}"), "url"),
        (
            format!("url = \"https://u:p@a.example\"\n{description}"),
            "url",
        ),
        (
            format!("url = \"https://a.example?x\"\n{description}"),
            "url",
        ),
        (format!("{url}\n{description}\nwait = \"2m\""), "wait"),
        (
            format!("{url}\n{description}\ncomplete_on = \"done\""),
            "complete_on",
        ),
        (
            format!("{url}\n{description}\nevent_type = \"*\""),
            "event_type",
        ),
        (
            format!("{url}\n{description}\nskills = [{{ id = \"a\" }}]"),
            "skills",
        ),
        (format!("{url}\n{description}\nskill = []"), "skill"),
    ] {
        let file = format!("[stream.inbox.a2a]\n{agent}\n");
        let ran = run(
            &["apply", "-f", "-"],
            &[("DATABASE_URL", &house.site.plant.url)],
            &file,
        )
        .await;
        let named = ran.stderr.contains(&format!("stream.inbox.a2a.{key}"));
        assert!(
            ran.code == Some(2) && named,
            "{agent}: {:?} {}",
            ran.code,
            ran.stderr
        );
    }
    let ran = run(
        &["apply", "-f", "-"],
        &[("DATABASE_URL", &house.site.plant.url)],
        "[stream.inbox]\na2a = true\n",
    )
    .await;
    assert!(ran.stderr.contains("stream.inbox.a2a"), "{}", ran.stderr);
    house
        .apply("[stream.inbox]\nmax_payload_bytes = 2048\n")
        .await;
    let token = house.sender("app", &[]).await;
    let sent = house
        .call(&token, "SendMessage", message("m1", "c", false))
        .await
        .unwrap();
    assert_eq!(state(&sent["task"]), "COMPLETED");
}
