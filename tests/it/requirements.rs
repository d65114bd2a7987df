//! The documents name tests as proof. These tests check that those tests exist.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::document::{repository, rows};

/// The rows of the requirements: a letter, and how many there are of it.
const ROWS: [(&str, u32); 8] = [
    ("A", 9),
    ("B", 9),
    ("C", 13),
    ("D", 7),
    ("E", 9),
    ("F", 8),
    ("G", 5),
    ("H", 12),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `a::b::name`, as the test runner prints it: every part is a plain word.
fn is_test_path(text: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    text.contains("::") && text.split("::").all(word)
}

fn test_exists(path: &str) -> bool {
    // Those of the model are binaries of their own.
    let (roots, path) = match path.strip_prefix("model::") {
        Some(path) => (&["model/tests"][..], path),
        None => (&["tests/it", "tests/crash", "tests/sim", "src"][..], path),
    };
    let mut parts: Vec<&str> = path.split("::").collect();
    let name = parts.pop().unwrap_or_default();
    // Those of chats by a macro that lists them for all platforms.
    if parts.last() == Some(&"chats") {
        parts.pop();
        let platform = format!("tests/it/{}.rs", parts.join("/"));
        let listed =
            read("tests/it/conformance/mod.rs").contains(&format!("            {name},\n"));
        return listed && read(&platform).contains("chats!(");
    }
    // Behaviours of the conformance suite become tests by a macro that lists them.
    let conforms = parts.last() == Some(&"conforms");
    if conforms || parts.last() == Some(&"tests") {
        parts.pop();
    }
    let module: PathBuf = parts.iter().collect();
    let files = roots.iter().flat_map(|root| {
        let module = repository(root).join(&module);
        [
            module.with_extension("rs"),
            module.join("mod.rs"),
            module.join("lib.rs"),
            module.join("tests.rs"),
        ]
    });
    files
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .any(|text| {
            if conforms {
                let listed = text.split_once("conforms!").map_or("", |(_, list)| list);
                let list = listed.split(';').next().unwrap_or_default();
                return list
                    .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                    .any(|word| word == name);
            }
            // An attribute of a test stands above it, not merely a function of that name.
            text.split_once(&format!("fn {name}("))
                .is_some_and(|(before, _)| {
                    let above = before.rsplit("\n\n").next().unwrap_or_default();
                    above.contains("#[test]") || above.contains("#[tokio::test")
                })
        })
}

#[test]
fn every_requirement_has_one_row_with_its_state_and_its_tests() {
    let text = read("docs/requirements.md");
    let mut seen = Vec::new();
    for row in rows(&text) {
        let [id, _, state, missing, tests] = row[..] else {
            panic!("five cells are expected: {row:?}");
        };
        seen.push(id.to_owned());
        let named: Vec<&str> = quoted(tests).collect();
        match state {
            "done" => assert_eq!(missing, "", "{id} is done and lacks something"),
            "partly" | "not yet" => assert_ne!(missing, "", "{id} does not say what is missing"),
            other => panic!("{id}: {other:?} is no state"),
        }
        assert!(
            state == "not yet" || !named.is_empty(),
            "{id} names no test"
        );
        for test in named {
            assert!(
                is_test_path(test) && test_exists(test),
                "{id}: no test {test}"
            );
        }
    }
    seen.sort();
    let mut expected: Vec<String> = ROWS
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")))
        .collect();
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn every_test_that_the_architecture_and_the_guarantees_name_exists() {
    for document in ["ARCHITECTURE.md", "docs/guarantees.md", "docs/testing.md"] {
        let text = read(document);
        let missing: Vec<&str> = rows(&text)
            .into_iter()
            .flatten()
            .flat_map(quoted)
            .filter(|text| is_test_path(text) && !test_exists(text))
            .collect();
        assert!(missing.is_empty(), "{document}: {missing:#?}");
    }
}

#[test]
fn every_invariant_names_its_files_and_its_tests() {
    let text = read("ARCHITECTURE.md");
    let mut seen = BTreeSet::new();
    for row in rows(&text) {
        let Some(number) = row[0].trim_matches('*').strip_prefix('I') else {
            continue;
        };
        let Ok(number) = number.parse::<u32>() else {
            continue;
        };
        assert!(seen.insert(number), "I{number} twice");
        let [_, _, files, tests] = row[..] else {
            panic!("four cells are expected: {row:?}");
        };
        assert!(quoted(tests).any(is_test_path), "I{number} names no test");
        let files: Vec<&str> = quoted(files).collect();
        assert!(!files.is_empty(), "I{number} names no file");
        for file in files {
            assert!(repository(file).is_file(), "I{number}: no file {file}");
        }
    }
    assert_eq!(seen, (1..=13).collect());
}

#[test]
fn the_code_map_names_every_crate_and_every_folder_of_the_engine() {
    fn folders(path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(repository(path)) else {
            return Vec::new();
        };
        entries
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| format!("{path}/{}", entry.file_name().to_string_lossy()))
            .collect()
    }
    let crates: Vec<String> = folders("src")
        .into_iter()
        .filter(|folder| repository(folder).join("Cargo.toml").is_file())
        .collect();
    let rooms = if repository("src/engine/claiming").is_dir() {
        folders("src/engine")
    } else {
        Vec::new()
    };
    let text = read("ARCHITECTURE.md");
    let missing: Vec<&String> = crates
        .iter()
        .chain(&rooms)
        .filter(|folder| !text.contains(&format!("`{folder}/`")))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
