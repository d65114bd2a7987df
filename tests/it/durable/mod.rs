//! Sessions as streams of the Durable Streams protocol (D7): `/v1/ds`.

mod access;
mod client;
mod conformance;
mod deliveries;
mod killed;
mod lifetime;
mod producers;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response};
use serde::de::DeserializeOwned;

use crate::api::site::Site;

/// A site that serves the stream `runs` by the protocol.
async fn site() -> Site {
    Site::open(&[
        ("LANEKEEPER_DURABLE_STREAMS__STREAMS", "runs"),
        ("LANEKEEPER_DURABLE_STREAMS__LONG_POLL_MS", "2000"),
    ])
    .await
}

/// A request with headers and a body.
async fn ask(
    site: &Site,
    method: Method,
    path: &str,
    headers: &[(&'static str, &str)],
    body: &str,
) -> Response {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        })
        .collect();
    let request = site.request(method, &format!("/v1/ds/{path}"));
    let request = request.headers(headers).body(body.to_owned());
    request.send().await.unwrap()
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name);
    value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

/// The body of an answer as JSON.
async fn json<T: DeserializeOwned>(response: Response) -> T {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// Creates a stream of JSON.
async fn create(site: &Site, path: &str) {
    let created = ask(site, Method::PUT, path, &[JSON], "").await;
    assert_eq!(created.status(), 201);
}

/// Appends to it; returns the offset behind.
async fn append(site: &Site, path: &str, body: &str) -> String {
    let appended = ask(site, Method::POST, path, &[JSON], body).await;
    assert_eq!(appended.status(), 204);
    header(&appended, "stream-next-offset")
}
