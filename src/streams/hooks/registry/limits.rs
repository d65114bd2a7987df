//! How much of a text is kept. The schema's own bounds lie above these.

/// Of a prompt, in characters: enough to recognise it; the log has the rest.
pub const PROMPT: usize = 2_000;
/// Of a notification or an error, in characters.
pub const MESSAGE: usize = 1_000;
/// Of ids, names and codes, in characters.
pub const NAME: usize = 512;
/// Of a path, in bytes. A longer one is left out: half a path is none.
pub const PATH: usize = 4_096;

/// The beginning of a text, marked where it goes on.
pub fn short(text: String, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text,
        Some(_) => {
            let mut kept: String = text.chars().take(max - 1).collect();
            kept.push('…');
            kept
        }
    }
}

/// A path that is short enough.
pub fn path(path: String) -> Option<String> {
    (path.len() <= PATH).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_fit_the_schema() {
        assert_eq!(short("größe".to_owned(), 5), "größe");
        assert_eq!(short("größer".to_owned(), 5), "größ…");
        assert!(short("😀".repeat(5_000), PROMPT).len() <= 8_192);
        assert_eq!(path("x".repeat(PATH + 1)), None);
    }
}
