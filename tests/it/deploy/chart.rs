//! H4: the variables and database settings of the chart, and that its schema, values and documentation agree.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::time::Duration;

use lanekeeper_config::Config;
use lanekeeper_postgres::connection::{ConnectionString, SslMode};
use serde_json::Value;

use crate::document::repository;
use crate::process::plant::Plant;

fn chart(file: &str) -> String {
    read_to_string(repository("helm/lanekeeper").join(file)).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&chart("values.schema.json")).unwrap()
}

/// A named template as the chart renders it, of those that include one other without values.
fn rendered(text: &str, name: &str) -> String {
    let mut rendered = template(text, name).to_owned();
    while let Some((before, rest)) = rendered.split_once("{{ include \"") {
        let (included, after) = rest.split_once("\" . }}").unwrap();
        rendered = format!("{before}{}{after}", template(text, included).trim());
    }
    rendered
}

/// The text of a named template.
fn template<'t>(text: &'t str, name: &str) -> &'t str {
    let (_, rest) = text
        .split_once(&format!("{{{{- define \"{name}\" -}}}}"))
        .unwrap_or_else(|| panic!("there is no template {name}"));
    rest.split_once("{{- end }}").unwrap().0
}

#[tokio::test]
async fn the_queries_that_scale_the_fleet_count_what_more_workers_would_deliver() {
    let plant = Plant::new(Duration::ZERO).await;
    let helpers = chart("templates/_helpers.tpl");
    let (due, oldest) = (
        &*rendered(&helpers, "lanekeeper.dueLanesQuery"),
        &*rendered(&helpers, "lanekeeper.oldestQuery"),
    );
    let age = async || -> f64 { plant.client.query_one(oldest, &[]).await.unwrap().get(0) };
    assert_eq!((plant.count(due).await, age().await), (0, 0.0));
    plant.enqueue("session-", 3, 2).await;
    assert_eq!(plant.count(due).await, 3);
    assert!(age().await > 0.0);
    // A worker that lives delivers it; one that died while it had its circuit open says nothing any more.
    plant
        .client
        .batch_execute(
            "INSERT INTO lanekeeper.worker (worker_id, version, started_at, host, pid, release, state, beat_at)
             VALUES (1, 1, now(), 'a', 1, '0', 'running', now()), (2, 1, now(), 'b', 1, '0', 'running', now() - interval '1 hour');
             INSERT INTO lanekeeper.subscription_report (worker_id, subscription_id, version, state, reason)
             SELECT w.worker_id, s.subscription_id, 1, CASE w.worker_id WHEN 1 THEN 'delivering' ELSE 'circuit_open' END,
                    CASE w.worker_id WHEN 2 THEN 'status 503' END
             FROM lanekeeper.worker AS w CROSS JOIN lanekeeper.subscription AS s",
        )
        .await
        .unwrap();
    assert_eq!(plant.count(due).await, 3);
    for state in ["circuit_open", "refused"] {
        let all = "UPDATE lanekeeper.subscription_report SET state = $1, reason = 'why' WHERE worker_id = 1";
        plant.client.execute(all, &[&state]).await.unwrap();
        assert_eq!((plant.count(due).await, age().await), (0, 0.0), "{state}");
    }
    let delivers = "UPDATE lanekeeper.subscription_report SET state = 'delivering', reason = NULL";
    plant.client.batch_execute(delivers).await.unwrap();
    assert_eq!(plant.count(due).await, 3);
    // A head that failed waits for its retry.
    let retry = "UPDATE lanekeeper.ready SET due_at = now() + interval '1 minute' WHERE id = (SELECT min(id) FROM lanekeeper.ready)";
    plant.client.batch_execute(retry).await.unwrap();
    assert_eq!(plant.count(due).await, 2);
    for held_back in [
        "UPDATE lanekeeper.subscription SET settings = settings || '{\"limit\": []}'",
        "UPDATE lanekeeper.subscription SET settings = settings - 'limit', paused_at = now(), pause_reason = 'a test'",
    ] {
        plant.client.batch_execute(held_back).await.unwrap();
        assert_eq!(
            (plant.count(due).await, age().await),
            (0, 0.0),
            "{held_back}"
        );
    }
}

#[test]
fn the_schema_has_every_setting_of_a_worker_and_no_other() {
    // Of producers' and developers' machines, of `dev`, or given by the chart in another way.
    let elsewhere = |key: &str| {
        ["hook.", "spool.", "dev."]
            .iter()
            .any(|section| key.starts_with(section))
            || [
                "database.url",
                "database.password",
                "redis.url",
                "http.listen",
                "http.allow_unauthenticated",
            ]
            .contains(&key)
    };
    let settings: BTreeSet<String> = Config::default()
        .effective()
        .into_iter()
        .map(|setting| setting.key)
        .filter(|key| !elsewhere(key))
        .collect();
    let schema = schema();
    let sections = schema["properties"]["config"]["properties"]
        .as_object()
        .unwrap();
    let known: BTreeSet<String> = sections
        .iter()
        .flat_map(|(section, of)| {
            let keys = of["properties"].as_object().unwrap().keys();
            keys.map(move |key| format!("{section}.{key}"))
        })
        .collect();
    assert_eq!(known, settings);
}

/// What the chart makes of a database by parts, as scripts/deploy/check.py finds it rendered.
fn connection_string_of_parts() -> String {
    let checks = read_to_string(repository("scripts/deploy/check.py")).unwrap();
    let (_, rest) = checks.split_once("    string = r\"").unwrap();
    rest.split_once("\"\n").unwrap().0.to_owned()
}

#[test]
fn a_database_by_parts_is_the_one_that_was_meant_and_leaves_the_password_to_its_file() {
    let read: ConnectionString = connection_string_of_parts().parse().unwrap();
    assert_eq!(read.driver.get_password(), None);
    assert_eq!(read.driver.get_hosts().len(), 2);
    assert_eq!(read.driver.get_ports(), [5432]);
    assert_eq!(read.driver.get_dbname(), Some("app's"));
    assert_eq!(read.driver.get_user(), Some(r"me\you"));
    assert_eq!(read.ssl.mode, Some(SslMode::VerifyFull));
}

/// Paths of keys in block style, as values.yaml is written: (depth of the line, key) for each.
fn keys_of(yaml: &str) -> BTreeSet<String> {
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut found = BTreeSet::new();
    for line in yaml.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        let Some((key, _)) = text.split_once(':') else {
            continue;
        };
        if text.starts_with(['#', '-'])
            || !key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            continue;
        }
        path.retain(|(above, _)| *above < depth);
        path.push((depth, key));
        let keys: Vec<&str> = path.iter().map(|(_, key)| *key).collect();
        found.insert(keys.join("."));
    }
    found
}

/// Paths of what a closed object of the schema has, down to what is free.
fn paths_of(schema: &Value, above: &str, found: &mut BTreeSet<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    if schema["additionalProperties"] != false {
        return;
    }
    for (key, below) in properties {
        let path = if above.is_empty() {
            key.clone()
        } else {
            format!("{above}.{key}")
        };
        // Settings have a test of their own; `global` is Helm's.
        if key != "global" {
            if path != "config" {
                paths_of(below, &path, found);
            }
            found.insert(path);
        }
    }
}

#[test]
fn every_value_is_in_the_schema_and_the_other_way_round() {
    let mut known = BTreeSet::new();
    paths_of(&schema(), "", &mut known);
    let mut given = keys_of(&chart("values.yaml"));
    // What stands below something that the schema leaves free.
    given.retain(|path| {
        let above = path.rsplit_once('.').map_or("", |(above, _)| above);
        let closed = known
            .iter()
            .any(|one| one.rsplit_once('.').map_or("", |(a, _)| a) == above);
        closed || above.is_empty()
    });
    assert!(given.len() > 80, "{given:?}");
    assert_eq!(given, known);
}

#[test]
fn the_charts_readme_names_every_value() {
    let readme = chart("README.md");
    let schema = schema();
    let missing: Vec<&String> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| *key != "global" && !readme.contains(&format!("`{key}")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
