//! The fixture: a worker process with its API, and requests to it.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use super::contract::assert_documented;
use crate::command::run;
use crate::process::plant::Plant;
use crate::support::WorkerProcess;

pub(crate) struct Site {
    pub(crate) plant: Plant,
    pub(crate) worker: WorkerProcess,
    client: Client,
}

impl Site {
    pub(crate) async fn open(variables: &[(&str, &str)]) -> Self {
        // Fails only where it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let plant = Plant::new(Duration::ZERO).await;
        // As on a developer's machine.
        let open = [("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true")];
        let worker = plant.worker(&[&open, variables].concat()).await;
        Self::of(plant, worker)
    }

    /// With a worker of another kind.
    pub(crate) fn of(plant: Plant, worker: WorkerProcess) -> Self {
        let client = Client::new();
        Self {
            plant,
            worker,
            client,
        }
    }

    pub(crate) fn events(&self, method: Method, stream: &str, session: &str) -> RequestBuilder {
        let path = format!("/v1/streams/{stream}/sessions/{session}/events");
        self.client.request(method, self.worker.http() + &path)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.worker.http() + path)
    }

    pub(crate) fn read(&self, session: &str, query: &str) -> RequestBuilder {
        let path = format!("/v1/streams/runs/sessions/{session}/events?{query}");
        self.client.get(self.worker.http() + &path)
    }

    pub(crate) async fn post(&self, session: &str, body: &str) -> Answer {
        let request = self.events(Method::POST, "runs", session);
        Answer::of(request.body(body.to_owned()).send().await.unwrap()).await
    }

    /// A token that `token create` makes with these arguments.
    pub(crate) async fn token(&self, arguments: &[&str]) -> String {
        let arguments = [&["token", "create"], arguments].concat();
        let ran = run(&arguments, &[("DATABASE_URL", &self.plant.url)], "").await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    }

    pub(crate) async fn logged_events(&self) -> i64 {
        self.plant
            .count("SELECT count(*) FROM lanekeeper.event")
            .await
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) challenge: Option<String>,
    pub(crate) kind: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let status = response.status().as_u16();
        let retry_after = header("retry-after").map(|after| after.parse().unwrap());
        let challenge = header("www-authenticate");
        let kind = header("content-type").unwrap_or_default();
        let path = response.url().path().to_owned();
        let body = response.bytes().await.unwrap();
        assert_documented(&path, status, &kind, &body);
        Self {
            status,
            retry_after,
            challenge,
            kind,
            body: serde_json::from_slice(&body).unwrap(),
        }
    }

    /// It is a problem document of this kind.
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        let Self { body, kind, .. } = self;
        assert_eq!(
            (self.status, &body["code"]),
            (status, &Value::from(code)),
            "{body}"
        );
        assert_eq!(kind, "application/problem+json");
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], format!("urn:lanekeeper:problem:{code}"));
        let detail = body["detail"].as_str().unwrap();
        assert!(!detail.is_empty() && body["title"].is_string(), "{body}");
    }
}
