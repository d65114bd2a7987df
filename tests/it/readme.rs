//! The examples of the README and of docs/ as they stand: what they show runs, and what they list is complete.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use lanekeeper_core::subscription::duration;
use lanekeeper_postgres::subscription::apply;
use lanekeeper_streams::hooks::sent::SENT;
use lanekeeper_streams::hooks::shape::AgentCli;
use lanekeeper_subscription::SubscriptionFile;
use tokio_postgres::error::SqlState;

use crate::command::run;
use crate::document::{blocks, repository, rows, section};
use crate::support::TestDb;

const README: &str = include_str!("../../README.md");
const HOOKS: &str = include_str!("../../docs/hooks.md");
const PRODUCERS: &str = include_str!("../../docs/producers.md");
const SUBSCRIPTIONS: &str = include_str!("../../docs/subscriptions.md");

/// The role that the documents grant to.
const ROLE: &str = "app";

/// The documents of a folder of the repository, by their paths.
fn documents(folder: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(repository(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            documents(&path, found);
        } else if path.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
}

/// The README and the pages of docs/.
fn pages() -> Vec<String> {
    let mut paths = vec!["README.md".to_owned()];
    documents("docs", &mut paths);
    paths
        .iter()
        .map(|path| std::fs::read_to_string(repository(path)).unwrap())
        .collect()
}

fn subscription_files(pages: &[String]) -> Vec<&str> {
    let files: Vec<_> = pages
        .iter()
        .flat_map(|page| blocks(page, "toml"))
        .filter(|block| block.contains("[subscription."))
        .collect();
    assert!(files.len() > 10, "only {} are shown", files.len());
    files
}

#[tokio::test]
async fn every_statement_runs_and_the_producer_leaves_state_and_events_together() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let producer = blocks(section(README, "A producer and a subscription"), "sql");
    assert_eq!(producer.len(), 1);
    client.batch_execute(producer[0]).await.unwrap();
    let row = client
        .query_one(
            "SELECT string_agg(m.event_type, ',' ORDER BY m.seq), max(t.state)
             FROM lanekeeper.message AS m JOIN task AS t ON t.id = m.payload ->> 'task'
             WHERE m.stream = 'runs' AND m.session = 'run-42'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "task_started,task_done");
    assert_eq!(row.get::<_, &str>(1), "done");

    // The other statements may name a subscription of the files.
    let pages = pages();
    for text in subscription_files(&pages) {
        let file = SubscriptionFile::parse(text, "a document").unwrap();
        apply(&mut client, false, |current| file.plan(current, false))
            .await
            .unwrap();
    }
    for statement in pages.iter().flat_map(|page| blocks(page, "sql")) {
        if statement != producer[0] && !statement.contains("GRANT") {
            client.batch_execute(statement).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_documented_grants_let_a_producer_enqueue_and_nothing_more() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    // Roles belong to the whole server, which other tests use too.
    let role = format!("lanekeeper_test_app_{}", std::process::id());
    let create = format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role}");
    client.batch_execute(&create).await.unwrap();
    let grants = blocks(section(PRODUCERS, "Roles"), "sql")
        .into_iter()
        .find(|block| block.contains("GRANT"))
        .unwrap();
    assert!(grants.contains(&format!("TO {ROLE};")));
    let grants = grants.replace(&format!("TO {ROLE};"), &format!("TO {role};"));
    client.batch_execute(&grants).await.unwrap();

    client
        .batch_execute(&format!(
            "SET ROLE {role};
             SELECT lanekeeper.enqueue('runs', 'r', 'step', '{{}}', priority => 3::smallint);
             SELECT lanekeeper.enqueue_many('runs', '[{{\"session\": \"r\", \"event_type\": \"step\", \"payload\": 1}}]');
             SELECT lanekeeper.seen('me', 'r', gen_random_uuid())"
        ))
        .await
        .unwrap();
    for more in [
        "SELECT count(*) FROM lanekeeper.event",
        "DELETE FROM lanekeeper.subscription",
        "SELECT lanekeeper.change_lane(1, 'skip')",
        "SELECT lanekeeper.pause_subscription('audit', 'no')",
        "SELECT lanekeeper.maintain_log(1, 1)",
    ] {
        let error = client.batch_execute(more).await.unwrap_err();
        assert_eq!(
            error.code(),
            Some(&SqlState::INSUFFICIENT_PRIVILEGE),
            "{more}"
        );
    }
    client
        .batch_execute(&format!(
            "RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"
        ))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_message_is_seen_from_the_second_time_on_and_forgotten_after_seven_days() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let seen = async |consumer: &str| -> bool {
        let statement =
            "SELECT lanekeeper.seen($1, 'run-42', '019a5f0e-7c1b-7d3a-9d55-0d1c2b3a4f5e')";
        client
            .query_one(statement, &[&consumer])
            .await
            .unwrap()
            .get(0)
    };
    assert!(!seen("audit").await);
    assert!(seen("audit").await);
    assert!(!seen("another consumer").await);
    for (age, kept) in [("6 days 23 hours", true), ("7 days 1 minute", false)] {
        client
            .batch_execute(&format!(
                "UPDATE lanekeeper.seen_message SET seen_at = clock_timestamp() - interval '{age}';
                 SELECT lanekeeper.maintain_log(7, 30)"
            ))
            .await
            .unwrap();
        assert_eq!(seen("audit").await, kept, "after {age}");
    }
}

#[tokio::test]
async fn the_streams_that_exist_from_the_start_are_as_documented() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let streams = client
        .query(
            "SELECT format('`%s`', s.name), s.retry_schedule_ms, s.max_attempts, s.max_payload_bytes >> 20,
                    s.timeout_ms, s.batch, s.poll_floor_ms
             FROM lanekeeper.stream AS s",
            &[],
        )
        .await
        .unwrap();
    let found: BTreeSet<Vec<String>> = streams
        .iter()
        .map(|row| {
            let waits: Vec<i32> = row.get(1);
            let waits: Vec<String> = waits
                .iter()
                .chain(waits.last())
                .map(|wait| (wait / 1000).to_string())
                .collect();
            let attempts = match row.get(2) {
                0 => "for ever".to_owned(),
                bounded => i32::to_string(&bounded),
            };
            let size = format!("{} MiB", row.get::<_, i32>(3));
            let millis = |at: usize| {
                let millis: Option<i32> = row.get(at);
                millis.map(|millis| {
                    duration::written(Duration::from_millis(u64::try_from(millis).unwrap()))
                })
            };
            let batch: Option<i32> = row.get(5);
            let or_none = |value: Option<String>| value.unwrap_or_default();
            vec![
                row.get(0),
                format!("{} … s", waits.join(" ")),
                attempts,
                size,
                or_none(millis(4)),
                or_none(batch.map(|batch| batch.to_string())),
                or_none(millis(6)),
            ]
        })
        .collect();
    let documented: BTreeSet<Vec<String>> = rows(section(SUBSCRIPTIONS, "Streams"))
        .into_iter()
        .map(|row| row.into_iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(documented, found);
}

#[test]
fn every_subscription_file_is_accepted() {
    for text in subscription_files(&pages()) {
        if let Err(error) = SubscriptionFile::parse(text, "a document") {
            panic!("{error}\n{text}");
        }
    }
}

#[test]
fn the_table_of_a_subscriptions_keys_is_complete() {
    let table: BTreeSet<&str> = rows(section(SUBSCRIPTIONS, "Keys"))
        .iter()
        .flat_map(|row| row[0].split(", "))
        .map(|key| key.trim_matches('`'))
        .collect();
    let mut known = BTreeSet::new();
    // Agents have other keys over another protocol.
    let protocols = [("agent", "protocol = \"a2a\"")];
    let adapters = lanekeeper_adapters::NAMES.iter().map(|name| (*name, ""));
    for (adapter, more) in adapters.chain(protocols) {
        // Like no other key, so that it is told which there are.
        let text = format!(
            "[subscription.x]\nstream = \"runs\"\nadapter = \"{adapter}\"\n{more}\nq_9_q = 1"
        );
        let refusal = SubscriptionFile::parse(&text, "x.toml").unwrap_err();
        let refusal = refusal.to_string();
        let (_, keys) = refusal.split_once("known are ").expect(&refusal);
        let keys = keys.lines().next().unwrap_or_default();
        known.extend(keys.split(", ").map(str::to_owned));
    }
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    assert_eq!(table, known);
}

#[tokio::test]
async fn every_command_line_is_one_that_the_program_takes() {
    let pages = pages();
    let lines: Vec<&str> = pages
        .iter()
        .flat_map(|page| blocks(page, "sh"))
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("lanekeeper "))
        .collect();
    assert!(lines.len() > 5, "{lines:?}");
    for line in lines {
        // Without comment, pipe and what `dev` is to run.
        let line = line.split(['#', '|', '<']).next().unwrap_or_default();
        let line = line.split(" -- ").next().unwrap_or_default();
        // What is between quotes is one word, whatever it says.
        let line: String = line.split('\'').step_by(2).collect::<Vec<_>>().join("text");
        // Asked for help, the parser still refuses what it does not know on the way there.
        let words: Vec<&str> = line.split_whitespace().chain(["--help"]).collect();
        let ran = run(&words, &[], "").await;
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn every_agent_cli_is_wired_with_a_snippet_that_is_what_its_file_must_be() {
    let hooks = section(HOOKS, "Wiring");
    for json in blocks(hooks, "json") {
        serde_json::from_str::<serde_json::Value>(json).unwrap();
    }
    for toml in blocks(hooks, "toml") {
        toml::from_str::<toml::Table>(toml).unwrap();
    }
    let wiring: String = ["json", "toml", "js"]
        .iter()
        .flat_map(|language| blocks(hooks, language))
        .collect();
    for cli in AgentCli::ALL {
        let shell = format!("hook --cli {cli}\"");
        let list = format!("\"hook\", \"--cli\", \"{cli}\"");
        assert!(wiring.contains(&shell) || wiring.contains(&list), "{cli}");
    }
}

#[test]
fn the_plugin_that_hook_install_writes_is_the_documented_one() {
    let shim = blocks(section(HOOKS, "Wiring"), "js").concat();
    let file = include_str!("../../src/cli/hook/wiring/opencode.js");
    assert_eq!(shim, file.trim_end());
}

#[test]
fn each_snippet_registers_every_event_that_the_mapping_uses_and_no_other() {
    let hooks = section(HOOKS, "Wiring");
    for sent in SENT {
        let wired: BTreeSet<&str> = sent.wired().collect();
        let shell = format!("lanekeeper hook --cli {}\"", sent.cli);
        let registered: BTreeSet<String> = match sent.cli {
            // It has one event, and no list.
            AgentCli::CodexNotify => continue,
            AgentCli::OpenCode => {
                let shim = blocks(hooks, "js").concat();
                let quoted = shim.split('"').skip(1).step_by(2).map(str::to_owned);
                quoted
                    .filter(|text| sent.events.contains(&&**text))
                    .collect()
            }
            _ => blocks(hooks, "json")
                .into_iter()
                .filter(|block| block.contains(&shell))
                .flat_map(|block| {
                    let file: serde_json::Value = serde_json::from_str(block).unwrap();
                    let events = file["hooks"].as_object().unwrap();
                    events.keys().cloned().collect::<Vec<_>>()
                })
                .collect(),
        };
        let registered: BTreeSet<&str> = registered.iter().map(String::as_str).collect();
        assert_eq!(registered, wired, "{}", sent.cli);
    }
}

#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    let mut paths: Vec<String> = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "deploy/README.md",
        "helm/lanekeeper/README.md",
        "migrations/README.md",
    ]
    .map(str::to_owned)
    .into();
    documents("docs", &mut paths);
    for document in paths {
        let path = repository(&document);
        let text = std::fs::read_to_string(&path).unwrap();
        let folder = path.parent().unwrap_or(Path::new("."));
        for link in text.split("](").skip(1) {
            let (target, _) = link.split_once(')').unwrap();
            let file = target.split('#').next().unwrap_or_default();
            if !target.contains("://") && !file.is_empty() {
                assert!(folder.join(file).exists(), "{document}: {target}");
            }
        }
    }
}
