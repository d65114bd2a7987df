//! The card by which callers find out how the agent is called.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use lanekeeper_core::a2a::VERSION;
use lanekeeper_core::subscription::agent::AgentDefinition;
use serde_json::{Value, json};

use crate::events::json as answer_json;

pub(super) fn answer(agent: &AgentDefinition, stream: &str) -> Response {
    let body = card(agent, stream).to_string().into_bytes();
    let mut answer = answer_json(StatusCode::OK, body);
    let cached = HeaderValue::from_static("public, max-age=60");
    answer.headers_mut().insert(header::CACHE_CONTROL, cached);
    answer
}

fn card(agent: &AgentDefinition, stream: &str) -> Value {
    let skills = if agent.skills.is_empty() {
        // A card has one at least.
        json!([{
            "id": stream,
            "name": agent.name,
            "description": agent.description,
            "tags": ["messages"],
        }])
    } else {
        json!(agent.skills)
    };
    json!({
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "supportedInterfaces": [{
            // The names of streams need no escapes.
            "url": format!("{}/v1/agents/{stream}/a2a", agent.url),
            "protocolBinding": "JSONRPC",
            "protocolVersion": VERSION,
        }],
        "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": false},
        "securitySchemes": {"token": {"httpAuthSecurityScheme": {
            "scheme": "Bearer",
            "description": "An access token of Lanekeeper",
        }}},
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": skills,
    })
}
