//! docs/reference/http.md, generated from the OpenAPI document.

use std::fmt::Write as _;

use serde_json::Value;

use super::{code, keep, page, table};
use crate::api::contract::DOCUMENT;

/// The order of the parts: first what producers need, then consumers, operators, and what belongs to no stream.
const PARTS: [(&str, &str); 16] = [
    (
        "streams",
        "Events of sessions: appending, reading, following, interrupting.",
    ),
    ("inbound", "What people write to agents."),
    ("sources", "Signed requests of platforms."),
    ("agents", "Frames of other agents."),
    ("a2a", "Push notifications of agents that speak A2A."),
    ("acks", "Acknowledgements of messages."),
    ("messages", "Messages that wait."),
    (
        "documents",
        "Documents, each written together with its event.",
    ),
    ("sessions", "Sessions as operators see them."),
    ("lanes", "One session on its way to one destination."),
    ("subscriptions", "Where a stream's events go."),
    ("replays", "Past events, delivered again."),
    ("dead-letters", "Events that were given up."),
    (
        "destinations",
        "Where subscriptions deliver to, with limits and circuits.",
    ),
    ("workers", "The processes that deliver."),
    (
        "worker",
        "Of one worker process: probes, metrics, the document.",
    ),
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// In a cell: one line.
fn line(value: &Value) -> String {
    text(value).replace('\n', " ")
}

/// How a schema reads in a cell.
fn shape(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(shapes) = schema[key].as_array() {
            let shapes: Vec<String> = shapes.iter().map(shape).collect();
            return shapes.join(" or ");
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values
            .iter()
            .map(|value| code(&value.to_string()))
            .collect();
        return values.join(", ");
    }
    if let Some(value) = schema.get("const") {
        return code(&value.to_string());
    }
    let format = schema["format"].as_str();
    let named = |name: &str| match (name, format) {
        ("array", _) => format!("array of {}", shape(&schema["items"])),
        ("string", Some(format)) => format.to_owned(),
        (name, _) => name.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => named(name),
        Value::Array(names) => {
            let names: Vec<String> = names.iter().map(|name| named(text(name))).collect();
            names.join(" or ")
        }
        _ => "any JSON".to_owned(),
    }
}

fn operation(text_of: &mut String, method: &str, path: &str, it: &Value) {
    let method = method.to_ascii_uppercase();
    writeln!(text_of, "\n### {method} {path}\n").unwrap();
    writeln!(
        text_of,
        "{}. {}",
        text(&it["summary"]),
        text(&it["description"])
    )
    .unwrap();
    if let Some(parameters) = it["parameters"].as_array() {
        let rows = parameters.iter().map(|parameter| {
            let required = match parameter["required"] == true {
                true => ", required",
                false => "",
            };
            [
                code(text(&parameter["name"])),
                format!("{}{required}", text(&parameter["in"])),
                shape(&parameter["schema"]),
                line(&parameter["description"]),
            ]
        });
        text_of.push_str(&table(["parameter", "in", "type", "meaning"], rows));
    }
    if let Some(content) = it["requestBody"]["content"].as_object() {
        for (kind, content) in content {
            let optional = match it["requestBody"]["required"] == true {
                true => "",
                false => ", optional",
            };
            let shape = shape(&content["schema"]);
            writeln!(text_of, "\nBody ({}{optional}): {shape}.", code(kind)).unwrap();
        }
    }
    let rows = it["responses"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(status, answer)| {
            let (kind, content) = answer["content"]
                .as_object()
                .and_then(|content| content.iter().next())
                .map_or((String::new(), &Value::Null), |(kind, content)| {
                    (kind.clone(), content)
                });
            let problem = kind == "application/problem+json";
            let codes = &content["schema"]["allOf"][1]["properties"]["code"]["enum"];
            let (says, shape) = match (problem, content.is_null()) {
                (true, _) => {
                    let codes = codes.as_array().unwrap().iter();
                    let codes: Vec<String> = codes.map(|one| code(text(one))).collect();
                    (codes.join(", "), "[Problem](#problem)".to_owned())
                }
                (false, true) => (line(&answer["description"]), String::new()),
                (false, false) => (line(&answer["description"]), shape(&content["schema"])),
            };
            [status.clone(), says, shape]
        });
    text_of.push_str(&table(["status", "meaning", "body"], rows));
}

fn component(text_of: &mut String, name: &str, schema: &Value) {
    writeln!(text_of, "\n### {name}").unwrap();
    if let Some(says) = schema["description"].as_str() {
        writeln!(text_of, "\n{}", says.replace('\n', " ")).unwrap();
    }
    let members = schema["properties"].as_object();
    let Some(members) = members.filter(|members| !members.is_empty()) else {
        writeln!(text_of, "\n{}", shape(schema)).unwrap();
        for one in schema["oneOf"].as_array().into_iter().flatten() {
            if let Some(says) = one["description"].as_str() {
                writeln!(text_of, "\n- {}: {says}", shape(one)).unwrap();
            }
        }
        return;
    };
    let required = schema["required"].as_array();
    let rows = members.iter().map(|(name, member)| {
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
        let required = match is_required {
            true => "yes",
            false => "",
        };
        [
            code(name),
            shape(member),
            required.to_owned(),
            line(&member["description"]),
        ]
    });
    text_of.push_str(&table(["member", "type", "required", "meaning"], rows));
}

#[test]
fn the_page_of_the_http_api_is_what_the_document_says() {
    let mut text_of = page(
        "HTTP API",
        "Every operation of a worker's listener, from the OpenAPI 3.1 document that it serves at `/openapi.json` without an \
         access token. [Durable Streams](../durable-streams.md) under `/v1/ds` are not in it. [Operations](../operations.md#over-http) has the whole in words, [errors](errors.md#http) says what \
         the problems' codes mean.",
    );
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let mut known = 0;
    let all: usize = paths.values().map(|it| it.as_object().unwrap().len()).sum();
    for (part, says) in PARTS {
        write!(text_of, "\n## {part}\n\n{says}\n").unwrap();
        for (path, operations) in paths {
            for (method, it) in operations.as_object().unwrap() {
                if it["tags"][0] == part {
                    operation(&mut text_of, method, path, it);
                    known += 1;
                }
            }
        }
    }
    assert_eq!(known, all, "a part of the API is not in PARTS");
    text_of.push_str("\n## Types\n\nA member that is not required may be left out of a request; an answer has it where it is required.\n");
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().unwrap() {
        component(&mut text_of, name, schema);
    }
    keep("http", &text_of);
}
