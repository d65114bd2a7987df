//! What the file says of schemas, and what is refused of it.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{pattern, rules};
use crate::SubscriptionFile;

fn refusal(schema: &Value) -> String {
    let problem = rules::rules(schema).unwrap_err();
    problem.to_string()
}

fn of_file(text: &str, origin: &str) -> Result<Vec<(String, Value)>, String> {
    let file = SubscriptionFile::parse(text, origin).map_err(|error| error.to_string())?;
    let schemas = file.streams[0].schemas.clone().unwrap();
    Ok(schemas
        .into_iter()
        .map(|(name, of)| (name, of.schema))
        .collect())
}

#[test]
fn annotations_are_left_away_and_patterns_are_written_for_postgres() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "t", "x-owner": "me", "format": "uri", "type": "object",
        "required": ["b\"", "a"],
        "properties": {
            "a": {"description": "d", "type": "string"},
            "b\"": {"type": "string", "pattern": "^\\d+$"},
        },
        "additionalProperties": false,
    });
    assert_eq!(
        rules::rules(&schema).unwrap(),
        json!({"refs": {}, "schema": {
            "type": "object",
            "required": "{\"a\",\"b\\\"\"}",
            "names": "{\"a\",\"b\\\"\"}",
            "properties": {
                "a": {"type": "string", "only_type": true},
                "b\"": {"type": "string", "pattern": "^(?:[0-9])+$"},
            },
            "additionalProperties": false,
        }})
    );
}

#[test]
fn references_lead_to_schemas_inside_and_stand_aside() {
    let schema = json!({
        "properties": {"at": {"$ref": "#/$defs/a~1b%20c"}, "next": {"$ref": "#"}},
        "$defs": {"a/b c": {"type": "string"}},
    });
    let rules = rules::rules(&schema).unwrap();
    assert_eq!(
        rules["refs"]["#/$defs/a~1b c"],
        json!({"type": "string", "only_type": true})
    );
    assert_eq!(rules["refs"]["#"], rules["schema"]);
}

#[test]
fn what_the_database_does_not_check_is_refused_with_its_place() {
    let deep = (0..40).fold(json!({}), |inner, _| json!({"items": inner}));
    let doubling: Value = (0..12)
        .map(|level| {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            (format!("d{level}"), json!({"allOf": [next.clone(), next]}))
        })
        .chain([("d12".to_owned(), json!({}))])
        .collect();
    let many: Value = (0..1_100)
        .map(|number| (format!("p{number}"), json!(true)))
        .collect();
    for (schema, said) in [
        (
            json!({"tpye": "string"}),
            "at /tpye: unknown keyword; did you mean type?",
        ),
        (json!({"wholly-unknown": 1}), "starts with x-"),
        (
            json!({"dependentRequired": {}}),
            "at /dependentRequired: is a keyword that is not supported",
        ),
        (
            json!({"properties": {"a": {"unevaluatedProperties": false}}}),
            "at /properties/a/unevaluatedProperties",
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            "at /$schema: must be",
        ),
        (
            json!({"items": {"$id": "x"}}),
            "at /items/$id: may stand at the top",
        ),
        (
            json!({"$ref": "https://example.com/schema.json"}),
            "nothing is fetched",
        ),
        (json!({"$ref": "#anchor"}), "at /$ref"),
        (
            json!({"$ref": "#/$defs/none"}),
            "at /$ref: leads to no schema",
        ),
        (
            json!({"enum": [1], "$ref": "#/enum/0"}),
            "leads to no schema",
        ),
        (json!({"$ref": "#"}), "leads back to itself"),
        (
            json!({"$defs": {"a": {"anyOf": [true, {"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
            "leads back to itself",
        ),
        (
            json!({"$defs": doubling, "$ref": "#/$defs/d0"}),
            "asks more than 1000 schemas of one value",
        ),
        (deep, "is deeper than 32 schemas"),
        (json!({"properties": many}), "has more than 1000 schemas"),
        (json!({"items": [{}]}), "is `prefixItems`"),
        (
            json!({"allOf": []}),
            "at /allOf: must be a list of one schema or more",
        ),
        (
            json!({"properties": {"a": 1}}),
            "at /properties/a: must be a schema",
        ),
        (
            json!({"type": "text"}),
            "at /type: must be one of null, boolean",
        ),
        (json!({"type": []}), "at /type"),
        (json!({"required": ["a", "a"]}), "each of them once"),
        (json!({"required": "a"}), "at /required"),
        (
            json!({"minLength": -1}),
            "at /minLength: must be a whole number",
        ),
        (json!({"maxItems": 1.5}), "at /maxItems"),
        (json!({"minimum": "1"}), "at /minimum: must be a number"),
        (
            json!({"multipleOf": 0}),
            "at /multipleOf: must be a number above 0",
        ),
        (json!({"enum": []}), "at /enum"),
        (json!({"uniqueItems": 1}), "at /uniqueItems"),
        (json!({"const": {"a": "\u{0}"}}), "\\u0000"),
        (
            json!({"properties": {"a/b": {"pattern": "("}}}),
            "at /properties/a~1b/pattern: is not a regular expression",
        ),
        (
            json!({"patternProperties": {"[": {}}}),
            "at /patternProperties/[",
        ),
    ] {
        let refused = refusal(&schema);
        assert!(refused.contains(said), "{said}: {refused}");
    }
}

#[test]
fn patterns_that_mean_something_else_to_postgres_are_refused() {
    let long = "a".repeat(1_001);
    let nested = format!("{}a{}", "(".repeat(30), ")".repeat(30));
    for refused in [
        "(a)\\1",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?i)a",
        "(?i:a)",
        "(?P<n>a)",
        "\\p{L}",
        "\\ba",
        "\\A",
        "a{256}",
        "a{1,300}",
        "(a{40}){40}",
        "((a?){44}){45}",
        "a**",
        "a++",
        "^*",
        "a{,5}",
        "[[:alpha:]]",
        "[a[b]]",
        "[a&&b]",
        "[\\D]",
        "[]",
        "\\0",
        "\\x00",
        "(",
        "a)",
        "[b-a]",
        &long,
        &nested,
    ] {
        assert!(pattern::translate(refused).is_err(), "{refused}");
    }
}

#[test]
fn patterns_are_written_out_character_by_character() {
    for (pattern, written) in [
        ("a.b", "a[^\\n\\r\u{2028}\u{2029}]b"),
        ("^[a-z_][\\w-]*$", "^[a-z_](?:[A-Za-z0-9_\\-])*$"),
        ("a+?", "(?:a)+"),
        ("(?:x|y){2,}", "(?:(?:x|y)){2,}"),
        ("(?<year>\\d{4})", "(?:(?:[0-9]){4,4})"),
        ("\\t\\/é", "\\u0009\\/é"),
        ("[^\\x00-\\x1f]", "[^\\u0001-\\u001f]"),
        ("***a", ""),
    ] {
        match pattern::translate(pattern) {
            Ok(text) => assert_eq!(text, written),
            Err(_) => assert_eq!(written, "", "{pattern}"),
        }
    }
}

#[test]
fn a_schema_is_written_into_the_file_or_stands_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("schemas")).unwrap();
    std::fs::write(dir.path().join("schemas/b.json"), "{\"type\": \"null\"}").unwrap();
    let origin = dir.path().join("subscriptions.toml");
    let text = "[stream.runs.schema]\na = { type = \"string\", minLength = 2 }\n\"b.c\" = \"schemas/b.json\"\nd = '''{\"const\": 1.5}'''\n";
    assert_eq!(
        of_file(text, origin.to_str().unwrap()).unwrap(),
        [
            ("a".to_owned(), json!({"type": "string", "minLength": 2})),
            ("b.c".to_owned(), json!({"type": "null"})),
            ("d".to_owned(), json!({"const": 1.5})),
        ]
    );
    assert_eq!(of_file("[stream.runs]\nschema = false\n", "x").unwrap(), []);
}

#[test]
fn what_is_no_schema_is_refused_with_its_line() {
    let large = format!(
        "[stream.runs.schema]\na = {{ const = \"{}\" }}",
        "x".repeat(70_000)
    );
    let many: String = (0..101)
        .map(|number| format!("t{number} = {{}}\n"))
        .collect();
    let many = format!("[stream.runs.schema]\n{many}");
    let long = format!("[stream.runs.schema]\n{} = {{}}", "t".repeat(201));
    for (text, said) in [
        (
            "[stream.runs]\nschema = 1",
            "subs.toml:2:10: stream.runs.schema: must be a table",
        ),
        (
            "[stream.runs.schema]\na = true",
            "subs.toml:2:5: stream.runs.schema.a: must be a schema",
        ),
        ("[stream.runs.schema]\na = \"[]\"", "cannot be read"),
        ("[stream.runs.schema]\na = \"{\"", "is not JSON"),
        (
            "[stream.runs.schema]\na = \"no/such/file.json\"",
            "no/such/file.json cannot be read",
        ),
        ("[stream.runs.schema]\na = \"/dev/zero\"", "it is a device"),
        (
            "[stream.runs.schema]\na = { properties = { b = { typ = \"x\" } } }",
            "at /properties/b/typ: unknown keyword; did you mean type?",
        ),
        (
            "[stream.runs.schema]\n\"*\" = {}",
            "must be the name of an event type",
        ),
        ("[stream.lifecycle.schema]\na = {}", "nobody to refuse to"),
        (&large, "must have at most 65536 bytes"),
        (&many, "at most 100 event types"),
        (&long, "1 to 200 bytes"),
    ] {
        let refused = of_file(text, "subs.toml").unwrap_err();
        assert!(refused.contains(said), "{said}: {refused}");
    }
}

proptest! {
    #[test]
    fn no_pattern_makes_the_translation_panic(pattern in "[\\PC\\n]{0,40}|[\\\\a-c(){}\\[\\]^$.|*+?,0-9-]{0,24}") {
        let _ = pattern::translate(&pattern);
    }
}
