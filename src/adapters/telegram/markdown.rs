//! Converts the Markdown that agents write to MarkdownV2 (core.telegram.org/bots/api#markdownv2-style).
//!
//! It keeps fenced code, `code` and **bold**. It escapes every other character that has a meaning in MarkdownV2, so
//! that Telegram refuses no text for its punctuation.

/// "… must be escaped with the preceding character '\'".
const SPECIAL: &str = r"\_*[]()~`>#+-=|{}.!";

pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut in_code = false;
    for line in text.split_inclusive('\n') {
        if let Some(rest) = line.trim_start().strip_prefix("```") {
            out.push_str("```");
            if !in_code {
                let language = rest.trim_end();
                let plain = |c: char| c.is_ascii_alphanumeric() || "+-_#".contains(c);
                out.extend(language.chars().take_while(|c| plain(*c)));
            }
            in_code = !in_code;
            if line.ends_with('\n') {
                out.push('\n');
            }
        } else if in_code {
            code(line, &mut out);
        } else {
            inline(line, &mut out);
        }
    }
    if in_code {
        out.push_str("\n```");
    }
    out
}

/// One line outside of code.
fn inline(mut line: &str, out: &mut String) {
    while let Some(c) = line.chars().next() {
        if let Some((inner, rest)) = between(line, "`") {
            out.push('`');
            code(inner, out);
            out.push('`');
            line = rest;
        } else if let Some((inner, rest)) = between(line, "**") {
            out.push('*');
            inner.chars().for_each(|c| literal(c, out));
            out.push('*');
            line = rest;
        } else {
            literal(c, out);
            line = &line[c.len_utf8()..];
        }
    }
}

/// What stands between two marks at the beginning of `line`, and what is behind them.
fn between<'t>(line: &'t str, mark: &str) -> Option<(&'t str, &'t str)> {
    let (inner, rest) = line.strip_prefix(mark)?.split_once(mark)?;
    let marked = !inner.trim().is_empty() && !inner.contains('\n');
    marked.then_some((inner, rest))
}

fn literal(c: char, out: &mut String) {
    if SPECIAL.contains(c) {
        out.push('\\');
    }
    out.push(c);
}

/// "Inside pre and code entities, all '`' and '\' characters must be escaped".
fn code(text: &str, out: &mut String) {
    for c in text.chars() {
        if matches!(c, '`' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_is_escaped_and_code_and_bold_are_kept() {
        for (text, escaped) in [
            ("1. Done! (a-b)", r"1\. Done\! \(a\-b\)"),
            ("snake_case*", r"snake\_case\*"),
            ("see `a_b.c` **now!**", r"see `a_b.c` *now\!*"),
            ("a ` b ** c", r"a \` b \*\* c"),
            (
                "```rs\nlet a = `\\`;\n```\n.",
                "```rs\nlet a = \\`\\\\\\`;\n```\n\\.",
            ),
            ("```\nopen", "```\nopen\n```"),
        ] {
            assert_eq!(escape(text), escaped, "{text}");
        }
    }

    proptest::proptest! {
        /// As Telegram reads it: outside of code no special character stands unescaped but a pair of marks.
        #[test]
        fn nothing_special_is_left_unescaped(text in r"[a-z_.!\\~|()#+=-]{0,40}") {
            let escaped = escape(&text);
            let mut chars = escaped.chars();
            let mut plain = String::new();
            while let Some(c) = chars.next() {
                let c = match c {
                    '\\' => chars.next().expect("something is escaped"),
                    c => {
                        proptest::prop_assert!(!SPECIAL.contains(c), "{}", escaped);
                        c
                    }
                };
                plain.push(c);
            }
            proptest::prop_assert_eq!(plain, text);
        }
    }
}
