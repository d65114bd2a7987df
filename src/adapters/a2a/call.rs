//! The calls to an agent, in the two bindings over HTTP.
//!
//! | call | JSON-RPC | HTTP+JSON |
//! |---|---|---|
//! | send a message | `SendMessage` | `POST /message:send` |
//! | get a task | `GetTask` | `GET /tasks/{id}` |
//! | cancel a task | `CancelTask` | `POST /tasks/{id}:cancel` |

use std::time::Duration;

use lanekeeper_core::a2a::VERSION;
use lanekeeper_core::adapter::Delivery;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use super::reply::{self, Answer, Failure};
use super::settings::Binding;
use crate::http;

/// Where an agent is, and how it is spoken to.
pub(super) struct Caller {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) binding: Binding,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) tenant: Option<String>,
    /// Of a delivery.
    pub(super) timeout: Duration,
}

/// What is asked of an agent.
#[derive(Clone, Copy)]
pub(super) enum Call<'a> {
    /// With the JSON text of the message and of the configuration.
    Send(&'a RawValue, &'a Value),
    Get(&'a str),
    Cancel(&'a str),
}

impl Caller {
    /// Asks the agent.
    pub(super) async fn call(
        &self,
        call: Call<'_>,
        delivery: &Delivery<'_>,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let rpc_id = Uuid::now_v7().to_string();
        let (method, url, body) = match self.binding {
            Binding::JsonRpc => (
                Method::POST,
                self.url.clone(),
                Some(self.rpc(call, &rpc_id)),
            ),
            Binding::HttpJson => self.resource(call),
        };
        let mut request = self
            .client
            .request(method, url)
            .headers(self.headers(delivery));
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = http::send(request, delivery, &self.url, (deadline, self.timeout)).await;
        let response = response.map_err(Failure::Of)?;
        reply::read(self, call, response, &rpc_id, deadline).await
    }

    fn headers(&self, delivery: &Delivery<'_>) -> HeaderMap {
        let media_type = match self.binding {
            Binding::JsonRpc => "application/json",
            Binding::HttpJson => "application/a2a+json",
        };
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, application/a2a+json"),
        );
        headers.insert("a2a-version", HeaderValue::from_static(VERSION));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        http::trace(delivery, &mut headers);
        headers
    }

    fn rpc(&self, call: Call<'_>, rpc_id: &str) -> Vec<u8> {
        let (method, mut params) = match call {
            Call::Send(message, configuration) => ("SendMessage", sending(message, configuration)),
            Call::Get(id) => ("GetTask", fields(&json!({"id": id, "historyLength": 0}))),
            Call::Cancel(id) => ("CancelTask", fields(&json!({"id": id}))),
        };
        if let Some(tenant) = &self.tenant {
            params.push(format!("\"tenant\":{}", Value::from(tenant.as_str())));
        }
        let params = params.join(",");
        format!(r#"{{"jsonrpc":"2.0","id":"{rpc_id}","method":"{method}","params":{{{params}}}}}"#)
            .into_bytes()
    }

    fn resource(&self, call: Call<'_>) -> (Method, Url, Option<Vec<u8>>) {
        let (method, segments, query, body) = match call {
            Call::Send(message, configuration) => {
                let body = format!("{{{}}}", sending(message, configuration).join(","));
                (
                    Method::POST,
                    vec!["message:send".to_owned()],
                    None,
                    Some(body.into_bytes()),
                )
            }
            Call::Get(id) => {
                let segments = vec!["tasks".to_owned(), id.to_owned()];
                (Method::GET, segments, Some("historyLength=0"), None)
            }
            Call::Cancel(id) => {
                let segments = vec!["tasks".to_owned(), format!("{id}:cancel")];
                (Method::POST, segments, None, Some(b"{}".to_vec()))
            }
        };
        let mut url = self.url.clone();
        // Fails for URLs that cannot be posted to, which the settings refuse.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&self.tenant).extend(segments);
        }
        if let Some(query) = query {
            let query = match url.query() {
                Some(own) => format!("{own}&{query}"),
                None => query.to_owned(),
            };
            url.set_query(Some(&query));
        }
        (method, url, body)
    }
}

/// The members of a request to send.
fn sending(message: &RawValue, configuration: &Value) -> Vec<String> {
    vec![
        format!("\"message\":{}", message.get()),
        format!("\"configuration\":{configuration}"),
    ]
}

fn fields(object: &Value) -> Vec<String> {
    let members = object.as_object().into_iter().flatten();
    members
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect()
}
