//! Makes foreign text fit for an error column, a log line and a terminal, and removes e-mail addresses. Programs and
//! servers often repeat their input.

use lanekeeper_core::redact::{REPLACEMENT, redact};

/// At most `limit` characters from the start of `bytes`.
pub(super) fn first(bytes: &[u8], limit: usize) -> String {
    clean(bytes).chars().take(limit).collect()
}

/// At most `limit` characters from the end of `bytes`.
pub(super) fn last(bytes: &[u8], limit: usize) -> String {
    let text = clean(bytes);
    let skipped = text.chars().count().saturating_sub(limit);
    text.chars().skip(skipped).collect()
}

/// One line without addresses: invalid UTF-8 replaced, control characters (escape sequences among them) gone.
fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let visible = text.replace(|c: char| c.is_control() || is_reordering(c), " ");
    let line = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    redact(&line, REPLACEMENT).unwrap_or(line)
}

/// Bidirectional overrides make a terminal show text in another order than it is written.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_invalid_utf8_do_not_survive() {
        assert_eq!(first(b"a\x1b[31mb\r\n\0c\xff", 50), "a [31mb c\u{fffd}");
        assert_eq!(first("x\u{202e}y\u{9b}z".as_bytes(), 50), "x y z");
    }

    #[test]
    fn addresses_do_not_survive_wherever_the_text_is_cut() {
        let text = b"no mailbox for jane.doe@example.com here";
        assert_eq!(first(text, 50), "no mailbox for [email] here");
        assert_eq!(first(text, 20), "no mailbox for [emai");
        assert_eq!(last(text, 11), "email] here");
    }

    #[test]
    fn excerpts_are_bounded_in_characters_at_either_end() {
        let text = "ä".repeat(400);
        assert_eq!(first(text.as_bytes(), 300).chars().count(), 300);
        assert_eq!(last(b"0123456789", 3), "789");
    }
}
