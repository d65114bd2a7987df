//! What the content of a JSON string stands for, with U+FFFD where Postgres has no character.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// What had to be changed so that Postgres takes a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    pub nul: bool,
    pub surrogate: bool,
    pub number: bool,
}

/// The text that a string's content stands for, with U+FFFD where Postgres has no character.
pub fn decode(raw: &str) -> (Cow<'_, str>, Repairs) {
    let mut repairs = Repairs::default();
    if !raw.contains('\\') {
        return (Cow::Borrowed(raw), repairs);
    }
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(backslash) = rest.find('\\') {
        text.push_str(&rest[..backslash]);
        let (c, len) = escape(&rest[backslash..], &mut repairs);
        text.push(c);
        rest = &rest[backslash + len..];
    }
    text.push_str(rest);
    (Cow::Owned(text), repairs)
}

/// The character that the escape sequence at the start of `text` stands for, and its length.
fn escape(text: &str, repairs: &mut Repairs) -> (char, usize) {
    let c = match text.as_bytes().get(1) {
        Some(b'u') => return unicode_escape(text, repairs),
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        _ => {
            return text
                .chars()
                .nth(1)
                .map_or(('\\', 1), |c| (c, 1 + c.len_utf8()));
        }
    };
    (c, 2)
}

fn unicode_escape(text: &str, repairs: &mut Repairs) -> (char, usize) {
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let Some(first) = unit(text) else {
        return ('\\', 1);
    };
    if first == 0 {
        repairs.nul = true;
        return (char::REPLACEMENT_CHARACTER, 6);
    }
    let second = text.get(6..).and_then(unit);
    match char::decode_utf16([first].into_iter().chain(second)).next() {
        Some(Ok(c)) => (c, if c.len_utf16() == 2 { 12 } else { 6 }),
        _ => {
            repairs.surrogate = true;
            (char::REPLACEMENT_CHARACTER, 6)
        }
    }
}

/// The text of a string or number; `None` for anything else.
pub fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let raw = value.get();
    match raw.as_bytes().first()? {
        b'"' => Some(decode(raw.get(1..raw.len() - 1)?).0),
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(raw)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_their_characters() {
        let (text, repairs) = decode(r#"a\\\"\/\b\f\n\r\t\u00e9\ud83d\ude00é"#);
        assert_eq!(text, "a\\\"/\u{8}\u{c}\n\r\té😀é");
        assert_eq!(repairs, Repairs::default());
    }

    #[test]
    fn what_is_no_character_is_replaced_and_reported() {
        for (raw, expected, nul, surrogate) in [
            (r"a\u0000b", "a\u{fffd}b", true, false),
            (r"\ud800", "\u{fffd}", false, true),
            (r"\ud800\u0041", "\u{fffd}A", false, true),
            (r"\ude00\ud83d\ude00", "\u{fffd}😀", false, true),
        ] {
            let (text, repairs) = decode(raw);
            assert_eq!(text, expected, "{raw}");
            assert_eq!((repairs.nul, repairs.surrogate), (nul, surrogate), "{raw}");
        }
    }

    #[test]
    fn only_strings_and_numbers_have_text() {
        for (json, expected) in [
            ("\"a\"", Some("a")),
            ("7", Some("7")),
            ("null", None),
            ("[]", None),
        ] {
            let value: &RawValue = serde_json::from_str(json).unwrap();
            assert_eq!(text_of(value).as_deref(), expected, "{json}");
        }
    }
}
