//! `only` of a source: which of its verified requests become messages.

use std::collections::BTreeMap;

use super::template::{Request, Template};

/// The most conditions of a source.
const MOST: usize = 20;
/// The most values of a condition.
const MOST_VALUES: usize = 100;

/// Conditions that a request must fulfil, each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// As the file has it: a placeholder without its braces.
    at: String,
    value: Template,
    one_of: Vec<String>,
}

impl Filter {
    /// `only`: by placeholder, without its braces, the values of which a request has one. Compared as text.
    ///
    /// # Errors
    /// What is wrong with it, in words for the file's author.
    pub fn parse(only: &BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        if only.len() > MOST {
            return Err(format!("must have at most {MOST} conditions"));
        }
        let conditions = only.iter().map(|(at, one_of)| {
            if one_of.is_empty() || one_of.len() > MOST_VALUES {
                return Err(format!(
                    "at {at:?} must have between 1 and {MOST_VALUES} values"
                ));
            }
            let value = match at.contains(['{', '}']) {
                true => Err("is written without braces here".to_owned()),
                false => Template::parse(&format!("{{{at}}}")),
            };
            Ok(Condition {
                value: value.map_err(|reason| format!("at {at:?} {reason}"))?,
                at: at.clone(),
                one_of: one_of.clone(),
            })
        });
        Ok(Self(conditions.collect::<Result<_, String>>()?))
    }

    /// The first condition that a request does not fulfil.
    pub fn leaves_out(&self, request: &Request<'_>) -> Option<&str> {
        let mut conditions = self.0.iter();
        let unmet = conditions.find(|condition| {
            let value = condition.value.render(request);
            !value.is_ok_and(|value| condition.one_of.contains(&value))
        });
        unmet.map(|condition| condition.at.as_str())
    }

    /// Whether one of its conditions is about this value.
    pub fn is_about(&self, at: &str) -> bool {
        self.0.iter().any(|condition| condition.at == at)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn only(conditions: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        let conditions = conditions.iter().map(|(at, values)| {
            let values = values.iter().map(|value| (*value).to_owned());
            ((*at).to_owned(), values.collect())
        });
        conditions.collect()
    }

    #[test]
    fn a_request_fulfils_every_condition_with_one_of_its_values() {
        let filter = only(&[
            ("/action", &["created", "edited"]),
            ("/n", &["7"]),
            ("header:X-Event", &["comment"]),
        ]);
        let filter = Filter::parse(&filter).unwrap();
        let leaves_out = |json, event: &str| {
            let header = |name: &str| (name == "x-event").then(|| event.to_owned());
            let request = Request {
                text: "",
                json: Some(&json),
                header: &header,
            };
            filter.leaves_out(&request).map(str::to_owned)
        };
        assert_eq!(
            leaves_out(json!({"action": "edited", "n": 7}), "comment"),
            None
        );
        for (json, event, at) in [
            (json!({"action": "deleted", "n": 7}), "comment", "/action"),
            (json!({"action": null, "n": 7}), "comment", "/action"),
            (json!({"n": 7}), "comment", "/action"),
            (json!({"action": "created", "n": 70}), "comment", "/n"),
            (
                json!({"action": "created", "n": 7}),
                "push",
                "header:X-Event",
            ),
        ] {
            assert_eq!(leaves_out(json, event).as_deref(), Some(at));
        }
        assert!(filter.is_about("/n") && !filter.is_about("/m"));
        let no_json = Request {
            text: "",
            json: None,
            header: &|_| None,
        };
        assert!(filter.leaves_out(&no_json).is_some());
        assert_eq!(Filter::default().leaves_out(&no_json), None);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        let many = "x".repeat(MOST + 1);
        let many: Vec<String> = many.char_indices().map(|(n, _)| format!("/{n}")).collect();
        let many: Vec<(&str, &[&str])> = many.iter().map(|at| (at.as_str(), &["x"][..])).collect();
        for (bad, told) in [
            (only(&[("action", &["x"])]), "write {/a/b}"),
            (only(&[("{/action}", &["x"])]), "without braces"),
            (only(&[("/a}{/b", &["x"])]), "without braces"),
            (only(&[("/action", &[])]), "between 1 and 100"),
            (only(&[("/action", &["x"; 101])]), "between 1 and 100"),
            (only(&many), "at most 20"),
        ] {
            let refused = Filter::parse(&bad).unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
    }
}
