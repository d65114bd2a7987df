//! The command line that does the same as a button.

use maud::{Markup, html};

use super::format::is_hidden;

/// A command in a shell's words.
pub(crate) fn line(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    format!("lanekeeper {}", quoted.join(" "))
}

/// A word that a shell takes as it is. One with characters that no line shows is written so that it can be pasted.
fn quote(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    if word.chars().any(is_hidden) {
        let escaped: String = word.chars().map(escape).collect();
        return format!("$'{escaped}'");
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn escape(char: char) -> String {
    match char {
        '\'' => r"\'".to_owned(),
        '\\' => r"\\".to_owned(),
        char if is_hidden(char) => format!(r"\u{:04x}", u32::from(char)),
        char => char.to_string(),
    }
}

/// A command that can be copied.
pub(crate) fn shown(line: &str) -> Markup {
    html! {
        div.command-line {
            pre.command tabindex="0" aria-label="The same on the command line" { code { (line) } }
            button.plain.copy type="button" hidden data-copy=(line) { "Copy" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_every_name_as_it_is() {
        assert_eq!(
            line(&["lane", "skip", "42", "--yes"]),
            "lanekeeper lane skip 42 --yes"
        );
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's $(rm)"), r"'it'\''s $(rm)'");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("a\n'b\\"), r"$'a\u000a\'b\\'");
        assert_eq!(quote("\u{202e}x"), r"$'\u202ex'");
    }
}
