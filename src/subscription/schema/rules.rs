//! Makes of a JSON Schema (2020-12) what `lanekeeper.schema_violation` checks, and refuses what that does not know.
//!
//! The rules are the schema without annotations. Patterns are translated to PostgreSQL's dialect, `required` and the names of
//! `properties` are written as text arrays of PostgreSQL, and the targets of references stand aside, by their reference. A
//! misspelt keyword would be an annotation to the standard, and check nothing: here it is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lanekeeper_core::toml_file::nearest;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::in_place::InPlace;
use super::keyword::{self, Shape};
use super::pattern;

/// Schemas inside each other.
const DEEPEST: usize = 32;
/// Schemas in one, with itself.
const MOST_SCHEMAS: usize = 1_000;
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// What is wrong with a schema, and where in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemaProblem {
    /// A JSON pointer into the schema.
    pub(super) at: String,
    pub(super) reason: String,
}

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, reason } = self;
        match at.as_str() {
            "" => write!(f, "{reason}"),
            at => write!(f, "at {at}: {reason}"),
        }
    }
}

type Judged<T> = Result<T, SchemaProblem>;

fn wrong<T>(at: &str, reason: impl Into<String>) -> Judged<T> {
    Err(SchemaProblem {
        at: at.to_owned(),
        reason: reason.into(),
    })
}

/// The rules of a schema, as `event_schema.rules` has them.
///
/// # Errors
/// The first thing that is wrong with it.
pub(super) fn rules(schema: &Value) -> Judged<Value> {
    let mut reader = Reader::default();
    let rules = reader.schema(schema, "", 1)?;
    let mut refs = Map::new();
    for (target, at) in &reader.refs {
        let Some(rules) = reader.rules.get(target) else {
            return wrong(
                at,
                format!("leads to no schema: there is none at {target:?}"),
            );
        };
        refs.insert(format!("#{target}"), rules.clone());
    }
    reader.in_place.judge()?;
    Ok(json!({ "schema": rules, "refs": refs }))
}

#[derive(Default)]
struct Reader {
    /// The rules of each schema that was read, by its pointer.
    rules: BTreeMap<String, Value>,
    /// Pointers that references lead to, and where one of those is.
    refs: BTreeMap<String, String>,
    in_place: InPlace,
}

impl Reader {
    fn schema(&mut self, schema: &Value, at: &str, depth: usize) -> Judged<Value> {
        if depth > DEEPEST {
            return wrong(at, format!("is deeper than {DEEPEST} schemas"));
        }
        let rules = match schema {
            Value::Bool(_) => schema.clone(),
            Value::Object(keywords) => Value::Object(self.keywords(keywords, at, depth)?),
            _ => return wrong(at, "must be a schema: an object, true or false"),
        };
        self.rules.insert(at.to_owned(), rules.clone());
        if self.rules.len() > MOST_SCHEMAS {
            return wrong(at, format!("has more than {MOST_SCHEMAS} schemas in it"));
        }
        Ok(rules)
    }

    fn keywords(
        &mut self,
        keywords: &Map<String, Value>,
        at: &str,
        depth: usize,
    ) -> Judged<Map<String, Value>> {
        let mut rules = Map::new();
        for (name, value) in keywords {
            let here = below(at, name);
            let Some(shape) = keyword::shape(name) else {
                return wrong(&here, unknown(name));
            };
            let rule = match shape {
                Shape::Annotation => continue,
                Shape::Root => {
                    root(name, value, at, &here)?;
                    continue;
                }
                Shape::Definitions => {
                    self.each_property(value, &here, depth)?;
                    continue;
                }
                Shape::Reference => self.reference(value, at, &here)?,
                Shape::Schema { in_place } => {
                    if name == "items" && value.is_array() {
                        return wrong(
                            &here,
                            "must be a schema: a list of schemas is `prefixItems`",
                        );
                    }
                    if in_place {
                        self.in_place.edge(at, &here);
                    }
                    self.schema(value, &here, depth + 1)?
                }
                Shape::Schemas { in_place } => self.list(value, at, &here, depth, in_place)?,
                Shape::Properties => Value::Object(self.each_property(value, &here, depth)?),
                Shape::Patterns => self.patterns(value, &here, depth)?,
                Shape::Names => names(value, &here)?,
                Shape::Pattern => translated(value, &here)?,
                Shape::Plain(judge) => match judge(value) {
                    Ok(rule) => rule,
                    Err(reason) => return wrong(&here, reason),
                },
            };
            has_no_nul(&rule, &here)?;
            rules.insert(name.clone(), rule);
        }
        if rules.contains_key("additionalProperties") {
            let properties = rules.get("properties").and_then(Value::as_object);
            let names = properties.into_iter().flat_map(Map::keys);
            rules.insert("names".to_owned(), text_array(names.map(String::as_str)));
        }
        if rules.len() == 1 && rules.contains_key("type") {
            rules.insert("only_type".to_owned(), Value::Bool(true));
        }
        Ok(rules)
    }

    fn reference(&mut self, value: &Value, at: &str, here: &str) -> Judged<Value> {
        let target = value.as_str().and_then(|text| text.strip_prefix('#'));
        let target = target.filter(|target| target.is_empty() || target.starts_with('/'));
        let Some(target) = target.and_then(|it| percent_decode_str(it).decode_utf8().ok()) else {
            return wrong(
                here,
                "must lead to a place in this schema, such as \"#/$defs/address\": nothing is fetched",
            );
        };
        self.in_place.edge(at, &target);
        let rule = Value::String(format!("#{target}"));
        self.refs.insert(target.into_owned(), here.to_owned());
        Ok(rule)
    }

    fn list(
        &mut self,
        value: &Value,
        at: &str,
        here: &str,
        depth: usize,
        in_place: bool,
    ) -> Judged<Value> {
        let Some(list) = value.as_array().filter(|list| !list.is_empty()) else {
            return wrong(here, "must be a list of one schema or more");
        };
        let mut rules = Vec::with_capacity(list.len());
        for (index, schema) in list.iter().enumerate() {
            let here = format!("{here}/{index}");
            if in_place {
                self.in_place.edge(at, &here);
            }
            rules.push(self.schema(schema, &here, depth + 1)?);
        }
        Ok(Value::Array(rules))
    }

    fn each_property(
        &mut self,
        value: &Value,
        here: &str,
        depth: usize,
    ) -> Judged<Map<String, Value>> {
        let Some(schemas) = value.as_object() else {
            return wrong(here, "must be an object of schemas");
        };
        let mut rules = Map::new();
        for (name, schema) in schemas {
            let here = below(here, name);
            if name.contains('\0') {
                return wrong(&here, NUL);
            }
            rules.insert(name.clone(), self.schema(schema, &here, depth + 1)?);
        }
        Ok(rules)
    }

    fn patterns(&mut self, value: &Value, here: &str, depth: usize) -> Judged<Value> {
        let Some(schemas) = value.as_object() else {
            return wrong(here, "must be an object of schemas");
        };
        let mut rules = Vec::with_capacity(schemas.len());
        for (pattern, schema) in schemas {
            let here = below(here, pattern);
            let pattern = match pattern::translate(pattern) {
                Ok(pattern) => pattern,
                Err(reason) => return wrong(&here, reason),
            };
            let schema = self.schema(schema, &here, depth + 1)?;
            rules.push(json!({ "pattern": pattern, "schema": schema }));
        }
        Ok(Value::Array(rules))
    }
}

const NUL: &str = "contains \\u0000, which Postgres cannot store";

fn below(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// What stands at the top alone: it says which dialect the schema is of, and its name.
fn root(name: &str, value: &Value, at: &str, here: &str) -> Judged<()> {
    if !at.is_empty() {
        return wrong(here, "may stand at the top of the schema only");
    }
    let dialect = value.as_str().map(|text| text.trim_end_matches('#'));
    match name == "$schema" && dialect != Some(DIALECT) {
        true => wrong(here, format!("must be {DIALECT:?}")),
        false => Ok(()),
    }
}

fn unknown(name: &str) -> String {
    if keyword::IS_OF_THE_STANDARD.contains(&name) {
        return "is a keyword that is not supported: docs/schemas.md lists those that are"
            .to_owned();
    }
    match nearest(name, keyword::names()) {
        Some(meant) => format!("unknown keyword; did you mean {meant}?"),
        None => "unknown keyword: one of your own starts with x-".to_owned(),
    }
}

fn names(value: &Value, here: &str) -> Judged<Value> {
    let Some(list) = value.as_array() else {
        return wrong(here, "must be a list of names");
    };
    let names: BTreeSet<&str> = list.iter().filter_map(Value::as_str).collect();
    if names.len() < list.len() {
        return wrong(here, "must be a list of names, each of them once");
    }
    Ok(text_array(names.into_iter()))
}

fn translated(value: &Value, here: &str) -> Judged<Value> {
    let Some(text) = value.as_str() else {
        return wrong(here, "must be a regular expression");
    };
    match pattern::translate(text) {
        Ok(pattern) => Ok(Value::String(pattern)),
        Err(reason) => wrong(here, reason),
    }
}

/// A `text[]` as PostgreSQL writes one.
fn text_array<'a>(texts: impl Iterator<Item = &'a str>) -> Value {
    let quoted = texts.map(|text| {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    });
    Value::String(format!("{{{}}}", quoted.collect::<Vec<_>>().join(",")))
}

fn has_no_nul(value: &Value, here: &str) -> Judged<()> {
    let has = match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(entries) => {
            return entries.iter().try_for_each(|it| has_no_nul(it, here));
        }
        Value::Object(members) => {
            members.values().try_for_each(|it| has_no_nul(it, here))?;
            members.keys().any(|name| name.contains('\0'))
        }
        _ => false,
    };
    if has { wrong(here, NUL) } else { Ok(()) }
}
