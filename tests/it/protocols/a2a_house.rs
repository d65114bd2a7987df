//! The fixture: a worker that is an agent for callers who speak A2A, and calls to it.

use std::sync::atomic::{AtomicU32, Ordering};

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::site::{Answer, Site};
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::support::{SECRET_ENV, wait_until};

/// Where the agent `inbox` is called.
pub(super) const PATH: &str = "/v1/agents/inbox/a2a";

/// A site whose stream `inbox` is an agent, which a webhook delivers.
pub(super) struct House {
    pub(super) site: Site,
}

impl House {
    pub(super) async fn open() -> Self {
        Self::with("", "").await
    }

    /// `agent` is of the agent, `subscription` of the subscription.
    pub(super) async fn with(agent: &str, subscription: &str) -> Self {
        let site = Site::open(&[]).await;
        let house = Self { site };
        house
            .apply(&format!(
                "[stream.inbox]\nretry = {{ schedule = [\"50ms\"] }}\n\
                 [stream.inbox.a2a]\nurl = \"{}\"\ndescription = \"Takes notes\"\n{agent}\n\
                 [subscription.desk]\nstream = \"inbox\"\nadapter = \"webhook\"\nurl = \"{}\"\n\
                 secret_env = \"{SECRET_ENV}\"\n{subscription}\n",
                house.site.worker.http(),
                house.site.plant.receiver.url(),
            ))
            .await;
        house
    }

    pub(super) async fn apply(&self, file: &str) {
        let ran = run(
            &["apply", "-f", "-"],
            &[("DATABASE_URL", &self.site.plant.url)],
            file,
        )
        .await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }

    /// The token of somebody who sends and reads.
    pub(super) async fn sender(&self, name: &str, more: &[&str]) -> String {
        let scopes = [name, "--scope", "produce", "--scope", "read"];
        self.site.token(&[&scopes[..], more].concat()).await
    }

    /// Stops and restarts the delivery. Returns when the worker knows.
    pub(super) async fn pause(&self, reason: Option<&str>) {
        let pause = "SELECT lanekeeper.pause_subscription('desk', $1)";
        let client = &self.site.plant.client;
        assert!(
            client
                .query_one(pause, &[&reason])
                .await
                .unwrap()
                .get::<_, bool>(0)
        );
        // It loads all subscriptions at once: when it reports a newer one, it has seen the pause.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("newer-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let newer = format!("[subscription.{name}]\nstream = \"runs\"\nadapter = \"stdout\"\n");
        self.apply(&newer).await;
        let reported = format!(
            "SELECT count(*) FROM lanekeeper.subscription_report JOIN lanekeeper.subscription AS s USING (subscription_id)
             WHERE s.name = '{name}'"
        );
        wait_until(LIMIT, "the worker knows", async || {
            self.count(&reported).await > 0
        })
        .await;
    }

    pub(super) async fn post(&self, token: &str, version: &str, body: String) -> Answer {
        let request = self.site.request(Method::POST, PATH).bearer_auth(token);
        let request = request.header("A2A-Version", version).body(body);
        Answer::of(request.send().await.unwrap()).await
    }

    /// What a method answers: its result, or the code of its error.
    pub(super) async fn call(
        &self,
        token: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, i64> {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let answer = self.post(token, "1.0", body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.body["id"], 7);
        match &answer.body["error"] {
            Value::Null => Ok(answer.body["result"].clone()),
            error => Err(error["code"].as_i64().unwrap()),
        }
    }

    /// Sends a message, and does not wait for its task.
    pub(super) async fn send(&self, token: &str, id: &str, context: &str) -> Value {
        let sent = self
            .call(token, "SendMessage", message(id, context, true))
            .await;
        sent.unwrap()["task"].clone()
    }

    pub(super) async fn task(&self, token: &str, id: &str) -> Result<Value, i64> {
        self.call(token, "GetTask", json!({"id": id})).await
    }

    pub(super) async fn count(&self, query: &str) -> i64 {
        self.site.plant.count(query).await
    }
}

pub(super) fn message(id: &str, context: &str, immediately: bool) -> Value {
    json!({
        "message": {"messageId": id, "contextId": context, "role": "ROLE_USER", "parts": [{"text": format!("note {id}")}]},
        "configuration": {"returnImmediately": immediately},
    })
}

pub(super) fn state(task: &Value) -> &str {
    let state = task["status"]["state"].as_str().unwrap();
    state.strip_prefix("TASK_STATE_").unwrap()
}
