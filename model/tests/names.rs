//! The steps name the code that they stand for: what they name is there.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent()
        .expect("the model is a folder of the repository")
        .to_owned()
}

/// The text of all files with this ending.
fn read_all(folder: &Path, ending: &str, text: &mut String) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            read_all(&path, ending, text);
        } else if path
            .extension()
            .is_some_and(|extension| extension == ending)
        {
            text.push_str(&fs::read_to_string(&path).expect("sources are text"));
        }
    }
}

/// What stands between backticks in comments.
fn named(source: &str) -> Vec<&str> {
    let comments = source
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with("//"));
    comments
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

#[test]
fn everything_that_the_model_names_exists() {
    let root = root();
    let (mut sql, mut rust, mut model) = (String::new(), String::new(), String::new());
    read_all(&root.join("migrations"), "sql", &mut sql);
    read_all(&root.join("src"), "rs", &mut rust);
    read_all(&root.join("model/src"), "rs", &mut model);
    let mut missing = Vec::new();
    let names = named(&model);
    assert!(names.len() > 50, "comments name code");
    for name in names {
        // Words of the model's own.
        if ["GONE", "fine", "make model", "make test"].contains(&name) {
            continue;
        }
        let is_there = if let Some(function) = name.strip_prefix("lanekeeper.") {
            sql.contains(&format!("FUNCTION lanekeeper.{function}("))
        } else if name.contains('/') {
            let of_store = root.join("src/postgres").join(name);
            [root.join(name), root.join("model").join(name), of_store]
                .iter()
                .any(|path| path.exists())
        } else {
            // A call's arguments and a path's modules are for the reader.
            let word = name.split('(').next().unwrap_or_default();
            let word = word.rsplit("::").next().unwrap_or_default();
            has_word(&sql, word) || has_word(&rust, word)
        };
        if !is_there {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
