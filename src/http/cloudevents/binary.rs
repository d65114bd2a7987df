//! Binary mode: attributes are `ce-` headers, and the data is the body as it is.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanekeeper_core::cloudevent::{Attributes, is_json};
use percent_encoding::percent_decode;
use serde_json::Value;

use super::{Given, Refused};

const PREFIX: &str = "ce-";

pub(super) fn read<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Given<'a>, Refused> {
    let mut attributes = Attributes::default();
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(PREFIX) else {
            continue;
        };
        if name == "datacontenttype" {
            let (name, reason) = (header.to_string(), "is not for this: it is `content-type`");
            return Err(Refused::Header { name, reason });
        }
        let text = decoded(value).ok_or_else(|| Refused::Header {
            name: header.to_string(),
            reason: "is no percent-encoded text in UTF-8",
        })?;
        attributes.insert(name, Value::String(text))?;
    }
    let content_type = match headers.get(header::CONTENT_TYPE) {
        None => None,
        Some(given) => Some(given.to_str().map_err(|_| Refused::Header {
            name: "content-type".to_owned(),
            reason: "is no text",
        })?),
    };
    if let Some(content_type) = content_type {
        attributes.insert("datacontenttype", Value::String(content_type.to_owned()))?;
    }
    let (payload, is_base64) = data(content_type, body)?;
    Ok(Given {
        attributes,
        payload,
        is_base64,
    })
}

/// The payload, and whether it is base64 text.
fn data<'a>(content_type: Option<&str>, body: &'a [u8]) -> Result<(Cow<'a, str>, bool), Refused> {
    if body.is_empty() {
        return Ok((Cow::Borrowed("null"), false));
    }
    let essence = content_type.unwrap_or("application/json");
    let not_text = |_| Refused::NotText(essence.chars().take(80).collect());
    if is_json(content_type) {
        let text = std::str::from_utf8(body).map_err(not_text)?;
        return Ok((Cow::Borrowed(text), false));
    }
    let is_text = essence
        .get(..5)
        .is_some_and(|kind| kind.eq_ignore_ascii_case("text/"));
    let (text, is_base64) = if is_text {
        (
            Cow::Borrowed(std::str::from_utf8(body).map_err(not_text)?),
            false,
        )
    } else {
        (Cow::Owned(STANDARD.encode(body)), true)
    };
    Ok((Cow::Owned(Value::from(text).to_string()), is_base64))
}

/// A header's text: quotes are taken off, then the percent-encoding. `None`: it is none.
fn decoded(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?.trim();
    let text = match text.strip_prefix('"') {
        Some(quoted) => Cow::Owned(unquoted(quoted)?),
        None => Cow::Borrowed(text),
    };
    let decoded = percent_decode(text.as_bytes()).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// What stands in a quoted string, from behind its first quote. `None`: it does not end there.
fn unquoted(quoted: &str) -> Option<String> {
    let mut text = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(text),
            '\\' => text.push(rest.next()?),
            c => text.push(c),
        }
    }
}
