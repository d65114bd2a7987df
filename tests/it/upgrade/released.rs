//! A release that changes `migrations/` has a numbered migration of its own: two releases of one version could not be told
//! apart by workers. `migrations/released.txt` has the schema of each release; its rule is checked with every build.

use lanekeeper_postgres::migrate::schema::{Release, Schema};

use crate::document::repository;

const PATH: &str = "migrations/released.txt";

/// Why the schema must not be released as it is: `released` has lines of release, version and digest.
fn refusal(released: &str, version: i32, digest: &str) -> Option<String> {
    let lines = released.lines().filter(|line| !line.starts_with('#'));
    let mut newest = 0;
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [release, number, recorded] = fields[..] else {
            return Some(format!("{line:?} is not: release, version, digest"));
        };
        let Ok(number) = number.parse::<i32>() else {
            return Some(format!("{line:?} has no version"));
        };
        if number < newest {
            return Some(format!(
                "release {release} has version {number}, after {newest}"
            ));
        }
        newest = number;
        if number == version && recorded != digest {
            return Some(format!(
                "migrations/ differs from release {release}, which has version {number} too: add {:04}_name.sql, if \
                 only a comment with its `-- oldest-worker:` line",
                number + 1
            ));
        }
    }
    (version < newest)
        .then(|| format!("version {version} is older than the last release's, {newest}"))
}

#[test]
fn a_change_of_migrations_since_the_last_release_has_a_numbered_file() {
    let path = repository(PATH);
    let mut released = std::fs::read_to_string(&path).unwrap();
    let schema = Schema::of_this_release();
    let (version, digest) = (schema.version(), schema.digest());
    assert_eq!(refusal(&released, version, &digest), None);
    // Done once for a release, with its number in Cargo.toml.
    if std::env::var_os("RECORD_RELEASE").is_some() {
        released.push_str(&format!("{} {version} {digest}\n", Release::own()));
        std::fs::write(&path, released).unwrap();
    }
}

#[test]
fn a_released_version_with_other_files_is_refused_and_a_new_number_is_not() {
    let released = "# comment\n0.1.0 1 aaaa\n0.2.0 2 bbbb\n0.2.1 2 bbbb\n";
    assert_eq!(refusal(released, 2, "bbbb"), None);
    assert_eq!(refusal(released, 3, "cccc"), None);
    assert_eq!(refusal("# none yet\n", 1, "dddd"), None);
    let changed = refusal(released, 2, "cccc").unwrap();
    assert!(
        changed.contains("release 0.2.0") && changed.contains("add 0003_name.sql"),
        "{changed}"
    );
    let older = refusal(released, 1, "aaaa").unwrap();
    assert!(older.contains("older than the last release's"), "{older}");
    for broken in [
        "0.1.0 1\n",
        "0.1.0 one aaaa\n",
        "0.2.0 2 bbbb\n0.3.0 1 aaaa\n",
    ] {
        assert!(refusal(broken, 3, "cccc").is_some(), "{broken}");
    }
}
