//! Mutation tests: each invariant is broken in the code, and a test must fail.
//!
//! `make test` checks the table: it covers I1 to I13, its tests exist, each text that it replaces occurs once, and
//! docs/testing.md has the same list. `make mutations` runs it.

mod run;

use std::collections::BTreeSet;
use std::process::Command;

use lanekeeper_fault::Mutation;

use crate::document::{repository, rows, section};
use crate::support::TestDb;
use crate::support::mutation::{Change, ROWS, apply};

/// What this binary has, as its runner lists it.
fn tests() -> BTreeSet<String> {
    let listed = Command::new(std::env::current_exe().unwrap())
        .args(["--list", "--format", "terse"])
        .output()
        .unwrap();
    assert!(listed.status.success());
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

#[test]
fn every_invariant_is_broken_by_a_mutation_and_each_names_a_test() {
    let tests = tests();
    let mut names = BTreeSet::new();
    for row in ROWS {
        assert!(names.insert(row.name), "{} twice", row.name);
        assert!(
            tests.contains(row.test),
            "{}: no test {}",
            row.name,
            row.test
        );
    }
    let invariants: BTreeSet<u32> = ROWS.iter().map(|row| row.invariant).collect();
    assert_eq!(invariants, (1..=13).collect());
    let switches = ROWS.iter().filter_map(|row| match row.change {
        Change::Rust(mutation) => Some((mutation.name(), row.name.to_owned())),
        Change::Sql(..) => None,
    });
    let all = Mutation::ALL.map(|mutation| (mutation.name(), mutation.name()));
    assert_eq!(
        switches.collect::<BTreeSet<_>>(),
        all.into_iter().collect::<BTreeSet<_>>()
    );
}

#[tokio::test]
async fn each_text_that_a_mutation_replaces_occurs_once() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for row in ROWS {
        client.batch_execute("BEGIN").await.unwrap();
        let applied = apply(&client, row).await;
        applied.unwrap_or_else(|error| panic!("{}: {error}", row.name));
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[test]
fn the_documents_list_the_mutations() {
    let text = std::fs::read_to_string(repository("docs/testing.md")).unwrap();
    let listed = rows(section(&text, "Mutations of the code"));
    let cell = |text: &str| text.trim_matches('`').to_owned();
    let listed: Vec<Vec<String>> = listed
        .into_iter()
        .map(|row| row.into_iter().map(cell).collect())
        .collect();
    let expected: Vec<Vec<String>> = ROWS
        .iter()
        .map(|row| {
            let kept = match row.change {
                Change::Sql(function, _) => function.to_owned(),
                Change::Rust(_) => "src/fault/mutation.rs".to_owned(),
            };
            let invariant = format!("I{}", row.invariant);
            vec![
                invariant,
                row.without.to_owned(),
                row.name.to_owned(),
                kept,
                row.test.to_owned(),
            ]
        })
        .collect();
    if listed != expected {
        let lines = expected.iter().map(|row| {
            let [invariant, without, name, kept, test] = &row[..] else {
                unreachable!("five cells")
            };
            format!("| {invariant} | {without} | `{name}` | `{kept}` | `{test}` |\n")
        });
        panic!("docs/testing.md should say\n{}", lines.collect::<String>());
    }
}
