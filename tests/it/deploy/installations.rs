//! Several installations under one Prometheus: alerts and dashboards distinguish them by `namespace` and `job`.

use std::fs::read_to_string;

use serde_json::Value;

use crate::document::repository;

const FILTER: &str = r#"namespace=~"$namespace",job=~"$job""#;
const DASHBOARDS: [&str; 3] = ["overview", "streams", "limits"];

fn chart_file(file: &str) -> String {
    read_to_string(repository("helm/lanekeeper/files").join(file)).unwrap()
}

/// What follows each aggregation operator of an expression: its grouping, or its argument where it has none.
fn aggregations(expression: &str) -> Vec<&str> {
    let operators = ["sum", "max", "min", "avg", "count", "group"];
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices(['(', ' ']) {
        let (before, after) = expression.split_at(at);
        let word = before.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let after = after.trim_start();
        if operators.contains(&word) && (after.starts_with('(') || after.starts_with("by (")) {
            found.push(after);
        }
    }
    found
}

/// The series that an expression selects, with their matchers.
fn selectors(expression: &str) -> Vec<&str> {
    let ours = ["lanekeeper_", "messaging_", "http_server_"];
    let end = |text: &str| {
        text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(text.len())
    };
    let (mut found, mut rest, mut grouping) = (Vec::new(), expression, false);
    while !rest.is_empty() {
        let name = end(rest);
        if name == 0 {
            grouping &= !rest.starts_with(')');
            rest = &rest[rest.chars().next().unwrap().len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(name);
        grouping |= ["by", "on"].contains(&word);
        let matchers = match after.strip_prefix('{') {
            Some(inside) => 2 + inside.find('}').unwrap(),
            None => 0,
        };
        if !grouping && ours.iter().any(|prefix| word.starts_with(prefix)) {
            found.push(&rest[..name + matchers]);
        }
        rest = &rest[name + matchers..];
    }
    found
}

fn strings<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(object) => {
            for (name, below) in object {
                match below {
                    Value::String(text) if name == key => found.push(text),
                    below => strings(below, key, found),
                }
            }
        }
        Value::Array(array) => array.iter().for_each(|below| strings(below, key, found)),
        _ => {}
    }
}

#[test]
fn every_aggregation_of_an_alert_keeps_installations_apart() {
    let alerts = chart_file("alerts.yaml");
    let expressions: Vec<&str> = alerts
        .lines()
        .map(str::trim_start)
        .filter(|line| line.contains("lanekeeper_") || line.contains("messaging_process"))
        .filter(|line| !line.starts_with('#'))
        .collect();
    let found: Vec<&str> = expressions
        .iter()
        .flat_map(|expression| aggregations(expression))
        .collect();
    assert!(found.len() > 15, "{found:#?}");
    for grouping in found {
        assert!(grouping.starts_with("by (namespace, job"), "{grouping}");
    }
}

#[test]
fn every_query_of_a_dashboard_is_filtered_by_installation() {
    for name in DASHBOARDS {
        let dashboard: Value =
            serde_json::from_str(&chart_file(&format!("dashboards/{name}.json"))).unwrap();
        let mut expressions = Vec::new();
        strings(&dashboard["panels"], "expr", &mut expressions);
        let mut seen = 0;
        for expression in expressions {
            for selector in selectors(expression) {
                assert!(selector.contains(FILTER), "{name}: {expression}");
                seen += 1;
            }
            for grouping in aggregations(expression) {
                // Two installations may have subscriptions and instances of one name.
                let labels = grouping.split(')').next().unwrap();
                let names_one = ["messaging_consumer_group_name", "instance"]
                    .iter()
                    .any(|label| labels.starts_with("by (") && labels.contains(label));
                assert!(
                    !names_one || labels.starts_with("by (namespace, job, "),
                    "{name}: {expression}"
                );
            }
        }
        assert!(seen > 8, "{name}");
    }
}

#[test]
fn a_dashboard_asks_for_the_installation_before_the_stream_and_the_subscription() {
    for name in DASHBOARDS {
        let dashboard: Value =
            serde_json::from_str(&chart_file(&format!("dashboards/{name}.json"))).unwrap();
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let names: Vec<&str> = variables
            .iter()
            .map(|variable| variable["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["datasource", "namespace", "job", "stream", "subscription"],
            "{name}"
        );
        for variable in &variables[1..] {
            // Where no series has the label, as without Kubernetes, this matches all of them.
            assert_eq!(variable["allValue"], ".*", "{name}");
            assert_eq!(variable["includeAll"], true, "{name}");
        }
        for variable in &variables[3..] {
            let query = variable["query"]["query"].as_str().unwrap();
            assert!(query.contains(FILTER), "{name}: {query}");
        }
    }
}
