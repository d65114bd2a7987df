//! H4, H5: the program reads every variable in the files for operators, images are pinned, and whatever waits for a
//! worker to stop waits long enough.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use lanekeeper_config::Config;

use crate::document::repository;

const COMPOSE: &str = "docker-compose.yml";

fn read(path: &str) -> String {
    read_to_string(repository(path)).unwrap()
}

/// Files below a folder, links left out.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
}

#[test]
fn every_variable_for_operators_is_one_that_the_program_reads() {
    let mut known: BTreeSet<String> = ["URL", "TOKEN", "TOKEN_FILE", "CONFIG"]
        .iter()
        .map(|name| format!("LANEKEEPER_{name}"))
        .collect();
    for setting in Config::default().effective() {
        let name = setting.key.to_uppercase().replace('.', "__");
        known.insert(format!("LANEKEEPER_{name}_FILE"));
        known.insert(format!("LANEKEEPER_{name}"));
    }
    let mut paths: Vec<PathBuf> = [COMPOSE, "docs/deploy.md", "docs/runbooks.md"]
        .map(repository)
        .into();
    for folder in ["deploy", "helm"] {
        files(&repository(folder), &mut paths);
    }
    let observability = read("docs/observability.md");
    let (mut settings, mut unknown) = (0, Vec::new());
    for path in paths {
        let text = read_to_string(&path).unwrap();
        for word in words(&text) {
            // What ends so stands for several.
            if word.starts_with("LANEKEEPER_") && !word.ends_with('_') && !word.contains("__s__") {
                settings += 1;
                if !known.contains(word) {
                    unknown.push(format!("{}: {word}", path.display()));
                }
            }
            let exporter = word.strip_prefix("OTEL_").filter(|rest| !rest.is_empty());
            if exporter.is_some_and(|_| !documents(&observability, word)) {
                unknown.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(settings > 8, "only {settings} were found");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// docs/observability.md names some of them in groups.
fn documents(text: &str, variable: &str) -> bool {
    let grouped = ["TRACES", "METRICS", "LOGS"]
        .iter()
        .any(|signal| text.contains(&variable.replace(signal, "{TRACES,METRICS,LOGS}")));
    let shortened = variable
        .strip_prefix("OTEL_TRACES_SAMPLER_")
        .is_some_and(|rest| text.contains(&format!("…_{rest}")));
    text.contains(variable) || grouped || shortened
}

#[test]
fn every_image_of_others_is_pinned() {
    let compose = read(COMPOSE);
    let images: Vec<&str> = compose
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("image: "))
        .collect();
    assert!(images.len() > 5, "{images:?}");
    let dockerfile = read("deploy/Dockerfile");
    let bases: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| {
            line.strip_prefix("ARG ")?
                .split_once("_IMAGE=")
                .map(|(_, image)| image)
        })
        .collect();
    assert_eq!(bases.len(), 2, "{bases:?}");
    for image in images.into_iter().chain(bases) {
        let tag = image
            .rsplit_once(':')
            .unwrap_or_else(|| panic!("{image} has no tag"))
            .1;
        assert!(tag != "latest" && !tag.contains('/'), "{image}");
    }
}

#[test]
fn whoever_stops_a_worker_waits_longer_than_it_drains() {
    let grace = Config::default().worker.shutdown_grace_ms / 1_000;
    let seconds = |path: &str, before: &str| -> u64 {
        let text = read(path);
        let (_, rest) = text
            .split_once(before)
            .unwrap_or_else(|| panic!("{path} has no {before}"));
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    for (path, before) in [
        (COMPOSE, "stop_grace_period: "),
        (
            "deploy/systemd/lanekeeper-worker.service",
            "TimeoutStopSec=",
        ),
        (
            "deploy/kubernetes/lanekeeper.yaml",
            "terminationGracePeriodSeconds: ",
        ),
    ] {
        let waits = seconds(path, before);
        assert!(
            waits >= grace + 10,
            "{path}: {waits} s for a drain of {grace} s"
        );
    }
}

#[test]
fn what_the_compose_file_mounts_is_there() {
    let compose = read(COMPOSE);
    let mounted: Vec<&str> = compose
        .split(|c: char| c.is_whitespace() || c == '"' || c == '[')
        .filter(|word| word.starts_with("./"))
        .filter_map(|word| word.split(':').next())
        .collect();
    assert!(mounted.len() >= 6, "{mounted:?}");
    for path in mounted {
        assert!(repository(path).exists(), "{path}");
    }
    let subscriptions = read("deploy/compose/subscriptions.toml");
    lanekeeper_subscription::SubscriptionFile::parse(&subscriptions, "subscriptions.toml").unwrap();
}

#[test]
fn every_port_of_the_compose_file_is_on_loopback_and_can_be_another() {
    let compose = read(COMPOSE);
    let ports: Vec<&str> = compose
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("ports: "))
        .collect();
    assert_eq!(ports.len(), 5, "{ports:?}");
    let mut variables = BTreeSet::new();
    for port in ports {
        let (variable, rest) = port
            .strip_prefix("[\"127.0.0.1:${")
            .and_then(|rest| rest.split_once(":-"))
            .unwrap_or_else(|| panic!("{port}"));
        // One of ours that is no setting ends each program that is started in the same environment.
        assert!(!variable.starts_with("LANEKEEPER_"), "{port}");
        assert!(variables.insert(variable), "{port}");
        let (default, inside) = rest.split_once("}:").unwrap();
        assert_eq!(format!("{default}\"]"), inside, "{port}");
    }
    let head = compose.split_once("name: ").unwrap().0;
    for variable in variables {
        assert!(head.contains(variable), "{variable}");
    }
}

#[test]
fn what_is_deployed_has_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for (path, text) in [
        (
            "helm/lanekeeper/Chart.yaml",
            format!("appVersion: \"{version}\""),
        ),
        (COMPOSE, format!("image: lanekeeper:{version}\n")),
        (
            "deploy/kubernetes/lanekeeper.yaml",
            format!("image: lanekeeper:{version}\n"),
        ),
    ] {
        assert!(read(path).contains(&text), "{path} has no {text}");
    }
}

#[test]
fn the_images_dependency_layer_stands_in_for_every_target_of_cargo() {
    let dockerfile = read("deploy/Dockerfile");
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    for member in members.iter().map(|member| member.as_str().unwrap()) {
        // Those below src come with it, and keep their manifests there.
        if member == "src/*" {
            for needed in ["COPY src src", "! -name Cargo.toml -delete", "src/*/"] {
                assert!(dockerfile.contains(needed), "{needed}");
            }
            continue;
        }
        for needed in [
            format!("COPY {member}/Cargo.toml {member}/"),
            format!("{member}/src/lib.rs"),
        ] {
            assert!(dockerfile.contains(&needed), "{needed}");
        }
        let sent = format!("!{member}/Cargo.toml\n");
        assert!(read(".dockerignore").contains(&sent), "{sent}");
    }
    // Cargo refuses a manifest that names a target without a file.
    for kind in ["bin", "example", "test", "bench"] {
        let targets = manifest.get(kind).and_then(toml::Value::as_array);
        for target in targets.into_iter().flatten() {
            let name = target["name"].as_str().unwrap();
            let candidates = match target.get("path") {
                Some(path) => vec![path.as_str().unwrap().to_owned()],
                None => vec![
                    format!("{kind}s/{name}.rs"),
                    format!("{kind}s/{name}/main.rs"),
                ],
            };
            let named = candidates
                .iter()
                .any(|path| dockerfile.contains(path.as_str()));
            assert!(named, "{kind} {name}: none of {candidates:?}");
        }
    }
}
