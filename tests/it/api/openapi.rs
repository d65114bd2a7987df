//! The OpenAPI document and the routes of a running worker: neither has what the other lacks.

use std::fs;
use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::Value;

use super::contract::DOCUMENT;
use super::site::Site;
use crate::document::repository;

/// Where handlers are given to a router in another way, and why.
const EXEMPT: [&str; 5] = [
    // Which adds each route together with its operation.
    "src/http/routes.rs",
    // The Durable Streams protocol, which has a specification of its own: the name of a stream has slashes, for which a path
    // of OpenAPI has no parameter, and its content is of any media type.
    "src/http/durable/mod.rs",
    // Pages for browsers.
    "src/dashboard/",
    // The destinations of a demonstration and of measurements.
    "src/cli/demo/",
    "src/bench/",
];

/// What takes something else than an access token, which strangers lack as well: how they are refused.
const OTHER_PROOF: [(&str, u16); 3] = [
    // The card of an agent is for everybody; the stream of this name is none.
    ("/v1/agents/{stream}/a2a/.well-known/agent-card.json", 404),
    // The token that an agent was sent with a message.
    ("/v1/a2a/{subscription}/{message_id}", 401),
    // The signature of a source's platform, of which there is none.
    ("/v1/sources/{name}", 404),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every operation: its path, method, and what the document says of it.
fn operations() -> impl Iterator<Item = (&'static str, Method, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, operations)| {
        let operations = operations.as_object().unwrap().iter();
        operations.map(|(method, operation)| {
            let method = method.to_ascii_uppercase().parse().unwrap();
            (path.as_str(), method, operation)
        })
    })
}

/// A path with something for each parameter.
fn filled(path: &str) -> String {
    let mut filled = String::new();
    for piece in path.split('/').skip(1) {
        filled.push('/');
        filled.push_str(match piece {
            "{message_id}" => "019a5f0e-7c1b-7d3a-9d55-0d1c2b3a4f5e",
            "{lane_id}" | "{dead_id}" | "{replay_id}" => "4711",
            _ if piece.starts_with('{') => "none",
            _ => piece,
        });
    }
    filled
}

#[test]
fn every_route_is_added_together_with_its_operation() {
    let root = repository("");
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        if EXEMPT.iter().any(|exempt| name.starts_with(exempt)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (line, text) in text.lines().enumerate() {
            if text.contains(".route(")
                || text.contains(".route_service(")
                || text.contains(".nest(")
            {
                found.push(format!("{name}:{}: {}", line + 1, text.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "these routes are not in the OpenAPI document. Make them with `Routes::on(get(PATH, \"id\", \"What it does\")…, \
         handler)` (src/http/routes.rs), and merge them in src/http/api.rs:\n{}",
        found.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_of_the_document_is_served_and_no_other_method() {
    let site = Site::open(&[]).await;
    // From now on a request needs a token: what is there refuses, and does nothing.
    site.token(&["ci", "--scope", "read"]).await;
    let all = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let paths = DOCUMENT["paths"].as_object().unwrap();
    for (path, operations) in paths {
        let of_path: Vec<String> = operations
            .as_object()
            .unwrap()
            .keys()
            .map(|method| method.to_ascii_uppercase())
            .collect();
        for method in all {
            let request = site.request(method.parse().unwrap(), &filled(path));
            let response = request.send().await.unwrap();
            let (status, allow) = (
                response.status().as_u16(),
                response.headers().get("allow").cloned(),
            );
            if of_path.iter().any(|one| one == method) {
                assert!(status != 405, "{method} {path} is not served");
                let text = response.text().await.unwrap();
                assert!(
                    !text.contains("\"detail\":\"there is nothing at this path\""),
                    "{method} {path} is not served"
                );
                continue;
            }
            assert_eq!(
                status, 405,
                "{method} {path} is served, and not in the document"
            );
            let allow = allow.unwrap().to_str().unwrap().to_owned();
            let mut allowed: Vec<&str> = allow.split(',').filter(|one| *one != "HEAD").collect();
            let mut wanted: Vec<&str> = of_path.iter().map(String::as_str).collect();
            allowed.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(allowed, wanted, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_needs_no_token_and_everything_else_of_the_api_does() {
    let site = Site::open(&[]).await;
    site.token(&["ci", "--scope", "read"]).await;
    let response = site
        .request(Method::GET, "/openapi.json")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    let served: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(served, *DOCUMENT);
    let mut asked = 0;
    for (path, method, operation) in operations() {
        if !path.starts_with("/v1/") || method == Method::OPTIONS {
            continue;
        }
        let other = OTHER_PROOF.iter().find(|(of, _)| *of == path);
        let takes_token = operation["security"].is_array();
        assert_eq!(takes_token, other.is_none(), "{method} {path}");
        let response = site
            .request(method.clone(), &filled(path))
            .send()
            .await
            .unwrap();
        let refused = other.map_or(401, |(_, status)| *status);
        assert_eq!(response.status(), refused, "{method} {path}");
        let is_asked = response.headers().contains_key("www-authenticate");
        assert_eq!(is_asked, refused == 401, "{method} {path}");
        asked += 1;
    }
    assert!(asked > 30, "{asked}");
}
