//! Each keyword with values that match it and values that do not.

use serde_json::{Value, json};

use super::{rules, violation};
use crate::support::TestDb;

#[tokio::test]
async fn each_keyword_takes_what_matches_and_says_where_something_else_is() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let tree = json!({"$defs": {"t": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "required": ["n"]}},
                      "$ref": "#/$defs/t"});
    // Schema, values that match, values that do not: each with the place and the keyword.
    type Wrong = (Value, &'static str, &'static str);
    let cases: Vec<(Value, Vec<Value>, Vec<Wrong>)> = vec![
        (
            json!({"type": "string"}),
            vec![json!("")],
            vec![(json!(1), "", "type"), (json!(null), "", "type")],
        ),
        (
            json!({"type": ["integer", "null"]}),
            vec![json!(1), json!(1.0), json!(null)],
            vec![(json!(1.5), "", "type")],
        ),
        (
            json!({"type": "number"}),
            vec![json!(1), json!(1.5)],
            vec![(json!("1"), "", "type")],
        ),
        (
            json!({"enum": [1, "a", null, {"b": [1]}]}),
            vec![json!(1.0), json!("a"), json!(null), json!({"b": [1.0]})],
            vec![
                (json!(2), "", "enum"),
                (json!({"b": [1, 2]}), "", "enum"),
                (json!([1]), "", "enum"),
            ],
        ),
        (
            json!({"const": [1]}),
            vec![json!([1])],
            vec![(json!([1, 1]), "", "const"), (json!(1), "", "const")],
        ),
        (
            json!({"const": null}),
            vec![json!(null)],
            vec![(json!(0), "", "const")],
        ),
        (
            json!({"properties": {"a/b": {"type": "string"}, "c~": {"minimum": 1}}}),
            vec![json!({}), json!(3), json!({"d": 1, "c~": 1})],
            vec![
                (json!({"a/b": 1}), "/a~1b", "type"),
                (json!({"c~": 0}), "/c~0", "minimum"),
            ],
        ),
        (
            json!({"required": ["a", "b"]}),
            vec![json!({"a": null, "b": 1}), json!([])],
            vec![(json!({"a": 1}), "", "required")],
        ),
        (
            json!({"properties": {"a": true}, "additionalProperties": false}),
            vec![json!({"a": 1}), json!({})],
            vec![(json!({"a": 1, "z": 1}), "/z", "additionalProperties")],
        ),
        (
            json!({"additionalProperties": {"type": "integer"}}),
            vec![json!({"x": 1})],
            vec![(json!({"x": "y"}), "/x", "type")],
        ),
        (
            json!({"patternProperties": {"^n": {"type": "number"}, "x$": false}, "additionalProperties": {"type": "null"}}),
            vec![json!({"n1": 1, "o": null})],
            vec![
                (json!({"n1": "1"}), "/n1", "type"),
                (json!({"o": 1}), "/o", "type"),
                (json!({"ox": null}), "/ox", "patternProperties"),
            ],
        ),
        (
            json!({"propertyNames": {"maxLength": 2}}),
            vec![json!({"ab": 1})],
            vec![(json!({"abc": 1}), "", "propertyNames")],
        ),
        (
            json!({"minProperties": 1, "maxProperties": 2}),
            vec![json!({"a": 1})],
            vec![
                (json!({}), "", "minProperties"),
                (json!({"a": 1, "b": 1, "c": 1}), "", "maxProperties"),
            ],
        ),
        (
            json!({"items": {"type": "string"}}),
            vec![json!([]), json!(["a"]), json!(1)],
            vec![(json!(["a", 1]), "/1", "type")],
        ),
        (
            json!({"prefixItems": [{"const": 1}, {"type": "string"}], "items": false}),
            vec![json!([1, "a"]), json!([1])],
            vec![
                (json!([2]), "/0", "const"),
                (json!([1, "a", 0]), "/2", "false"),
            ],
        ),
        (
            json!({"contains": {"const": 1}}),
            vec![json!([0, 1])],
            vec![(json!([]), "", "contains"), (json!([0]), "", "contains")],
        ),
        (
            json!({"minItems": 1, "maxItems": 2}),
            vec![json!([1])],
            vec![
                (json!([]), "", "minItems"),
                (json!([1, 2, 3]), "", "maxItems"),
            ],
        ),
        (
            json!({"uniqueItems": true}),
            vec![json!([1, "1", [1]]), json!([])],
            vec![
                (json!([1, 1.0]), "", "uniqueItems"),
                (
                    json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
                    "",
                    "uniqueItems",
                ),
            ],
        ),
        (json!({"uniqueItems": false}), vec![json!([1, 1])], vec![]),
        (
            json!({"minLength": 2, "maxLength": 3}),
            vec![json!("äö"), json!(1)],
            vec![
                (json!("ä"), "", "minLength"),
                (json!("abcd"), "", "maxLength"),
            ],
        ),
        (
            json!({"pattern": "^a.c"}),
            vec![json!("abcd"), json!(7)],
            vec![
                (json!("a\nc"), "", "pattern"),
                (json!("xabc"), "", "pattern"),
            ],
        ),
        (
            json!({"pattern": "^\\s+\\w?$"}),
            vec![json!(" \u{a0}\t"), json!(" x")],
            vec![(json!(" é"), "", "pattern"), (json!(" x\n"), "", "pattern")],
        ),
        (
            json!({"minimum": 1, "maximum": 3}),
            vec![json!(1), json!(3)],
            vec![(json!(0.9), "", "minimum"), (json!(3.1), "", "maximum")],
        ),
        (
            json!({"exclusiveMinimum": 1, "exclusiveMaximum": 3}),
            vec![json!(1.1)],
            vec![
                (json!(1), "", "exclusiveMinimum"),
                (json!(3), "", "exclusiveMaximum"),
            ],
        ),
        (
            json!({"multipleOf": 0.1}),
            vec![json!(0.3), json!(2)],
            vec![(json!(0.35), "", "multipleOf")],
        ),
        (
            json!({"allOf": [{"minimum": 1}, {"maximum": 3}]}),
            vec![json!(2)],
            vec![(json!(0), "", "minimum"), (json!(4), "", "maximum")],
        ),
        (
            json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"minimum": 5}]}}}),
            vec![json!({"a": "x"}), json!({"a": 5})],
            vec![(json!({"a": 4}), "/a", "anyOf")],
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}),
            vec![json!(1), json!(2.5)],
            vec![(json!(3), "", "oneOf"), (json!(1.5), "", "oneOf")],
        ),
        (
            json!({"not": {"type": "string"}}),
            vec![json!(1)],
            vec![(json!("a"), "", "not")],
        ),
        (
            json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 0}}),
            vec![json!({"a": 1, "b": 1}), json!({})],
            vec![
                (json!({"a": 1}), "", "required"),
                (json!({"c": 1}), "", "maxProperties"),
            ],
        ),
        (json!({"then": false}), vec![json!(1)], vec![]),
        (
            tree,
            vec![json!({"n": 1, "kids": [{"n": 2, "kids": []}]})],
            vec![(
                json!({"n": 1, "kids": [{"n": 1}, {"n": 2, "kids": [{}]}]}),
                "/kids/1/kids/0",
                "required",
            )],
        ),
        (
            json!({"properties": {"a": false, "b": true}}),
            vec![json!({"b": 1})],
            vec![(json!({"a": 1}), "/a", "false")],
        ),
        (
            json!({"title": "t", "default": 1, "format": "email", "x-y": 1}),
            vec![json!("no address")],
            vec![],
        ),
    ];
    for (schema, right, wrong) in cases {
        let rules = rules(&schema).unwrap();
        let theirs = jsonschema::validator_for(&schema).unwrap();
        for value in right {
            assert_eq!(
                violation(&client, &rules, &value).await,
                None,
                "{schema} takes {value}"
            );
            assert!(theirs.is_valid(&value), "{schema} takes {value}");
        }
        for (value, pointer, keyword) in wrong {
            let found = violation(&client, &rules, &value).await;
            let expected = Some((pointer.to_owned(), keyword.to_owned()));
            assert_eq!(found, expected, "{schema} refuses {value}");
            assert!(!theirs.is_valid(&value), "{schema} refuses {value}");
        }
    }
}
