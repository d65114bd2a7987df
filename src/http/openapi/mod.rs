//! `/openapi.json`: the API as an OpenAPI 3.1 document, made from the operations of the routes and the types that
//! handlers read and answer with.
//!
//! It needs no access token: it says what this release can do, and nothing of an installation.

pub mod operation;
mod parameter;

use axum::http::StatusCode;
use lanekeeper_postgres::token::Scope;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use self::operation::{Answer, Header, Operation, SchemaOf};
use crate::problem::Document as Problem;
use crate::problem_type::ProblemType;

const COMPONENTS: &str = "/components/schemas";
const PROBLEM: &str = "application/problem+json";
/// The name of the only security scheme.
const TOKEN: &str = "token";

/// The document.
pub fn document(operations: &[Operation]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for operation in operations {
        let path = paths
            .entry(operation.path.to_owned())
            .or_insert_with(|| Value::Object(Map::new()));
        let method = operation.method.as_str().to_ascii_lowercase();
        path[method] = schemas.operation(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lanekeeper",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable, strictly ordered delivery of AI-agent session events from PostgreSQL.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {
                TOKEN: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token, as `lanekeeper token create` prints it.",
                },
            },
        },
    })
}

/// Makes schemas and remembers those that have a name. What is read and what is written differ: a member that may be left
/// out of a request is there in every answer.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = COMPONENTS.into();
                settings.meta_schema = None;
            })
        };
        Self {
            read: settings().for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    fn components(mut self) -> Map<String, Value> {
        let mut all = self.read.take_definitions(true);
        all.extend(self.written.take_definitions(true));
        all
    }

    fn operation(&mut self, operation: &Operation) -> Value {
        let mut it = json!({
            "operationId": operation.id,
            "summary": operation.summary,
            "description": description(operation),
            "tags": [tag(operation.path)],
            "responses": self.responses(operation),
        });
        let mut parameters: Vec<Value> = operation.path_parameters().map(parameter::path).collect();
        if let Some(query) = operation.query {
            parameters.extend(parameter::query(query(&mut self.read).into()));
        }
        parameters.extend(operation.headers.iter().map(parameter::header));
        if !parameters.is_empty() {
            it["parameters"] = parameters.into();
        }
        if let Some(body) = &operation.body {
            let content: Map<String, Value> = body
                .forms
                .iter()
                .map(|form| {
                    let schema = one_of(&mut self.read, &form.shapes);
                    (form.kind.to_owned(), json!({"schema": schema}))
                })
                .collect();
            it["requestBody"] = json!({"required": body.required, "content": content});
        }
        if !operation.scopes.is_empty() {
            let mut security = vec![json!({TOKEN: []})];
            if operation.takes_link {
                security.push(json!({}));
            }
            it["security"] = security.into();
        }
        it
    }

    fn responses(&mut self, operation: &Operation) -> Map<String, Value> {
        let mut all = Map::new();
        for answer in &operation.answers {
            all.insert(answer.status.to_string(), self.answer(answer));
        }
        let mut problems = operation.all_problems();
        problems.sort_by_key(|of| (of.status.as_u16(), of.code));
        for alike in problems.chunk_by(|one, other| one.status == other.status) {
            all.insert(alike[0].status.as_str().to_owned(), self.refusal(alike));
        }
        all
    }

    fn answer(&mut self, answer: &Answer) -> Value {
        let mut it = json!({"description": answer.says});
        if let Some(kind) = answer.kind {
            let schema = one_of(&mut self.written, &answer.shapes);
            it["content"] = json!({kind: {"schema": schema}});
        }
        if !answer.headers.is_empty() {
            it["headers"] = answer
                .headers
                .iter()
                .map(told)
                .collect::<Map<_, _>>()
                .into();
        }
        it
    }

    /// The problems of one status.
    fn refusal(&mut self, alike: &[ProblemType]) -> Value {
        let problem = self.written.subschema_for::<Problem>();
        let mut codes: Vec<&str> = alike.iter().map(|of| of.code).collect();
        codes.dedup();
        let says: Vec<String> = alike
            .iter()
            .map(|of| format!("`{}`: {}", of.code, of.says.trim()))
            .collect();
        let mut it = json!({
            "description": says.join("\n\n"),
            "content": {PROBLEM: {"schema": {
                "allOf": [problem, {"properties": {"code": {"enum": codes}}}],
            }}},
        });
        let header = match alike[0].status {
            StatusCode::UNAUTHORIZED => Some(("WWW-Authenticate", "`Bearer`.")),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some((
                "Retry-After",
                "Seconds after which the request may be repeated.",
            )),
            _ => None,
        };
        if let Some((name, says)) = header {
            let (name, header) = told(&Header { name, says });
            it["headers"] = json!({name: header});
        }
        it
    }
}

fn told(header: &Header) -> (String, Value) {
    let says = json!({"description": header.says, "schema": {"type": "string"}});
    (header.name.to_owned(), says)
}

fn one_of(generator: &mut SchemaGenerator, shapes: &[SchemaOf]) -> Value {
    match shapes {
        [shape] => shape(generator).into(),
        shapes => {
            let shapes: Vec<_> = shapes.iter().map(|shape| shape(generator)).collect();
            json!({"anyOf": shapes})
        }
    }
}

/// The part of the API that a path belongs to.
fn tag(path: &str) -> &str {
    match path.strip_prefix("/v1/") {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => "worker",
    }
}

fn description(operation: &Operation) -> String {
    let scopes: Vec<String> = operation
        .scopes
        .iter()
        .map(|scope: &Scope| format!("`{}`", scope.as_str()))
        .collect();
    let access = match (scopes.as_slice(), operation.takes_link) {
        ([], _) => match operation.proof {
            Some(proof) => proof.to_owned(),
            None => "Needs no access token.".to_owned(),
        },
        ([one], false) => format!("Scope: {one}."),
        ([one], true) => format!("Scope: {one}; or a signed link instead of a token."),
        (all, _) => format!("Scopes: {}.", all.join(" and ")),
    };
    match operation.details {
        "" => access,
        details => format!("{details} {access}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    #[test]
    fn operations_have_ids_of_their_own_and_say_what_they_answer() {
        let operations = api::operations();
        let mut ids: Vec<&str> = operations.iter().map(|it| it.id).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id stands twice among {ids:?}");
        for operation in &operations {
            let id = operation.id;
            assert!(!operation.answers.is_empty(), "{id} answers nothing");
            assert!(operation.path.starts_with('/'), "{id}");
            let ends_well = !operation.summary.ends_with('.');
            assert!(ends_well, "{id}: a summary is no sentence");
        }
    }

    #[test]
    fn every_reference_leads_to_a_component_and_no_two_types_share_a_name() {
        let document = document(&api::operations());
        let text = document.to_string();
        let components = document["components"]["schemas"].as_object().unwrap();
        for piece in text.split("\"$ref\":\"").skip(1) {
            let (reference, _) = piece.split_once('"').unwrap();
            let (_, name) = reference.rsplit_once('/').unwrap();
            assert_eq!(reference, format!("#{COMPONENTS}/{name}"));
            assert!(components.contains_key(name), "{reference} leads nowhere");
        }
        for name in components.keys() {
            // As schemars names the second type of a name.
            let is_second = name.ends_with(|last: char| last.is_ascii_digit());
            assert!(!is_second, "{name}: rename one of the types");
        }
    }

    #[test]
    fn a_type_that_is_read_and_written_looks_the_same_both_ways() {
        let mut schemas = Schemas::new();
        for operation in &api::operations() {
            schemas.operation(operation);
        }
        let read = schemas.read.take_definitions(true);
        let written = schemas.written.take_definitions(true);
        for (name, schema) in &read {
            let other = written.get(name).unwrap_or(schema);
            assert_eq!(schema, other, "{name}: rename one of the two");
        }
    }
}
