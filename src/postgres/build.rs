//! Embeds `migrations/`: writes an array of the path and the text of each of its SQL files, so that a new file needs no
//! entry anywhere.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    // At the top of the repository, wherever this package is in it.
    let folder = manifest
        .ancestors()
        .map(|folder| folder.join("migrations"))
        .find(|folder| folder.join("0001_tables.sql").is_file())
        .ok_or("no folder above this package has migrations/0001_tables.sql")?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let mut array = String::from("&[\n");
    for file in &files {
        let name = file
            .strip_prefix(&folder)?
            .to_str()
            .ok_or("a path that is no UTF-8")?;
        writeln!(array, "    ({name:?}, include_str!({file:?})),")?;
    }
    array.push_str("]\n");
    fs::write(
        PathBuf::from(env::var("OUT_DIR")?).join("migrations.rs"),
        array,
    )?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    Ok(())
}
