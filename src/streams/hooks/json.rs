//! JSON as text: made acceptable to Postgres and freed of e-mail addresses, without a tree.
//!
//! [`sanitise`] walks the tokens of a valid document once, without recursion, and copies them;
//! what it does not change stays byte for byte as it came. It changes
//! - strings and keys that hold an address (see [`redact`](lanekeeper_core::redact)),
//! - `\u0000` and lone surrogates, which `jsonb` refuses: they become U+FFFD,
//! - numbers that `jsonb` refuses, or would write out with hundreds of digits: they become strings
//!   of the same characters,
//! - line breaks between tokens: spaces, so that a document is one line of the spool.
//!
//! Left to `jsonb`: the order of keys, and of two equal keys the last.

use std::borrow::Cow;

use lanekeeper_core::redact::{REPLACEMENT, may_hold_address, redact};
use serde_json::value::RawValue;

use super::string::{Repairs, decode};

/// A document after its walk.
#[derive(Debug)]
pub struct Sanitised {
    pub json: Box<RawValue>,
    /// Deepest nesting of arrays and objects.
    pub depth: usize,
    pub repairs: Repairs,
}

/// Text that is not one JSON document, with the parser's reason.
#[derive(Debug, thiserror::Error)]
#[error("not JSON: {0}")]
pub struct NotJson(#[from] serde_json::Error);

/// Checks that the text is one JSON document, and cleans it.
pub fn sanitise(json: &str, redact_emails: bool) -> Result<Sanitised, NotJson> {
    let document: &RawValue = serde_json::from_str(json)?;
    let mut walk = Walk {
        json: document.get(),
        out: String::with_capacity(json.len()),
        copied: 0,
        repairs: Repairs::default(),
        redact_emails,
        redacted_keys: 0,
    };
    let depth = walk.run();
    let Walk { out, repairs, .. } = walk;
    Ok(Sanitised {
        json: RawValue::from_string(out)?,
        depth,
        repairs,
    })
}

struct Walk<'a> {
    json: &'a str,
    out: String,
    /// Everything before this offset is in `out`.
    copied: usize,
    repairs: Repairs,
    redact_emails: bool,
    /// Two keys of one object must not become equal: `jsonb` would drop a value.
    redacted_keys: usize,
}

impl Walk<'_> {
    /// Walks the document to its end; returns its depth.
    fn run(&mut self) -> usize {
        let bytes = self.json.as_bytes();
        let (mut at, mut depth, mut deepest) = (0, 0_usize, 0);
        while let Some(&byte) = bytes.get(at) {
            let start = at;
            at += 1;
            match byte {
                b'"' => {
                    at = string_end(bytes, at);
                    self.string(start, at);
                }
                b'-' | b'0'..=b'9' => {
                    while bytes
                        .get(at)
                        .is_some_and(|b| b"+-.eE0123456789".contains(b))
                    {
                        at += 1;
                    }
                    let number = &self.json[start..at];
                    if !is_plain_number(number) {
                        self.repairs.number = true;
                        self.replace(start, at, &format!("\"{number}\""));
                    }
                }
                b'{' | b'[' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'\n' | b'\r' => self.replace(start, at, " "),
                _ => {}
            }
        }
        self.out.push_str(&self.json[self.copied..]);
        deepest
    }

    fn replace(&mut self, start: usize, end: usize, with: &str) {
        self.out.push_str(&self.json[self.copied..start]);
        self.out.push_str(with);
        self.copied = end;
    }

    /// A string token, quotes included.
    fn string(&mut self, start: usize, end: usize) {
        let raw = &self.json[start + 1..end - 1];
        let redact_emails = self.redact_emails && may_hold_address(raw);
        if !redact_emails && !raw.contains("\\u") {
            return;
        }
        let (text, repairs) = decode(raw);
        self.repairs.nul |= repairs.nul;
        self.repairs.surrogate |= repairs.surrogate;
        let redacted = redact_emails.then(|| self.redact(&text, end)).flatten();
        if redacted.is_some() || repairs != Repairs::default() {
            let changed = serde_json::Value::String(redacted.unwrap_or(text.into_owned()));
            self.replace(start, end, &changed.to_string());
        }
    }

    fn redact(&mut self, text: &str, end: usize) -> Option<String> {
        let is_key = self.json[end..].trim_start().starts_with(':');
        if !is_key {
            return redact(text, REPLACEMENT);
        }
        let number = self.redacted_keys + 1;
        let replacement = if number == 1 {
            Cow::Borrowed(REPLACEMENT)
        } else {
            format!("[email {number}]").into()
        };
        let redacted = redact(text, &replacement)?;
        self.redacted_keys = number;
        Some(redacted)
    }
}

/// The offset after the closing quote of a string whose content starts at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Whether a number is one that `jsonb` takes and writes back in about the same length: an
/// exponent inside the range of a double, not hundreds of digits. `1e131071` alone would come back
/// as 131,072 characters, and a few thousand of them as more than a row can be.
fn is_plain_number(number: &str) -> bool {
    const MAX_EXPONENT: i32 = 308;
    const MAX_LEN: usize = 400;
    let exponent = number
        .split_once(['e', 'E'])
        .map_or(Ok(0), |(_, exponent)| exponent.parse());
    number.len() <= MAX_LEN
        && exponent.is_ok_and(|e: i32| (-MAX_EXPONENT..=MAX_EXPONENT).contains(&e))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn clean(json: &str) -> String {
        sanitise(json, true).unwrap().json.get().to_owned()
    }

    #[test]
    fn what_needs_no_change_stays_byte_for_byte() {
        let json = r#" {"b": [1, 2.50, -0, 1E5], "a":"\/ \u00e9 \ud83d\ude00 é", "n":null } "#;
        let sanitised = sanitise(json, true).unwrap();
        assert_eq!(sanitised.json.get(), json.trim());
        assert_eq!(sanitised.repairs, Repairs::default());
        assert_eq!(sanitised.depth, 2);
    }

    #[test]
    fn addresses_go_from_values_keys_and_nested_json() {
        assert_eq!(
            clean(r#"{"a@b.com":"x\nuser\u0040example.com"}"#),
            r#"{"[email]":"x\n[email]"}"#
        );
        let nested = json!({"o": json!({"t": "line\nme@example.com"}).to_string()}).to_string();
        let kept: Value = serde_json::from_str(&clean(&nested)).unwrap();
        let inner: Value = serde_json::from_str(kept["o"].as_str().unwrap()).unwrap();
        assert_eq!(inner, json!({"t": "line\n[email]"}));
    }

    #[test]
    fn redacted_keys_of_one_object_stay_distinct() {
        assert_eq!(
            clean(r#"{"a@b.com":1,"c@d.com" : 2}"#),
            r#"{"[email]":1,"[email 2]" : 2}"#
        );
    }

    #[test]
    fn redaction_can_be_switched_off() {
        let json = r#"{"a":"user@example.com"}"#;
        assert_eq!(sanitise(json, false).unwrap().json.get(), json);
    }

    #[test]
    fn what_jsonb_refuses_is_replaced_and_reported() {
        let sanitised = sanitise(
            r#"["a\u0000b","\ud800","x\udc00\u0041","\ud800\ud83d\ude00",1e999999,1e-400]"#,
            true,
        )
        .unwrap();
        assert_eq!(
            sanitised.json.get(),
            "[\"a\u{fffd}b\",\"\u{fffd}\",\"x\u{fffd}A\",\"\u{fffd}😀\",\"1e999999\",\"1e-400\"]"
        );
        assert_eq!(
            sanitised.repairs,
            Repairs {
                nul: true,
                surrogate: true,
                number: true
            }
        );
    }

    #[test]
    fn a_document_becomes_one_line() {
        assert_eq!(clean("{\n  \"a\":\r\n 1\n}"), "{   \"a\":   1 }");
    }

    #[test]
    fn very_deep_nesting_is_read() {
        let json = format!("{}{}", "[{\"a\":".repeat(50_000), "1") + &"}]".repeat(50_000);
        assert_eq!(sanitise(&json, true).unwrap().depth, 100_000);
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        for text in [
            "",
            "{",
            "{} {}",
            "nonsense",
            "{\"a\":\"\u{1}\"}",
            "{\"a\":NaN}",
        ] {
            assert!(sanitise(text, true).is_err(), "{text:?}");
        }
    }

    fn document() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[a-z@.\\\\\n\"é\u{0}]{0,12}",
            "[a-z\n\\\\]{0,4}[a-z]{1,5}@[a-z]{1,5}\\.(com|org)[ \n.]{0,2}",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                // No NUL: two keys that differ in it alone become one.
                prop::collection::btree_map(
                    text.clone().prop_map(|key| key.replace('\0', "")),
                    inner.clone(),
                    0..5
                )
                .prop_map(|map| Value::Object(map.into_iter().collect())),
                inner.prop_map(|value| Value::String(value.to_string())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in r#"[\[\]{}",:\\u0-9a-f@. \n-]{0,60}"#) {
            let _ = sanitise(&text, true);
        }

        #[test]
        fn any_document_stays_json_of_the_same_shape_without_addresses(document in document()) {
            let kept: Value = serde_json::from_str(&clean(&document.to_string())).unwrap();
            assert_same_shape(&document, &kept);
        }

        #[test]
        fn without_redaction_only_nul_is_changed(document in document()) {
            let kept = sanitise(&document.to_string(), false).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(kept.json.get()).unwrap(), without_nul(document));
        }
    }

    fn without_nul(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(text.replace('\0', "\u{fffd}")),
            Value::Array(items) => items.into_iter().map(without_nul).collect(),
            Value::Object(map) => map.into_iter().map(|(k, v)| (k, without_nul(v))).collect(),
            other => other,
        }
    }

    fn assert_same_shape(before: &Value, after: &Value) {
        match (before, after) {
            (Value::String(_), Value::String(after)) => assert_no_address(after),
            (Value::Array(before), Value::Array(after)) => {
                assert_eq!(before.len(), after.len());
                before
                    .iter()
                    .zip(after)
                    .for_each(|(b, a)| assert_same_shape(b, a));
            }
            (Value::Object(before), Value::Object(after)) => {
                after.keys().for_each(|key| assert_no_address(key));
                assert_eq!(after.len(), before.len());
            }
            _ => assert_eq!(before, after),
        }
    }

    /// Judged another way than by the code under test: a letter that is not an escape, `@`, then a
    /// name with a dot and two letters.
    fn assert_no_address(text: &str) {
        for (at, _) in text.match_indices('@') {
            let before: Vec<char> = text[..at].chars().rev().take(2).collect();
            let local = before.first().is_some_and(|c| c.is_alphanumeric())
                && !matches!(before[..], ['b' | 'f' | 'n' | 'r' | 't', '\\']);
            let domain: String = text[at + 1..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '.')
                .collect();
            let mut labels = domain.split('.');
            let named = labels.next().is_some_and(|name| !name.is_empty());
            let top = labels
                .next()
                .is_some_and(|top| top.len() >= 2 && top.bytes().all(|b| b.is_ascii_alphabetic()));
            assert!(!(local && named && top), "{text:?}");
        }
    }
}
