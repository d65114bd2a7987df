//! Replaces e-mail addresses in text.
//!
//! The text is the decoded content of a JSON string, or what could not be decoded at all. Strings
//! often hold JSON, or code, of their own, so escape sequences inside the text count for what they
//! stand for: `\n` before an address is a line break and not its first letter, `\u0040` and `%40`
//! are `@`, through any number of backslashes. Nothing that belongs to an escape is ever cut in
//! two, so JSON inside a string stays JSON.
//!
//! Where a backslash is meant literally (`C:\nina@example.com`), its next letter may stay behind;
//! the address is gone all the same, unless that letter is all of it: `\n@app.route` is a decorator
//! on a new line far more often than the address of somebody called n. Left out on purpose: quoted
//! local parts, addresses with an IP literal, host names without a dot. `git@github.com` has the
//! form of an address and is replaced.

/// What stands where an address was.
pub const REPLACEMENT: &str = "[email]";

/// One character of the text as it is meant, and where the text goes on after it.
#[derive(Clone, Copy)]
struct Unit {
    /// `None`: a separator, part of no address.
    meaning: Option<char>,
    end: usize,
}

/// The text without its addresses, or `None` if it holds none.
pub fn redact(text: &str, replacement: &str) -> Option<String> {
    if !may_hold_address(text) {
        return None;
    }
    let mut redacted: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    let mut local_start = None;
    while let Some(unit) = unit(text, at) {
        match (unit.meaning, local_start) {
            (Some('@'), Some(start)) => {
                if let Some(end) = domain_end(text, unit.end) {
                    let out = redacted.get_or_insert_with(|| String::with_capacity(text.len()));
                    out.push_str(&text[copied..start]);
                    out.push_str(replacement);
                    copied = end;
                    at = end;
                    local_start = None;
                    continue;
                }
                local_start = None;
            }
            (Some(c), start) if is_local(c) => local_start = start.or(Some(at)),
            _ => local_start = None,
        }
        at = unit.end;
    }
    redacted.map(|mut out| {
        out.push_str(&text[copied..]);
        out
    })
}

/// A cheap test that is never wrong when it says no.
pub fn may_hold_address(text: &str) -> bool {
    text.contains('@') || text.contains("%40") || text.contains("0040")
}

fn is_local(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '%' | '+' | '-')
}

/// Reads `example.co.uk` from `from` on; the end of the longest run of labels that ends in a
/// top-level domain.
fn domain_end(text: &str, from: usize) -> Option<usize> {
    let mut end = None;
    let mut at = from;
    for labels in 0.. {
        let start = at;
        let (mut len, mut alphabetic) = (0, true);
        while let Some(Unit {
            meaning: Some(c),
            end,
        }) = unit(text, at)
            && (c.is_alphanumeric() || c == '-')
        {
            len += 1;
            alphabetic &= c.is_alphabetic();
            at = end;
        }
        if len == 0 {
            break;
        }
        if labels > 0 && len >= 2 && (alphabetic || text[start..].starts_with("xn--")) {
            end = Some(at);
        }
        match unit(text, at) {
            Some(Unit {
                meaning: Some('.'),
                end,
            }) => at = end,
            _ => break,
        }
    }
    end
}

/// The unit that starts at a character boundary.
fn unit(text: &str, at: usize) -> Option<Unit> {
    let rest = &text[at..];
    let first = rest.chars().next()?;
    if rest.starts_with("%40") {
        return Some(Unit {
            meaning: Some('@'),
            end: at + 3,
        });
    }
    if first != '\\' {
        return Some(Unit {
            meaning: Some(first),
            end: at + first.len_utf8(),
        });
    }
    let after = at + rest.bytes().take_while(|b| *b == b'\\').count();
    let escaped = |meaning, len| Unit {
        meaning,
        end: after + len,
    };
    Some(match text.as_bytes().get(after) {
        Some(b'n' | b't' | b'r' | b'b' | b'f') => escaped(None, 1),
        Some(b'u') => {
            let code = text.get(after + 1..after + 5);
            match code.and_then(|hex| u32::from_str_radix(hex, 16).ok()) {
                Some(code) => escaped(char::from_u32(code), 5),
                None => escaped(None, 0),
            }
        }
        _ => escaped(None, 0),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redacted(text: &str) -> String {
        redact(text, REPLACEMENT).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn addresses_go_and_their_surroundings_stay() {
        for (text, expected) in [
            ("user@example.com", "[email]"),
            (
                "Co-authored-by: A <a.b+c@mail.example.co.uk>.",
                "Co-authored-by: A <[email]>.",
            ),
            ("mail me@example.com.", "mail [email]."),
            ("müller@bücher.de, x", "[email], x"),
            ("a@b.com,c@d.org", "[email],[email]"),
            ("mailto:user%40example.com?x", "mailto:[email]?x"),
            ("me@example.xn--p1ai!", "[email]!"),
            ("me@example.com.123", "[email].123"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn what_only_looks_like_an_address_stays() {
        for text in [
            "left-pad@1.3.0",
            "@scope/pkg",
            "a @ b.com",
            "root@host",
            "@decorator.name",
            "x@y.z",
        ] {
            assert_eq!(redact(text, REPLACEMENT), None, "{text}");
        }
    }

    #[test]
    fn escapes_inside_the_text_count_for_what_they_stand_for() {
        for (text, expected) in [
            (r"{\n\nuser@example.com\n}", r"{\n\n[email]\n}"),
            (r#"{"a":"\nuser\u0040example.com"}"#, r#"{"a":"\n[email]"}"#),
            (
                r#"{\"a\":\"\\nuser@example.com\\n\"}"#,
                r#"{\"a\":\"\\n[email]\\n\"}"#,
            ),
            (r"\u0075ser@example\u002ecom", "[email]"),
            (r"\\u0075ser\\u0040example.com", "[email]"),
            (r"C:\nina@example.com", r"C:\n[email]"),
            (r"C:\u@example.com", r"C:\[email]"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    proptest! {
        #[test]
        fn json_inside_a_string_stays_json(words in prop::collection::vec("[a-z\\\\\n\"@é]{0,6}", 0..8), user in "[a-z]{2,8}") {
            let inner = serde_json::to_string(&format!("{}{user}@example.com{}", words.join("\n"), words.join(" "))).unwrap();
            let kept = redacted(&inner);
            prop_assert!(serde_json::from_str::<String>(&kept).is_ok(), "{kept}");
            prop_assert!(!kept.contains("@example.com"));
        }

        #[test]
        fn any_text_is_survived_and_a_second_pass_finds_nothing(text in r"[a-z0-9@.%u\\né_-]{0,40}") {
            let once = redacted(&text);
            prop_assert_eq!(redact(&once, REPLACEMENT), None);
        }
    }
}
