//! What the configuration file and the subscription file have in common: where in the text
//! something stands, and which known key a wrong one resembles.

use std::fmt;

/// A place in a text, both counted from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    /// The place of a byte offset, as TOML spans give it.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The place of a syntax error; the start of the text where TOML gives none.
    pub fn of_error(text: &str, error: &toml::de::Error) -> Self {
        Self::of(text, error.span().map_or(0, |span| span.start))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Below this similarity a suggestion misleads more than it helps.
const SIMILAR: f64 = 0.5;

/// The known word that a wrong one resembles most, if one does.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    known
        .into_iter()
        .map(|word| (word, strsim::normalized_damerau_levenshtein(&wrong, word)))
        .filter(|(_, similarity)| *similarity >= SIMILAR)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "a = 1\nü = 2\n";
        assert_eq!(Position::of(text, 0), Position { line: 1, column: 1 });
        let two = text.find('2').unwrap();
        assert_eq!(Position::of(text, two), Position { line: 2, column: 5 });
        assert_eq!(
            Position::of(text, text.len()),
            Position { line: 3, column: 1 }
        );
    }

    #[test]
    fn an_offset_outside_the_text_is_its_end() {
        assert_eq!(Position::of("a\nb", 99), Position { line: 2, column: 2 });
    }

    #[test]
    fn a_typo_finds_the_word_that_was_meant() {
        let known = ["stream", "adapter", "retry", "timeout"];
        assert_eq!(nearest("retrry", known), Some("retry"));
        assert_eq!(nearest("Stream", known), Some("stream"));
        assert_eq!(nearest("time_out", known), Some("timeout"));
    }

    #[test]
    fn a_word_unlike_all_others_gets_no_suggestion() {
        assert_eq!(nearest("xyz", ["stream", "adapter"]), None);
    }
}
