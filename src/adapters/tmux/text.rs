//! What of a message reaches a terminal: text, line breaks and nothing that a terminal obeys.
//!
//! | in the message | in the terminal |
//! |---|---|
//! | CR LF, CR, U+2028, U+2029 | a line break |
//! | a tab | four spaces |
//! | an escape sequence: ESC or U+009B and what belongs to it | nothing |
//! | any other C0 or C1 control character, DEL | nothing |
//!
//! So no message can end the bracketed paste that it is in: that takes an ESC or a U+009B, and none is left.

/// The text as it is pasted, without line breaks at its ends.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => {
                rest.next_if_eq(&'\n');
                plain.push('\n');
            }
            '\n' | '\u{2028}' | '\u{2029}' => plain.push('\n'),
            '\t' => plain.push_str("    "),
            '\u{1b}' => match rest.peek() {
                Some('[') => {
                    rest.next();
                    skip_control_sequence(&mut rest);
                }
                // Operating system commands, device control strings and the like: up to their terminator.
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    rest.next();
                    skip_string(&mut rest);
                }
                // Two or three characters; another ESC begins a sequence of its own.
                Some(' '..='/') => {
                    while rest.next_if(|c| (' '..='/').contains(c)).is_some() {}
                    rest.next_if(|c| ('0'..='~').contains(c));
                }
                Some('0'..='~') => {
                    rest.next();
                }
                _ => {}
            },
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain.trim_matches('\n').to_owned()
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Parameters, intermediates, and the final character.
fn skip_control_sequence(rest: &mut Rest<'_>) {
    while rest.next_if(|c| (' '..='?').contains(c)).is_some() {}
    rest.next_if(|c| ('@'..='~').contains(c));
}

/// Up to BEL, U+009C, or ESC, which begins the terminator or another sequence. One without an end takes no more than
/// its line.
fn skip_string(rest: &mut Rest<'_>) {
    while let Some(c) = rest.next_if(|c| !matches!(c, '\u{1b}' | '\n' | '\r')) {
        if matches!(c, '\u{7}' | '\u{9c}') {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_in_any_script_and_its_lines_stay() {
        for text in [
            "and now?",
            "zwei\nZeilen",
            "héllo — 日本語 👩‍💻 שלום",
            "a [201~ b",
        ] {
            assert_eq!(plain(text), text);
        }
        assert_eq!(plain("\r\na\r\nb\rc\u{2028}d\n\n"), "a\nb\nc\nd");
        assert_eq!(plain("a\tb"), "a    b");
    }

    #[test]
    fn what_a_terminal_obeys_is_removed_whole() {
        for (text, left) in [
            ("a\u{1b}[201~b", "ab"),
            ("a\u{1b}\u{1b}[201~[201~b", "a[201~b"),
            ("a\u{9b}201~b", "ab"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]52;c;aGk=\u{1b}\\b", "ab"),
            ("a\u{1b}Pq#0\u{1b}\\b", "ab"),
            ("a\u{1b}(Bb", "ab"),
            ("a\u{1b}cb", "ab"),
            ("a\u{3}\u{4}\u{1a}\u{0}\u{8}\u{7f}\u{85}b", "ab"),
            ("\u{1b}[31;1mred\u{1b}[0m", "red"),
            ("a\u{1b}]never ended\nb", "a\nb"),
            ("a\u{1b}", "a"),
            ("\u{1b}[", ""),
        ] {
            assert_eq!(plain(text), left, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_control_character_but_the_line_break_is_left(text in any::<String>()) {
            let plain = plain(&text);
            prop_assert!(plain.chars().all(|c| c == '\n' || !c.is_control()), "{plain:?}");
            prop_assert_eq!(super::plain(&plain), plain.clone());
        }

        #[test]
        fn text_without_control_characters_stays_as_it_is(text in "[^\\p{Cc}\u{2028}\u{2029}]{0,100}") {
            prop_assert_eq!(plain(&text), text);
        }
    }
}
