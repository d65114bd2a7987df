//! H4: dashboards and alerts use metrics that exist, by their Prometheus names, and every alert has a runbook.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::time::Duration;

use lanekeeper_telemetry::names::{self, INSTRUMENTS, Name, key};
use serde_json::Value;

use crate::document::repository;
use crate::process::plant::{LIMIT, Plant};
use crate::support::wait_until;

const ALERTS: &str = "helm/lanekeeper/files/alerts.yaml";
const DASHBOARDS: &str = "helm/lanekeeper/files/dashboards";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

fn kind(name: Name) -> Kind {
    let counters = [
        names::SETTLED,
        names::CLAIMS_EMPTY,
        names::WAKE_UPS,
        names::TAKEN_OVER,
        names::CHARGED,
        names::LIMIT_POSTPONED,
        names::HTTP_EVENTS,
        names::HTTP_REFUSED,
        names::SOURCE_IGNORED,
        names::SOURCE_UPDATES,
        names::HTTP_CLOSED,
        names::LIVE_DISCONNECTS,
        names::ARCHIVED,
        names::ARCHIVED_SIZE,
        names::ARCHIVE_FAILURES,
    ];
    let histograms = [
        names::PROCESS_DURATION,
        names::DELIVERY_LATENCY,
        names::CLAIM_DURATION,
        names::CLAIM_LANES,
        names::FETCH_DURATION,
        names::SETTLE_DURATION,
        names::SETTLE_LANES,
        names::LIMIT_WAIT,
        names::HTTP_DURATION,
        names::LIVE_PUBLISH,
    ];
    if counters.contains(&name) {
        Kind::Counter
    } else if histograms.contains(&name) {
        Kind::Histogram
    } else {
        Kind::Gauge
    }
}

/// A metric's name in Prometheus, without what its series add.
fn spelt(name: Name) -> String {
    let base = name.name.replace('.', "_");
    let unit = match name.unit {
        "s" => "_seconds",
        "By" => "_bytes",
        "1" => panic!("{name:?}: what is 0 or 1 is no ratio"),
        _ => "",
    };
    let total = if kind(name) == Kind::Counter {
        "_total"
    } else {
        ""
    };
    format!("{base}{unit}{total}")
}

/// All series' names, each with the instrument that it belongs to.
fn series() -> BTreeMap<String, Name> {
    let of = |name: &Name| -> Vec<(String, Name)> {
        let parts: &[&str] = match kind(*name) {
            Kind::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        parts
            .iter()
            .map(|part| (spelt(*name) + part, *name))
            .collect()
    };
    INSTRUMENTS.iter().flat_map(of).collect()
}

fn labels() -> BTreeSet<String> {
    [
        key::DESTINATION,
        key::CONSUMER_GROUP,
        key::ERROR_TYPE,
        key::VERDICT,
        key::OUTCOME,
        key::STATE,
        key::CAUSE,
        key::REASON,
        key::DUPLICATE,
        key::CONNECTION_STATE,
        key::REPLAY,
        key::SOURCE,
    ]
    .map(|key| key.replace('.', "_"))
    .into()
}

/// What an expression names of ours, less the labels.
fn named(expression: &str) -> BTreeSet<&str> {
    let labels = labels();
    let ours = ["lanekeeper_", "messaging_", "http_server_"];
    expression
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| ours.iter().any(|prefix| word.starts_with(prefix)))
        .filter(|word| !labels.contains(*word))
        .collect()
}

/// Strings of these keys, wherever they are.
fn strings<'v>(value: &'v Value, keys: &[&str], found: &mut Vec<&'v str>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if keys.contains(&key.as_str()) => found.push(text),
                    other => strings(other, keys, found),
                }
            }
        }
        Value::Array(array) => array.iter().for_each(|value| strings(value, keys, found)),
        _ => {}
    }
}

fn dashboards() -> BTreeMap<String, Value> {
    std::fs::read_dir(repository(DASHBOARDS))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, serde_json::from_str(&text).unwrap())
        })
        .collect()
}

#[test]
fn every_metric_that_dashboards_and_alerts_name_is_one_that_workers_have() {
    let series = series();
    let mut shown = BTreeSet::new();
    let alerts = read_to_string(repository(ALERTS)).unwrap();
    let mut asked = vec![(ALERTS.to_owned(), alerts.clone())];
    for (file, dashboard) in dashboards() {
        let mut expressions = Vec::new();
        strings(&dashboard, &["expr", "query"], &mut expressions);
        assert!(expressions.len() > 8, "{file}");
        asked.extend(
            expressions
                .into_iter()
                .map(|one| (file.clone(), one.to_owned())),
        );
    }
    for (file, expression) in &asked {
        for name in named(expression) {
            let Some(instrument) = series.get(name) else {
                panic!("{file}: {name} is none");
            };
            if file != ALERTS {
                shown.insert(instrument.name);
            }
        }
    }
    let unseen: Vec<_> = INSTRUMENTS
        .iter()
        .filter(|one| !shown.contains(one.name))
        .collect();
    assert!(unseen.is_empty(), "no dashboard shows {unseen:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_metrics_are_spelt_as_these_tests_spell_them() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    plant.enqueue("session-", 1, 1).await;
    plant.settled().await;
    let url = worker.http() + "/metrics";
    let scrape = async || reqwest::get(&url).await.unwrap().text().await.unwrap();
    wait_until(LIMIT, "the lag is looked at", async || {
        scrape().await.contains("\nlanekeeper_lag_events{")
    })
    .await;
    let text = scrape().await;
    let mut seen = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind_of) = line.split_once(' ').unwrap();
        if name == "target_info" {
            continue;
        }
        let instrument = INSTRUMENTS.iter().find(|one| spelt(**one) == name);
        let instrument = instrument.unwrap_or_else(|| panic!("{name} is none"));
        assert_eq!(
            format!("{:?}", kind(*instrument)).to_lowercase(),
            kind_of,
            "{name}"
        );
        seen += 1;
    }
    assert!(seen > 15, "{text}");
    assert!(worker.stop().await.success());
}

#[test]
fn dashboards_can_be_told_apart_and_so_can_their_panels() {
    let mut uids = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        let uid = dashboard["uid"].as_str().unwrap();
        assert!(uids.insert(uid.to_owned()), "{file}: {uid} is another's");
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<u64> = panels
            .iter()
            .map(|panel| panel["id"].as_u64().unwrap())
            .collect();
        assert_eq!(ids.len(), panels.len(), "{file}");
        for panel in panels {
            let place = &panel["gridPos"];
            let end = place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap();
            assert!(end <= 24, "{file}: {} leaves the grid", panel["title"]);
        }
    }
    assert_eq!(uids.len(), 3);
}

#[test]
fn every_alert_has_its_runbook_and_its_test() {
    let text = read_to_string(repository(ALERTS)).unwrap();
    let after = |prefix: &'static str| {
        let lines = text
            .lines()
            .map(|line| line.trim_start().trim_start_matches("- "));
        lines
            .filter_map(move |line| line.strip_prefix(prefix))
            .collect::<Vec<_>>()
    };
    let alerts = after("alert: ");
    assert!(alerts.len() > 8, "{alerts:?}");
    let links: Vec<String> = alerts
        .iter()
        .map(|alert| format!("docs/runbooks.md#{}", alert.to_lowercase()))
        .collect();
    assert_eq!(after("runbook_url: "), links);
    let runbooks = read_to_string(repository("docs/runbooks.md")).unwrap();
    let sections: BTreeSet<&str> = runbooks
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert_eq!(sections, alerts.iter().copied().collect());
    let tests = read_to_string(repository("deploy/prometheus/alerts_test.yaml")).unwrap();
    for alert in alerts {
        assert!(
            tests.contains(&format!("alertname: {alert}\n")),
            "{alert} has no test"
        );
    }
}
