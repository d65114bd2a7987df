//! The database's checks against another implementation of JSON Schema, with generated schemas and values.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use super::{rules, violation};
use crate::support::TestDb;

/// The same each time.
const SCHEMAS: usize = 400;
const VALUES: usize = 12;
const NAMES: [&str; 5] = ["a", "b", "c", "a/b", "~"];
const PATTERNS: [&str; 8] = [
    "^a",
    "b$",
    "^[^b]*$",
    "a.b",
    "\\d",
    "^(a|b)+?$",
    "\\w\\s?",
    "^.{2}$",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3..6_i64).prop_map(Value::from),
        select(vec![0.5, 1.0, 1.5, 3.0, -0.25]).prop_map(Value::from),
        select(vec!["", "a", "ab", "b1", "é", "a\nb", "abab", "a b"]).prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(NAMES.to_vec()), inner), 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn keyword(name: &'static str, value: impl Into<Value>) -> Value {
    json!({ name: value.into() })
}

/// A schema with one keyword.
fn plain() -> impl Strategy<Value = Value> {
    let types = vec![
        "null", "boolean", "object", "array", "number", "string", "integer",
    ];
    let counts = select(vec![
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ]);
    let bounds = select(vec![
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
    ]);
    prop_oneof![
        3 => select(types.clone()).prop_map(|name| keyword("type", name)),
        1 => (select(types.clone()), select(types)).prop_map(|(one, other)| match one == other {
            true => keyword("type", one),
            false => json!({"type": [one, other]}),
        }),
        1 => vec(value(), 1..4).prop_map(|values| keyword("enum", values)),
        1 => value().prop_map(|value| keyword("const", value)),
        2 => (counts, 0..4_u64).prop_map(|(name, count)| keyword(name, count)),
        2 => (bounds, select(vec![0.0, 1.0, 1.5, -0.25])).prop_map(|(name, bound)| keyword(name, bound)),
        1 => select(vec![0.5, 2.0, 0.1]).prop_map(|of| keyword("multipleOf", of)),
        1 => select(PATTERNS.to_vec()).prop_map(|pattern| keyword("pattern", pattern)),
        1 => Just(json!({"uniqueItems": true})),
        1 => vec(select(NAMES.to_vec()), 1..3).prop_map(|mut names| {
            names.sort_unstable();
            names.dedup();
            keyword("required", names)
        }),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(json!({"items": {"$ref": "#/$defs/d"}})),
        1 => Just(json!({"$ref": "#/$defs/d"})),
    ]
}

/// One with several.
fn merged(parts: Vec<Value>) -> Value {
    let mut all = Map::new();
    for part in parts {
        match part {
            Value::Object(part) => all.extend(part),
            alone => return alone,
        }
    }
    Value::Object(all)
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = vec(plain(), 1..3).prop_map(merged);
    leaf.prop_recursive(3, 24, 4, |inner| {
        let one = select(vec!["additionalProperties", "propertyNames", "items", "contains", "not"]);
        let list = select(vec!["allOf", "anyOf", "oneOf", "prefixItems"]);
        let members = (select(NAMES.to_vec()), inner.clone());
        let patterns = (select(PATTERNS.to_vec()), inner.clone());
        let part = prop_oneof![
            3 => vec(members, 1..4).prop_map(|all| keyword("properties", all.into_iter().collect::<Value>())),
            1 => vec(patterns, 1..3).prop_map(|all| keyword("patternProperties", all.into_iter().collect::<Value>())),
            2 => (one, inner.clone()).prop_map(|(name, schema)| keyword(name, schema)),
            2 => (list, vec(inner.clone(), 1..4)).prop_map(|(name, schemas)| keyword(name, schemas)),
            1 => (inner.clone(), inner.clone(), inner).prop_map(|(when, then, other)| json!({"if": when, "then": then, "else": other})),
            1 => plain(),
        ];
        vec(part, 1..4).prop_map(merged)
    })
}

#[tokio::test]
async fn another_implementation_agrees_on_what_matches_and_on_where_something_does_not() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let mut runner = TestRunner::deterministic();
    let (mut matching, mut others) = (0, 0);
    for _ in 0..SCHEMAS {
        let schema = schema().new_tree(&mut runner).unwrap().current();
        let defined = json!({"type": ["array", "integer", "string"], "items": {"$ref": "#/$defs/d"}, "maxLength": 2});
        let schema = json!({"$defs": {"d": defined}, "allOf": [schema]});
        let theirs = jsonschema::validator_for(&schema).unwrap();
        let rules = rules(&schema).unwrap();
        for _ in 0..VALUES {
            let value = value().new_tree(&mut runner).unwrap().current();
            let found = violation(&client, &rules, &value).await;
            let places: Vec<String> = theirs
                .iter_errors(&value)
                .map(|error| error.instance_path().to_string())
                .collect();
            match found {
                None => {
                    assert!(places.is_empty(), "{schema} refuses {value} at {places:?}");
                    matching += 1;
                }
                // A property that is not allowed: theirs is the object, ours is the property.
                Some((pointer, keyword)) => {
                    let known = places
                        .iter()
                        .any(|place| pointer.starts_with(place.as_str()));
                    assert!(
                        known,
                        "{schema} takes {value}, or refuses it at {places:?}: {keyword} at {pointer}"
                    );
                    others += 1;
                }
            }
        }
    }
    assert!(matching > 500 && others > 500, "{matching} {others}");
}
