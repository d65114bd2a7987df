//! Every statement of the store: the server accepts it, its header states its purpose, and (I9) the cost of the hot
//! ones does not depend on what has piled up.

mod charges;
pub mod connection;
mod entries;
mod finish;
mod hosts;
mod housekeeping;
mod loaded;
mod places;
mod plans;
mod preview;
mod producers;
mod recent;
pub mod role;
mod search_path;
mod settings;
pub mod snapshot;
mod status;
mod steps;

use std::path::{Path, PathBuf};

use crate::support::TestDb;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres/sql");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_statement_is_taken_by_the_server() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for file in files() {
        let statement = std::fs::read_to_string(&file).unwrap();
        if let Err(error) = client.prepare(&statement).await {
            panic!("{}: {error:?}", file.display());
        }
    }
}

#[test]
fn every_statement_says_what_it_is_for_and_bounds_its_rows() {
    assert!(files().len() > 20);
    for file in files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let header: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .collect();
        for told in ["Purpose: ", "Rows: "] {
            assert!(
                header.iter().any(|line| line.contains(told)),
                "{} does not say its {told}",
                file.display()
            );
        }
    }
}
