//! Texts with placeholders, such as `gh-{/repository/full_name}`, filled in from a request.
//!
//! | placeholder | |
//! |---|---|
//! | `{/a/b}` | a value of the body by its JSON pointer (RFC 6901); an object or array as JSON text |
//! | `{/a/b|/c}` | the first of these values that the body has |
//! | `{body}` | the whole body |
//! | `{header:NAME}` | a header. No signature covers it |

use serde_json::Value;

/// The longest template.
const LONGEST: usize = 1_000;

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The first of them that has a value.
    Pointers(Vec<String>),
    Header(String),
    Body,
}

/// A verified request.
pub struct Request<'a> {
    pub text: &'a str,
    /// `None`: the body is no JSON.
    pub json: Option<&'a Value>,
    pub header: &'a dyn Fn(&str) -> Option<String>,
}

/// The placeholder that a request has no value for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub String);

impl Template {
    /// # Errors
    /// What is wrong with it, in words for the file's author.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_with(text, &[])
    }

    /// The same, with names that stand for JSON pointers: `{name}` is what `{/pointer}` is.
    ///
    /// # Errors
    /// In words, where it has a placeholder that is none.
    pub fn parse_with(text: &str, names: &[(&str, &str)]) -> Result<Self, String> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(format!("must have between 1 and {LONGEST} bytes"));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            let inner = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let Some((name, behind)) = inner else {
                return Err("has a brace that belongs to no placeholder".to_owned());
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::of(name, names)?);
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Whether every request gives the same text.
    pub fn is_fixed(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// # Errors
    /// The first placeholder without a value.
    pub fn render(&self, request: &Request<'_>) -> Result<String, Missing> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Body => text.push_str(request.text),
                Part::Header(name) => {
                    let value = (request.header)(name);
                    text.push_str(&value.ok_or_else(|| Missing(format!("header:{name}")))?);
                }
                Part::Pointers(pointers) => {
                    let at = |pointer: &String| request.json?.pointer(pointer);
                    let mut values = pointers.iter().filter_map(at);
                    match values.find(|value| !value.is_null()) {
                        None => return Err(Missing(pointers.join("|"))),
                        Some(Value::String(value)) => text.push_str(value),
                        Some(value) => text.push_str(&value.to_string()),
                    }
                }
            }
        }
        Ok(text)
    }
}

impl Part {
    fn of(name: &str, names: &[(&str, &str)]) -> Result<Self, String> {
        if let Some((_, pointer)) = names.iter().find(|(known, _)| *known == name) {
            return Ok(Self::Pointers(vec![(*pointer).to_owned()]));
        }
        if !names.is_empty() {
            let known: Vec<_> = names
                .iter()
                .map(|(known, _)| format!("{{{known}}}"))
                .collect();
            return Err(format!(
                "has the placeholder {{{name}}}; known are {}",
                known.join(", ")
            ));
        }
        if name == "body" {
            return Ok(Self::Body);
        }
        if name.starts_with('/') && !name.contains('{') {
            // A pointer starts with a slash, so a bar before one separates.
            let pointers = name[1..].split("|/");
            if pointers.clone().all(|pointer| !pointer.is_empty()) {
                let pointers = pointers.map(|pointer| format!("/{pointer}"));
                return Ok(Self::Pointers(pointers.collect()));
            }
        }
        let is_header = |header: &str| {
            let mut bytes = header.bytes();
            !header.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        match name.strip_prefix("header:") {
            Some(header) if is_header(header) => Ok(Self::Header(header.to_ascii_lowercase())),
            _ => Err(format!(
                "has the placeholder {{{name}}}: write {{/a/b}} for a value of the body, {{/a|/b}} for the first that is there, {{body}} or {{header:NAME}}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(template: &str, json: Option<&Value>) -> Result<String, Missing> {
        let header = |name: &str| (name == "x-event").then(|| "push".to_owned());
        let request = Request {
            text: "raw",
            json,
            header: &header,
        };
        Template::parse(template).unwrap().render(&request)
    }

    #[test]
    fn placeholders_take_their_values_from_the_request() {
        let json = json!({"a": {"b~c": "x/y"}, "n": 1.5, "list": [true, {"k": null}]});
        for (template, expected) in [
            ("plain", "plain"),
            ("gh-{/a/b~0c}-{/n}", "gh-x/y-1.5"),
            ("{/list/0}{body}", "trueraw"),
            ("{/list/1}", r#"{"k":null}"#),
            ("{header:X-Event}", "push"),
            ("{/none|/list/1/k|/n|/list}", "1.5"),
            ("{/a/b~0c|/n}", "x/y"),
        ] {
            assert_eq!(render(template, Some(&json)).unwrap(), expected);
        }
        for (template, missing) in [
            ("{/list/1/k}", "/list/1/k"),
            ("{/none}", "/none"),
            ("{/none|/list/1/k}", "/none|/list/1/k"),
            ("{header:other}", "header:other"),
        ] {
            assert_eq!(render(template, Some(&json)), Err(Missing(missing.into())));
        }
        assert!(render("{/n}", None).is_err());
        assert_eq!(render("{body}", None).unwrap(), "raw");
    }

    #[test]
    fn a_value_that_looks_like_a_placeholder_is_not_filled_in() {
        let json = json!({"a": "{body}"});
        assert_eq!(render("{/a}", Some(&json)).unwrap(), "{body}");
    }

    #[test]
    fn names_stand_for_pointers_and_no_other_placeholder_is_known_beside_them() {
        let names = [("chat_id", "/chat/id")];
        let json = json!({"chat": {"id": -100}});
        let request = Request {
            text: "",
            json: Some(&json),
            header: &|_| None,
        };
        let template = Template::parse_with("tg-{chat_id}", &names).unwrap();
        assert_eq!(template.render(&request).unwrap(), "tg--100");
        for bad in ["{chat}", "{body}", "{/chat/id}", "{header:x}"] {
            let refused = Template::parse_with(bad, &names).unwrap_err();
            assert!(refused.contains("known are {chat_id}"), "{refused}");
        }
    }

    #[test]
    fn what_is_no_placeholder_is_refused() {
        let long = "x".repeat(1_001);
        for bad in [
            "",
            "{",
            "}",
            "a}b",
            "{a}",
            "{/}",
            "{}",
            "{header:}",
            "{header:a b}",
            "{/a{/b}",
            "{/a|/}",
            "{/|/a}",
            &long,
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
