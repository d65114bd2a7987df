//! The keywords of a schema, and what each of them takes.

use serde_json::{Value, json};

/// What a keyword has.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// It says something, and asks for nothing.
    Annotation,
    /// `$schema` and `$id`.
    Root,
    Definitions,
    Reference,
    /// One schema; `in_place`: of the value itself, not of a part of it.
    Schema {
        in_place: bool,
    },
    Schemas {
        in_place: bool,
    },
    Properties,
    Patterns,
    Names,
    Pattern,
    Plain(fn(&Value) -> Result<Value, String>),
}

const TYPES: &[&str] = &[
    "null", "boolean", "object", "array", "number", "string", "integer",
];

const KEYWORDS: &[(&str, Shape)] = &[
    ("$comment", Shape::Annotation),
    ("$defs", Shape::Definitions),
    ("$id", Shape::Root),
    ("$ref", Shape::Reference),
    ("$schema", Shape::Root),
    ("additionalProperties", Shape::Schema { in_place: false }),
    ("allOf", Shape::Schemas { in_place: true }),
    ("anyOf", Shape::Schemas { in_place: true }),
    ("const", Shape::Plain(|value| Ok(value.clone()))),
    ("contains", Shape::Schema { in_place: false }),
    ("contentEncoding", Shape::Annotation),
    ("contentMediaType", Shape::Annotation),
    ("contentSchema", Shape::Annotation),
    ("default", Shape::Annotation),
    ("definitions", Shape::Definitions),
    ("deprecated", Shape::Annotation),
    ("description", Shape::Annotation),
    ("else", Shape::Schema { in_place: true }),
    ("enum", Shape::Plain(values)),
    ("examples", Shape::Annotation),
    ("exclusiveMaximum", Shape::Plain(number)),
    ("exclusiveMinimum", Shape::Plain(number)),
    ("format", Shape::Annotation),
    ("if", Shape::Schema { in_place: true }),
    ("items", Shape::Schema { in_place: false }),
    ("maxItems", Shape::Plain(count)),
    ("maxLength", Shape::Plain(count)),
    ("maxProperties", Shape::Plain(count)),
    ("maximum", Shape::Plain(number)),
    ("minItems", Shape::Plain(count)),
    ("minLength", Shape::Plain(count)),
    ("minProperties", Shape::Plain(count)),
    ("minimum", Shape::Plain(number)),
    ("multipleOf", Shape::Plain(positive)),
    ("not", Shape::Schema { in_place: true }),
    ("oneOf", Shape::Schemas { in_place: true }),
    ("pattern", Shape::Pattern),
    ("patternProperties", Shape::Patterns),
    ("prefixItems", Shape::Schemas { in_place: false }),
    ("properties", Shape::Properties),
    ("propertyNames", Shape::Schema { in_place: false }),
    ("readOnly", Shape::Annotation),
    ("required", Shape::Names),
    ("then", Shape::Schema { in_place: true }),
    ("title", Shape::Annotation),
    ("type", Shape::Plain(types)),
    ("uniqueItems", Shape::Plain(flag)),
    ("writeOnly", Shape::Annotation),
];

/// Keywords of the standard that the database does not check.
pub(super) const IS_OF_THE_STANDARD: &[&str] = &[
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$vocabulary",
    "additionalItems",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "maxContains",
    "minContains",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// What a keyword takes; `None` for one that is not known.
pub(super) fn shape(name: &str) -> Option<Shape> {
    if name.starts_with("x-") {
        return Some(Shape::Annotation);
    }
    let found = KEYWORDS.iter().find(|(known, _)| *known == name);
    found.map(|(_, shape)| *shape)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().map(|(name, _)| *name)
}

fn types(value: &Value) -> Result<Value, String> {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let is_right = match value {
        Value::Array(names) => !names.is_empty() && names.iter().all(is_type),
        name => is_type(name),
    };
    match is_right {
        true => Ok(value.clone()),
        false => Err(format!(
            "must be one of {}, or a list of them",
            TYPES.join(", ")
        )),
    }
}

fn values(value: &Value) -> Result<Value, String> {
    match value.as_array().is_some_and(|values| !values.is_empty()) {
        true => Ok(value.clone()),
        false => Err("must be a list of one value or more".to_owned()),
    }
}

fn number(value: &Value) -> Result<Value, String> {
    match value.is_number() {
        true => Ok(value.clone()),
        false => Err("must be a number".to_owned()),
    }
}

fn positive(value: &Value) -> Result<Value, String> {
    match value.as_f64().is_some_and(|number| number > 0.0) {
        true => Ok(value.clone()),
        false => Err("must be a number above 0".to_owned()),
    }
}

/// 2.0 is a count too.
fn count(value: &Value) -> Result<Value, String> {
    let whole = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number >= 0.0 && number.fract() == 0.0 && number < 1e15).then_some(number as u64)
    });
    whole
        .map(|count| json!(count))
        .ok_or_else(|| "must be a whole number from 0".to_owned())
}

fn flag(value: &Value) -> Result<Value, String> {
    match value.is_boolean() {
        true => Ok(value.clone()),
        false => Err("must be true or false".to_owned()),
    }
}
