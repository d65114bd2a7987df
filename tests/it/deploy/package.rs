//! The Debian package, where the machine can make one.

use std::fs;
use std::process::{Command, Output};

use crate::document::repository;

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_package_has_the_program_its_unit_its_pages_and_its_completions() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        eprintln!("dpkg-deb is not there: no package is made");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut make = Command::new(repository("scripts/package-deb.sh"));
    make.arg(env!("CARGO_BIN_EXE_lanekeeper"))
        .arg(folder.path())
        // Compressing a debug build takes longer than all else.
        .env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    let package = text(run(&mut make));
    let package = package.trim();

    let field = |name: &str| {
        let mut ask = Command::new("dpkg-deb");
        text(run(ask.args(["--field", package, name])))
    };
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    assert!(field("Depends").contains("libc6"));

    let root = folder.path().join("root");
    let mut unpack = Command::new("dpkg-deb");
    run(unpack.arg("--extract").arg(package).arg(&root));
    let unit = root.join("usr/lib/systemd/system/lanekeeper-worker.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(
        unit.contains("\nExecStart=/usr/bin/lanekeeper worker\n"),
        "{unit}"
    );
    assert!(
        !unit.contains("/usr/local") && !unit.contains("install -m"),
        "{unit}"
    );
    for file in [
        "etc/lanekeeper/worker.env",
        "usr/share/bash-completion/completions/lanekeeper",
        "usr/share/doc/lanekeeper/LICENSE-MIT",
        "usr/share/fish/vendor_completions.d/lanekeeper.fish",
        "usr/share/man/man1/lanekeeper-worker.1.gz",
        "usr/share/zsh/vendor-completions/_lanekeeper",
    ] {
        let path = root.join(file);
        assert!(fs::metadata(&path).unwrap().len() > 100, "{file}");
    }
    let mut program = Command::new(root.join("usr/bin/lanekeeper"));
    let version = text(run(program.arg("--version")));
    assert_eq!(
        version.trim(),
        concat!("lanekeeper ", env!("CARGO_PKG_VERSION"))
    );
}
