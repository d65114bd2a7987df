//! Splits a text that is too long for one message: at the end of a line, else of a word, else between two characters. A
//! code fence that is cut is closed, and opened again in the next part.
//!
//! Lengths are UTF-16 code units, which Telegram counts; no platform counts more for any character.

const FENCE: &str = "```";
/// What an opening fence may say; a longer line is cut off in what is repeated.
const LONGEST_OPENING: usize = 40;

/// The parts of `text`, each of at most `limit` units, at least 100 of them. White space at a cut is dropped.
pub fn split(text: &str, limit: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text;
    // The line that opened the fence in which the last part was cut.
    let mut opening: Option<&str> = None;
    loop {
        if opening.is_some() && rest.starts_with(FENCE) {
            // It was closed where it was cut: what would have closed it here goes.
            opening = None;
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        }
        if rest.trim().is_empty() {
            break;
        }
        let head = opening.map(|line| format!("{line}\n")).unwrap_or_default();
        let room = limit - units(&head);
        if units(rest) <= room {
            parts.push(head + rest);
            break;
        }
        let (mut part, mut after) = cut(rest, room);
        if open_fence(part, opening).is_some() {
            // Room for the line that closes it.
            (part, after) = cut(rest, room - units(FENCE) - 1);
        }
        opening = open_fence(part, opening);
        // Between two lines the fence opens again by itself.
        if opening.is_none() {
            part = part.trim_end();
        }
        let tail = match opening {
            Some(_) => format!("\n{FENCE}"),
            None => String::new(),
        };
        rest = match opening {
            Some(_) => after.strip_prefix('\n').unwrap_or(after),
            None => after.trim_start_matches(['\n', ' ']),
        };
        if !part.trim().is_empty() {
            parts.push(format!("{head}{part}{tail}"));
        }
    }
    parts
}

pub fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// At most `room` units of a longer text, and what is left.
fn cut(text: &str, room: usize) -> (&str, &str) {
    let mut used = 0;
    let end = text
        .char_indices()
        .find(|(_, c)| {
            used += c.len_utf16();
            used > room
        })
        .map_or(text.len(), |(at, _)| at);
    // A part of less than half of what there is room for looks worse than a cut inside a line or word.
    let least = end / 2;
    let at = [text[..end].rfind('\n'), text[..end].rfind(' ')]
        .into_iter()
        .flatten()
        .find(|at| *at > least)
        .unwrap_or(end);
    text.split_at(at)
}

/// The opening line of the fence that is open at the end of `part`, which began in `opening`.
fn open_fence<'t>(part: &'t str, opening: Option<&'t str>) -> Option<&'t str> {
    let fences = part
        .lines()
        .filter(|line| line.trim_start().starts_with(FENCE));
    fences.fold(opening, |open, line| match open {
        Some(_) => None,
        None if units(line) <= LONGEST_OPENING => Some(line.trim()),
        None => Some(FENCE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_one_part_as_it_is() {
        assert_eq!(split("  a\n\nb ", 100), ["  a\n\nb "]);
        assert_eq!(split(&"x".repeat(100), 100).len(), 1);
    }

    #[test]
    fn cuts_are_at_lines_then_at_words_then_anywhere() {
        let line = "y".repeat(70);
        let text = format!("{line}\n{line}");
        assert_eq!(split(&text, 100), [line.clone(), line.clone()]);
        let words = format!("{line} {line}");
        assert_eq!(split(&words, 100), [line.clone(), line]);
        let parts = split(&"z".repeat(250), 100);
        assert_eq!(parts.concat(), "z".repeat(250));
    }

    #[test]
    fn a_cut_fence_is_closed_and_opened_again() {
        let code = (0..40)
            .map(|n| format!("let x = {n};\n"))
            .collect::<String>();
        let text = format!("before\n```rust\n{code}```\nafter");
        let parts = split(&text, 150);
        assert!(parts.len() > 3);
        for part in &parts {
            assert_eq!(part.matches(FENCE).count() % 2, 0, "{part}");
            assert!(units(part) <= 150);
        }
        assert!(parts[1].starts_with("```rust\nlet x = "), "{}", parts[1]);
        let lines = |text: &str| {
            let code = text.lines().filter(|line| !line.contains(FENCE));
            code.map(str::to_owned).collect::<Vec<_>>()
        };
        let told: Vec<_> = parts.iter().flat_map(|part| lines(part)).collect();
        assert_eq!(told, lines(&text));
    }

    proptest::proptest! {
        #[test]
        fn no_part_is_too_long_or_empty_and_nothing_but_white_space_and_fences_is_changed(
            text in "([a-z🦀é `\n]|```\n){0,600}", limit in 100_usize..200,
        ) {
            let parts = split(&text, limit);
            for part in &parts {
                proptest::prop_assert!(units(part) <= limit, "{}", units(part));
                proptest::prop_assert!(!part.trim().is_empty());
            }
            let plain = |text: &str| text.replace(['`', ' ', '\n'], "");
            let told = parts.iter().map(|part| plain(part)).collect::<String>();
            // An opening line may say something, and says it again where it is opened again.
            if !text.contains("```") {
                proptest::prop_assert_eq!(told, plain(&text));
            }
        }
    }
}
