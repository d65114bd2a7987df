//! A2A 1.0: a worker and an agent made with the unmodified a2a-sdk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::sleep;
use tokio_postgres::Client;
use uuid::Uuid;

use super::sdk;
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::support::{Dice, Receiver, TestDb, WorkerProcess, connect, wait_until};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The agent's process. It can be killed and started again.
struct Agent {
    port: u16,
    folder: TempDir,
    pause: &'static str,
    child: Option<Child>,
}

impl Agent {
    /// `None` where the SDK is not installed.
    async fn start(pause: &'static str) -> Option<Self> {
        sdk::script("a2a_agent.py")?;
        // The port is free again when this returns.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut agent = Self {
            port: listener.local_addr().unwrap().port(),
            folder: tempfile::tempdir().unwrap(),
            pause,
            child: None,
        };
        drop(listener);
        agent.restart().await;
        Some(agent)
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    async fn restart(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap();
        }
        let mut command = sdk::script("a2a_agent.py").unwrap();
        command
            .arg(self.port.to_string())
            .arg(self.journal())
            .arg(self.pause);
        self.child = Some(Command::from(command).kill_on_drop(true).spawn().unwrap());
        let port = self.port;
        wait_until(LIMIT, "the agent listens", async || {
            TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
    }

    /// What it did, of one kind, in the order in which it did.
    fn did(&self, what: &str) -> Vec<Value> {
        let journal = std::fs::read_to_string(self.journal()).unwrap_or_default();
        let lines = journal
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.filter(|line: &Value| line["did"] == what).collect()
    }

    /// What it answered in each context.
    fn answered(&self) -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in self.did("answered") {
            let context = line["context"].as_str().unwrap().to_owned();
            all.entry(context)
                .or_default()
                .push(line["said"].as_str().unwrap().to_owned());
        }
        all
    }
}

/// A worker that sends to it.
struct House {
    db: TestDb,
    client: Client,
    worker: WorkerProcess,
    _receiver: Receiver,
}

impl House {
    /// `more`: of the subscription. `PUSH` in it stands for where the worker is reached.
    async fn open(agent: &Agent, path: &str, more: &str) -> Self {
        let db = TestDb::new().await;
        let receiver = Receiver::start(Duration::ZERO).await;
        // One host: that it is killed is no reason to leave it alone.
        let variables = [
            ("PUSH_SECRET", SECRET),
            ("LANEKEEPER_WORKER__BREAKER_LANES", "1000"),
        ];
        let worker = WorkerProcess::start(db.url(), &receiver, &variables).await;
        let more = more.replace(
            "PUSH",
            &format!(
                "push_url = \"{}\"\npush_secret_env = \"PUSH_SECRET\"",
                worker.http()
            ),
        );
        let file = format!(
            "[stream.out]\nretry = {{ schedule = [\"100ms\"] }}\n\
             [subscription.agent]\nstream = \"out\"\nadapter = \"agent\"\nprotocol = \"a2a\"\n\
             url = \"http://127.0.0.1:{}{path}\"\n{more}\n",
            agent.port
        );
        let ran = run(&["apply", "-f", "-"], &[("DATABASE_URL", db.url())], &file).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        Self {
            client: connect(db.url()).await,
            db,
            worker,
            _receiver: receiver,
        }
    }

    async fn append(&self, session: &str, text: &str) -> Uuid {
        let append = "SELECT message_id FROM lanekeeper.enqueue('out', $1, 'ask', $2)";
        let payload = json!({"text": text});
        self.client
            .query_one(append, &[&session, &payload])
            .await
            .unwrap()
            .get(0)
    }

    async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    async fn settled(&self) {
        let behind = "SELECT coalesce(sum(behind), 0)::bigint FROM lanekeeper.lane_status";
        wait_until(LIMIT * 2, "everything is acknowledged", async || {
            self.count(behind).await == 0
        })
        .await;
    }

    async fn state(&self, message: Uuid) -> (String, Option<String>) {
        let state = "SELECT state, error FROM lanekeeper.message WHERE message_id = $1";
        let row = self.client.query_one(state, &[&message]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

const COMPLETED: &str = "acknowledge_on = \"completed\"\nack = \"required\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn every_message_is_answered_once_and_in_order_in_each_binding_whether_polled_or_told() {
    for (path, more) in [
        ("/rpc", String::new()),
        ("/rest", "binding = \"http+json\"".to_owned()),
        ("/rpc", format!("{COMPLETED}ack_timeout = \"20s\"")),
        (
            "/rest",
            format!("{COMPLETED}binding = \"http+json\"\nack_timeout = \"20s\""),
        ),
        // Were it not told, each message would take ten minutes.
        ("/rpc", format!("{COMPLETED}PUSH\nack_timeout = \"10m\"")),
        (
            "/rest",
            format!("{COMPLETED}PUSH\nbinding = \"http+json\"\nack_timeout = \"10m\""),
        ),
    ] {
        let Some(agent) = Agent::start("0.05").await else {
            return;
        };
        let house = House::open(&agent, path, &more).await;
        let expected: Vec<String> = (1..=5).map(|n| format!("note {n}")).collect();
        for text in &expected {
            for session in ["a", "b ü/\"1\""] {
                house.append(session, text).await;
            }
        }
        house.settled().await;
        wait_until(LIMIT, "all are answered", async || {
            agent.did("answered").len() == 10
        })
        .await;
        let answered = agent.answered();
        assert_eq!(answered.keys().collect::<Vec<_>>(), ["a", "b ü/\"1\""]);
        if more.contains("completed") {
            assert!(
                answered.values().all(|texts| *texts == expected),
                "{answered:?}"
            );
        }
        let received = agent.did("received");
        assert_eq!(received.len(), 10, "each was sent once");
        let in_a: Vec<&Value> = received
            .iter()
            .filter(|line| line["context"] == "a")
            .map(|line| &line["said"])
            .collect();
        assert_eq!(in_a, expected.iter().collect::<Vec<_>>());
        assert_eq!(house.count("SELECT count(*) FROM lanekeeper.dead").await, 0);
        house.worker.stop().await;
        drop(house.db);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_and_restarted_ten_times_answers_every_message_once_in_order() {
    let Some(mut agent) = Agent::start("0.02").await else {
        return;
    };
    let more = format!("{COMPLETED}ack_timeout = \"1s\"\ntimeout = \"2s\"\nconcurrency = 64");
    let house = House::open(&agent, "/rpc", &more).await;
    let (sessions, count) = (20, 12);
    for n in 1..=count {
        for session in 1..=sessions {
            house.append(&format!("s{session}"), &n.to_string()).await;
        }
    }
    let dice = Dice::new(21);
    let mut answered_at_kill = Vec::new();
    for _ in 0..10 {
        sleep(Duration::from_millis(50 + dice.roll(250))).await;
        answered_at_kill.push(agent.did("answered").len());
        agent.restart().await;
    }
    house.settled().await;
    let expected: Vec<String> = (1..=count).map(|n| n.to_string()).collect();
    let answered = agent.answered();
    assert_eq!(answered.len(), sessions, "killed at {answered_at_kill:?}");
    for (context, texts) in answered {
        assert_eq!(texts, expected, "{context}, killed at {answered_at_kill:?}");
    }
    assert!(
        answered_at_kill[4] < sessions * count,
        "it was killed when all was done: {answered_at_kill:?}"
    );
    assert_eq!(house.count("SELECT count(*) FROM lanekeeper.dead").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_cancels_the_task_that_is_under_way() {
    for more in [
        "ack_timeout = \"10m\"\nPUSH",
        "ack_timeout = \"10m\"\ntimeout = \"5m\"",
    ] {
        let Some(agent) = Agent::start("0").await else {
            return;
        };
        let house = House::open(&agent, "/rpc", &format!("{COMPLETED}{more}")).await;
        let hanging = house.append("s", "hang").await;
        let waiting = house.append("s", "later").await;
        wait_until(LIMIT, "the agent works", async || {
            agent.did("received").len() == 1
        })
        .await;
        let remembered = "SELECT count(*) FROM lanekeeper.sent_message WHERE chat = 'a2a'";
        wait_until(LIMIT, "the task is remembered", async || {
            house.count(remembered).await == 1
        })
        .await;
        let interrupt = "SELECT message_id FROM lanekeeper.interrupt('out', 's', 'stop', '{\"text\": \"stop\"}')";
        house.client.query_one(interrupt, &[]).await.unwrap();
        house.settled().await;
        let cancelled = agent.did("cancelled");
        assert_eq!(cancelled.len(), 1);
        assert_eq!(cancelled[0]["task"], agent.did("received")[0]["task"]);
        assert_eq!(agent.answered()["s"], ["stop"]);
        for message in [hanging, waiting] {
            assert_eq!(house.state(message).await.0, "superseded");
        }
        house.worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_refuses_or_asks_back_is_a_dead_letter_with_its_words_and_what_fails_is_tried_again()
 {
    let Some(agent) = Agent::start("0").await else {
        return;
    };
    let more = format!(
        "{COMPLETED}ack_timeout = \"20s\"\nretry = {{ schedule = [\"50ms\"], max_attempts = 3 }}"
    );
    let house = House::open(&agent, "/rpc", &more).await;
    for (text, words, sent) in [
        ("reject", "not my work", 1),
        ("ask", "which one?", 1),
        ("fail", "out of paper", 3),
    ] {
        let message = house.append(text, text).await;
        house.settled().await;
        let (state, error) = house.state(message).await;
        assert_eq!(state, "failed");
        assert!(error.unwrap().contains(words), "{text}");
        let received = agent
            .did("received")
            .into_iter()
            .filter(|line| line["said"] == text);
        assert_eq!(received.count(), sent, "{text}");
    }
    // A message that is answered directly needs no task.
    house.append("s", "message").await;
    house.settled().await;
    assert_eq!(agent.answered()["s"], ["message"]);
}
