//! The schema as files: numbered migrations, and one file for each function and view, in the order in which they can be
//! created.
//!
//! The order follows from the files: an object comes after those that its text names. So nobody keeps a list, and a circle
//! is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Paths below `migrations/` and texts, as build.rs found them.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// A line of each numbered migration: which workers may use the schema after it.
const OLDEST_WORKER: &str = "-- oldest-worker: ";

/// A file of `migrations/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// The SQL files of this release.
pub fn files() -> Vec<File> {
    let file = |(path, text): &(&str, &str)| File {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
    };
    FILES.iter().map(file).collect()
}

/// A numbered migration: applied once.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Such as `0001_tables`.
    pub name: String,
    pub sql: String,
    /// SHA-256 of the file.
    pub hash: String,
    /// Workers whose own schema version is this one or a later one may use the schema.
    pub oldest_worker: i32,
}

/// Functions and views are applied again whenever their file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Function,
    View,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::View => "view",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Object {
    pub kind: Kind,
    /// Without the schema's name.
    pub name: String,
    pub sql: String,
    /// SHA-256 of the file.
    pub hash: String,
}

/// What a release wants a database to have.
#[derive(Clone, Debug)]
pub struct Schema {
    numbered: Vec<Numbered>,
    objects: Vec<Object>,
    release: Release,
}

/// Of which release a schema is: major, minor, patch. What is built between two releases has the number of the next one or
/// of the last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub Vec<i32>);

impl Release {
    /// Of this program.
    pub fn own() -> Self {
        let number = |text: &str| text.parse().expect("Cargo writes whole numbers");
        Self(vec![
            number(env!("CARGO_PKG_VERSION_MAJOR")),
            number(env!("CARGO_PKG_VERSION_MINOR")),
            number(env!("CARGO_PKG_VERSION_PATCH")),
        ])
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SchemaError {
    #[error("{0}: a numbered migration is called NNNN_name.sql, and numbers have no gaps")]
    Number(String),
    #[error(
        "{0}: its number must follow that of the migration before it in a line `{OLDEST_WORKER}N`"
    )]
    OldestWorker(String),
    #[error("{0}: it is neither a numbered migration nor below functions/<topic>/")]
    Elsewhere(String),
    #[error(
        "{0}: it must create one function or view with CREATE OR REPLACE, of the file's own name"
    )]
    NotItsObject(String),
    #[error("{0} is defined by two files")]
    Twice(String),
    #[error("{0} needs itself, through others")]
    Circle(String),
}

impl Schema {
    /// Of this program.
    pub fn of_this_release() -> &'static Self {
        static SCHEMA: LazyLock<Schema> =
            LazyLock::new(|| Schema::new(&files()).expect("a unit test reads the same files"));
        &SCHEMA
    }

    /// # Errors
    /// Where the files break a rule of migrations/README.md.
    pub fn new(files: &[File]) -> Result<Self, SchemaError> {
        let mut files: Vec<&File> = files.iter().collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let (mut numbered, mut objects) = (Vec::new(), BTreeMap::new());
        for file in files {
            if let Some(rest) = file.path.strip_prefix("functions/") {
                let object = object(file, rest)?;
                if let Some(twice) = objects.insert(object.name.clone(), object) {
                    return Err(SchemaError::Twice(twice.name));
                }
            } else if file.path.contains('/') {
                return Err(SchemaError::Elsewhere(file.path.clone()));
            } else {
                numbered.push(migration(file, numbered.len() + 1)?);
            }
        }
        Ok(Self {
            numbered,
            objects: in_order(objects)?,
            release: Release::own(),
        })
    }

    /// The same as another release's: what upgrade tests need.
    #[must_use]
    pub fn released_as(self, release: Release) -> Self {
        Self { release, ..self }
    }

    pub fn release(&self) -> &Release {
        &self.release
    }

    /// The number of the last migration.
    pub fn version(&self) -> i32 {
        i32::try_from(self.numbered.len()).expect("fewer migrations than four digits can number")
    }

    pub fn numbered(&self) -> &[Numbered] {
        &self.numbered
    }

    /// Each behind those that it names.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Of everything: two schemas with the same digest are the same.
    pub fn digest(&self) -> String {
        let numbered = self.numbered.iter().map(|it| (&it.name, &it.hash));
        let objects = self.objects.iter().map(|it| (&it.name, &it.hash));
        let mut digest = Sha256::new();
        for (name, hash) in numbered.chain(objects) {
            digest.update(format!("{name} {hash}\n"));
        }
        hex(&digest.finalize())
    }
}

fn migration(file: &File, number: usize) -> Result<Numbered, SchemaError> {
    let name = file.path.strip_suffix(".sql").unwrap_or(&file.path);
    let expected = format!("{number:04}_");
    if name.strip_prefix(&expected).is_none_or(str::is_empty) {
        return Err(SchemaError::Number(file.path.clone()));
    }
    let oldest_worker = file
        .text
        .lines()
        .find_map(|line| line.strip_prefix(OLDEST_WORKER))
        .and_then(|version| version.trim().parse().ok())
        .filter(|version| (1..=number).contains(version))
        .and_then(|version| i32::try_from(version).ok())
        .ok_or_else(|| SchemaError::OldestWorker(file.path.clone()))?;
    Ok(Numbered {
        name: name.to_owned(),
        sql: file.text.clone(),
        hash: hash(&file.text),
        oldest_worker,
    })
}

/// `rest` is the path below `functions/`.
fn object(file: &File, rest: &str) -> Result<Object, SchemaError> {
    let not_its_object = || SchemaError::NotItsObject(file.path.clone());
    let (_, name) = rest
        .split_once('/')
        .filter(|(_, name)| !name.contains('/'))
        .ok_or_else(|| SchemaError::Elsewhere(file.path.clone()))?;
    let name = name.strip_suffix(".sql").ok_or_else(not_its_object)?;
    let mut created = file.text.lines().filter(|line| line.starts_with("CREATE"));
    let (Some(line), None) = (created.next(), created.next()) else {
        return Err(not_its_object());
    };
    let (kind, rest) = match line.strip_prefix("CREATE OR REPLACE FUNCTION lanekeeper.") {
        Some(rest) => (Kind::Function, Some(rest)),
        None => (
            Kind::View,
            line.strip_prefix("CREATE OR REPLACE VIEW lanekeeper."),
        ),
    };
    if rest.and_then(|rest| rest.split(['(', ' ']).next()) != Some(name) {
        return Err(not_its_object());
    }
    Ok(Object {
        kind,
        name: name.to_owned(),
        sql: file.text.clone(),
        hash: hash(&file.text),
    })
}

fn hash(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The functions and views that this text names: `lanekeeper.name(` and `lanekeeper.name`.
fn named(sql: &str) -> BTreeSet<(Kind, &str)> {
    let code = sql
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    code.flat_map(|line| line.split("lanekeeper.").skip(1))
        .map(|rest| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
            // A table may have the name of a function.
            match rest[name.len()..].starts_with('(') {
                true => (Kind::Function, name),
                false => (Kind::View, name),
            }
        })
        .collect()
}

fn in_order(mut objects: BTreeMap<String, Object>) -> Result<Vec<Object>, SchemaError> {
    let kinds: BTreeMap<String, Kind> = objects
        .values()
        .map(|object| (object.name.clone(), object.kind))
        .collect();
    let mut ordered: Vec<Object> = Vec::new();
    while !objects.is_empty() {
        let is_free = |object: &&Object| {
            named(&object.sql).into_iter().all(|(kind, name)| {
                name == object.name || kinds.get(name) != Some(&kind) || !objects.contains_key(name)
            })
        };
        let free: Vec<String> = objects
            .values()
            .filter(is_free)
            .map(|object| object.name.clone())
            .collect();
        if free.is_empty() {
            let any = objects.into_keys().next().unwrap_or_default();
            return Err(SchemaError::Circle(any));
        }
        ordered.extend(free.iter().filter_map(|name| objects.remove(name)));
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn function(name: &str, body: &str) -> File {
        let text =
            format!("-- What it does.\nCREATE OR REPLACE FUNCTION lanekeeper.{name}() {body}");
        file(&format!("functions/topic/{name}.sql"), &text)
    }

    #[test]
    fn the_files_of_this_release_keep_the_rules() {
        let schema = Schema::new(&files()).unwrap();
        assert!(schema.version() > 0 && schema.objects().len() > 50);
    }

    #[test]
    fn an_object_comes_after_those_that_it_names() {
        let schema = Schema::new(&[
            function(
                "a",
                "\n-- lanekeeper.c()\n lanekeeper.b(1) lanekeeper.d(2) lanekeeper.a()",
            ),
            function("b", "lanekeeper.c ()"),
            function("c", "lanekeeper.b(1)"),
            file(
                "functions/topic/d.sql",
                "CREATE OR REPLACE VIEW lanekeeper.d AS lanekeeper.e",
            ),
            file(
                "functions/topic/e.sql",
                "CREATE OR REPLACE VIEW lanekeeper.e AS",
            ),
        ]);
        let schema = schema.unwrap();
        let names: Vec<&str> = schema.objects().iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["b", "e", "a", "c", "d"]);
    }

    #[test]
    fn files_that_break_a_rule_are_refused() {
        let first = file("0001_a.sql", "-- oldest-worker: 1\n");
        let refused = |files: &[File]| Schema::new(files).map(drop).unwrap_err();
        let path = |path: &str| path.to_owned();
        for (number, line) in [
            ("0002_b", "-- oldest-worker: 3"),
            ("0002_c", "-- oldest"),
            ("0002_d", "-- oldest-worker: 0"),
        ] {
            let second = file(&format!("{number}.sql"), line);
            let error = SchemaError::OldestWorker(second.path.clone());
            assert_eq!(refused(&[first.clone(), second]), error);
        }
        let third = file("0003_c.sql", "-- oldest-worker: 1");
        assert_eq!(
            refused(&[first, third]),
            SchemaError::Number(path("0003_c.sql"))
        );
        let elsewhere = file("views/a.sql", "");
        assert_eq!(
            refused(&[elsewhere]),
            SchemaError::Elsewhere(path("views/a.sql"))
        );
        for text in [
            "",
            "CREATE FUNCTION lanekeeper.f()",
            "CREATE OR REPLACE VIEW lanekeeper.g AS",
            "CREATE OR REPLACE FUNCTION lanekeeper.f()\nCREATE OR REPLACE FUNCTION lanekeeper.g()",
        ] {
            let other = file("functions/topic/f.sql", text);
            assert_eq!(
                refused(&[other]),
                SchemaError::NotItsObject(path("functions/topic/f.sql"))
            );
        }
        let twice = file("functions/other/f.sql", &function("f", "").text);
        assert_eq!(
            refused(&[function("f", ""), twice]),
            SchemaError::Twice(path("f"))
        );
        let circle = [
            function("f", "lanekeeper.g()"),
            function("g", "lanekeeper.f()"),
        ];
        assert_eq!(refused(&circle), SchemaError::Circle(path("f")));
    }

    #[test]
    fn the_digest_changes_with_a_file() {
        let digest = |files: &[File]| Schema::new(files).unwrap().digest();
        let all = files();
        let mut seen = BTreeSet::from([digest(&all)]);
        for changed in [0, 1, all.len() / 2, all.len() - 1] {
            let mut files = all.clone();
            files[changed].text.push('\n');
            assert!(seen.insert(digest(&files)), "{}", files[changed].path);
        }
    }
}
