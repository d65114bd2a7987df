//! Reads queries and the bodies of forms: names and values, some of them more than once.

use std::borrow::Cow;

use axum::http::Uri;
use url::form_urlencoded;

use crate::trouble::Trouble;

/// The longest text of a search or a name.
const LONGEST: usize = 512;
/// The longest reason, as `close_session` takes it.
const LONGEST_REASON: usize = 1_000;

pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    pub(crate) fn of_query(uri: &Uri) -> Self {
        Self::of_body(uri.query().unwrap_or_default().as_bytes())
    }

    pub(crate) fn of_body(body: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(body).map(|(name, value)| (own(name), own(value)));
        Self(pairs.collect())
    }

    /// The first value of a name, without blanks around it; `None` where there is nothing else.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Trouble> {
        self.bounded(name, LONGEST)
    }

    /// What an operator gives as a reason.
    pub(crate) fn reason(&self) -> Result<Option<&str>, Trouble> {
        self.bounded("reason", LONGEST_REASON)
    }

    fn bounded(&self, name: &str, longest: usize) -> Result<Option<&str>, Trouble> {
        let Some(value) = self.raw(name).map(str::trim) else {
            return Ok(None);
        };
        if value.len() > longest || value.contains('\0') {
            let detail = format!("{name:?} has more than {longest} bytes, or a NUL.");
            return Err(Trouble::invalid(detail));
        }
        Ok(Some(value).filter(|value| !value.is_empty()))
    }

    /// The first value of a name as it is: names of sessions may begin with a blank.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, Trouble> {
        let value = self.raw(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| Trouble::invalid(format!("{name:?} is missing.")))?;
        match value.len() > LONGEST || value.contains('\0') {
            true => Err(Trouble::invalid(format!(
                "{name:?} is too long, or has a NUL."
            ))),
            false => Ok(value),
        }
    }

    /// A number of ours: an id, a seq.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Trouble> {
        self.text(name)?.map(|text| number(name, text)).transpose()
    }

    pub(crate) fn required_number(&self, name: &str) -> Result<i64, Trouble> {
        number(name, self.required(name)?)
    }

    /// All values of a name.
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<i64>, Trouble> {
        let given = self.0.iter().filter(|(given, _)| given == name);
        given.map(|(_, value)| number(name, value)).collect()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.raw(name)
            .is_some_and(|value| value == "1" || value == "on")
    }
}

fn own(text: Cow<'_, str>) -> String {
    text.into_owned()
}

fn number(name: &str, text: &str) -> Result<i64, Trouble> {
    text.parse()
        .map_err(|_| Trouble::invalid(format!("{name:?} is not a number.")))
}

/// A query from names and values.
pub(crate) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_by_name_and_bounded() {
        let long = format!("q={}", "x".repeat(LONGEST + 1));
        assert!(Form::of_body(long.as_bytes()).text("q").is_err());
        let form = Form::of_body(b"id=1&id=2&name=+a%2F..%3C&empty=&yes=1&bad=x");
        assert_eq!(form.numbers("id").ok(), Some(vec![1, 2]));
        assert_eq!(form.required("name").ok(), Some(" a/..<"));
        assert_eq!(form.text("name").ok(), Some(Some("a/..<")));
        assert_eq!(form.text("empty").ok(), Some(None));
        assert!(form.flag("yes") && !form.flag("bad"));
        assert!(form.number("bad").is_err() && form.required("gone").is_err());
    }
}
