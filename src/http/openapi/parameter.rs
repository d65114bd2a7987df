//! Parameters of operations.

use serde_json::{Map, Value, json};

use super::operation::Header;

/// A piece of the path.
pub(super) fn path(name: &str) -> Value {
    let (schema, says) = match name {
        "message_id" => (
            json!({"type": "string", "format": "uuid"}),
            "The message's id.",
        ),
        "lane_id" => (id(), "The lane's id."),
        "dead_id" => (id(), "The dead letter's id."),
        "replay_id" => (id(), "The replay's id."),
        "name" => (text(), "The source's name."),
        "stream" => (text(), "The stream's name."),
        "session" => (text(), "The session's name."),
        "subscription" => (text(), "The subscription's name."),
        "kind" => (text(), "The kind of document."),
        "id" => (text(), "The document's id; a slash in it is written `%2F`."),
        _ => (text(), ""),
    };
    let mut it = json!({"name": name, "in": "path", "required": true, "schema": schema});
    if !says.is_empty() {
        it["description"] = says.into();
    }
    it
}

fn text() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn id() -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 1})
}

/// The members of an object, as parameters of a query.
pub(super) fn query(schema: Value) -> Vec<Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let members = schema["properties"].as_object().cloned();
    let parameter = |(name, mut schema): (String, Value)| {
        let says = schema
            .as_object_mut()
            .and_then(|it| it.remove("description"));
        without_null(&mut schema);
        let is_required = required.contains(&Value::from(name.as_str()));
        let mut it =
            json!({"name": name, "in": "query", "required": is_required, "schema": schema});
        if let Some(says) = says {
            it["description"] = says;
        }
        it
    };
    members
        .unwrap_or_default()
        .into_iter()
        .map(parameter)
        .collect()
}

/// A parameter is there or left out; it is never `null`.
fn without_null(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            schema.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|one| !one.is_null());
    }
    if let Some(Value::Array(shapes)) = schema.get_mut("anyOf") {
        shapes.retain(|one| one["type"] != "null");
        if let [Value::Object(one)] = shapes.as_slice() {
            let one: Map<String, Value> = one.clone();
            schema.remove("anyOf");
            schema.extend(one);
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}

/// A header that a request may have.
pub(super) fn header(Header { name, says }: &Header) -> Value {
    json!({"name": name, "in": "header", "required": false, "description": says, "schema": {"type": "string"}})
}
