//! E4: messages are typed into real panes of tmux, each once, and confirmed by the agent's next prompt.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_core::terminal::{Input, Known, Stage, Terminals, TerminalsError};
use serde_json::{Value, json};
use uuid::Uuid;

use super::terminal::{LIMIT, Terminal, pasted};
use super::text;
use crate::command::run;
use crate::process::plant::Plant;
use crate::support::{WorkerProcess, wait_until};

/// A record in memory, which goes through what it is told to.
#[derive(Default)]
struct Record {
    known: Mutex<Known>,
    marks: Mutex<Vec<Option<Stage>>>,
    /// The agent reports a prompt when Enter was sent.
    answers: bool,
}

#[async_trait]
impl Terminals for Record {
    async fn look(&self, _input: Input<'_>) -> Result<Known, TerminalsError> {
        Ok(self.known.lock().unwrap().clone())
    }

    async fn mark(&self, _input: Input<'_>, stage: Option<Stage>) -> Result<(), TerminalsError> {
        self.marks.lock().unwrap().push(stage);
        let mut known = self.known.lock().unwrap();
        known.stage = stage;
        known.is_prompted = self.answers && stage == Some(Stage::Entered);
        Ok(())
    }
}

fn record(known: Known) -> Arc<Record> {
    Arc::new(Record {
        known: Mutex::new(known),
        answers: true,
        ..Record::default()
    })
}

fn live() -> Known {
    Known {
        is_live: true,
        ..Known::default()
    }
}

/// Delivers one message of the session `s` by an adapter with these settings beside the usual ones.
async fn deliver(record: &Arc<Record>, more: Value, payload: Value) -> Verdict {
    let mut settings =
        json!({"enter_delay_ms": 20, "start_timeout_ms": 300, "confirm_timeout_ms": 300});
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    let environment = Environment::with_variables(false, [("A", "b")])
        .with_terminals(Arc::clone(record) as Arc<dyn Terminals>);
    let adapter = build("tmux", "type", &settings, &environment).unwrap();
    let event = Event {
        message_id: Uuid::now_v7(),
        stream: "inbound".into(),
        session: "s".into(),
        seq: 1,
        event_type: "text".into(),
        created_at: Timestamp::now(),
        payload: payload.to_string(),
        headers: None,
    };
    let delivery = Delivery {
        event: &event,
        subscription: "type",
        attempt: 1,
        requeued: false,
        replay_id: None,
        asks_ack: false,
        trace: None,
        observed: None,
    };
    adapter.deliver(&delivery).await
}

fn reason(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Retry { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_arrives_whole_in_one_paste_and_nothing_of_it_is_a_command() {
    let terminal = Terminal::new();
    terminal.name_pane(&terminal.start("a").await, "s");
    let at = json!({"socket": terminal.socket()});
    let line = "çok satır — 日本語 👩‍💻\n";
    let long = line.repeat((1 << 20) / line.len());
    let content =
        format!("!\u{3}{long}\u{1b}[201~\u{4}rm -rf /\u{9b}201~\u{1b}]52;c;aGk=\u{7}\tend");
    let record = record(live());
    let verdict = deliver(&record, at, json!({"content": content})).await;
    assert_eq!(verdict, Verdict::Accepted);
    terminal
        .comes("a", &pasted(&format!("!{long}rm -rf /    end")))
        .await;
    let stages = [Stage::Pasting, Stage::Entered, Stage::Confirmed].map(Some);
    assert_eq!(*record.marks.lock().unwrap(), stages);
    assert_eq!(terminal.tmux(&["list-buffers"]), "", "the buffer is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_typed_where_there_is_no_pane_to_type_into_and_the_reason_is_told() {
    let terminal = Terminal::new();
    let record = record(live());
    let hello = || json!({"content": "hello"});
    let socket = json!({"socket": terminal.socket()});
    let refused = async |settings: &Value, expected: &str| {
        let verdict = deliver(&record, settings.clone(), hello()).await;
        assert!(
            reason(&verdict).contains(expected),
            "{expected}: {verdict:?}"
        );
    };
    refused(&json!({"tmux": "/no/tmux"}), "install tmux").await;
    let old = terminal.path("old");
    std::fs::write(&old, "#!/bin/sh\necho tmux 2.9a\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&old, mode).unwrap();
    refused(&json!({"tmux": old.to_str().unwrap()}), "tmux 3.1 or later").await;
    refused(&socket, "no pane").await;
    let pane = terminal.start("a").await;
    refused(&socket, "no pane").await;
    terminal.name_pane(&pane, "s");
    refused(
        &json!({"socket": terminal.path("other").to_str().unwrap()}),
        "no pane",
    )
    .await;
    terminal.tmux(&["copy-mode", "-t", &pane]);
    refused(&socket, "copy mode").await;
    terminal.tmux(&["send-keys", "-t", &pane, "-X", "cancel"]);
    record.known.lock().unwrap().is_live = false;
    refused(&socket, "has not reported its start").await;
    record.known.lock().unwrap().is_live = true;
    terminal.tmux(&["set-option", "-p", "-t", &pane, "remain-on-exit", "on"]);
    let pid = terminal.tmux(&["display-message", "-p", "-t", &pane, "#{pane_pid}"]);
    assert!(
        std::process::Command::new("kill")
            .arg(&pid)
            .status()
            .unwrap()
            .success()
    );
    wait_until(LIMIT, "the agent has ended", async || {
        terminal.tmux(&["display-message", "-p", "-t", &pane, "#{pane_dead}"]) == "1"
    })
    .await;
    refused(&socket, "has ended").await;
    let shell = [
        "new-session",
        "-d",
        "-P",
        "-F",
        "#{pane_id}",
        "-s",
        "b",
        "--",
        "sh",
        "-i",
    ];
    let shell = terminal.tmux(&shell);
    terminal.tmux(&["kill-pane", "-t", &pane]);
    terminal.name_pane(&shell, "s");
    wait_until(LIMIT, "the shell runs", async || {
        terminal
            .tmux(&["capture-pane", "-p", "-t", &shell])
            .contains(['#', '$'])
    })
    .await;
    refused(&socket, "a shell (").await;
    assert_eq!(*record.marks.lock().unwrap(), []);
    assert_eq!(terminal.typed("a"), "");
    for (payload, expected) in [
        (json!({"content": "\u{1b}[2J"}), "nothing that can be typed"),
        (json!([]), "no inbound message"),
    ] {
        let verdict = deliver(&record, socket.clone(), payload).await;
        assert!(
            matches!(&verdict, Verdict::Rejected { error } if error.contains(expected)),
            "{verdict:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_pane_is_brought_into_one_and_typed_into_when_it_has_started() {
    let terminal = Terminal::new();
    // A server that reads no configuration of the machine's, and that the adapter starts.
    let tmux = terminal.path("tmux");
    std::fs::write(&tmux, "#!/bin/sh\nexec tmux -f /dev/null \"$@\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&tmux, mode).unwrap();
    let folder = terminal.path("with space");
    std::fs::create_dir(&folder).unwrap();
    let record = record(Known {
        cwd: Some(folder.to_str().unwrap().to_owned()),
        native_session_id: Some("7f3a".to_owned()),
        ..live()
    });
    let mut adopt = terminal.agent("a");
    adopt[2] = adopt[2].replace(
        "exec cat",
        "printf '%s %s\\n' \"$PWD\" \"$2\" > \"$1.said\"; env > \"$1.env\"; exec cat",
    );
    adopt.push("id;$(x)={native_session_id}".to_owned());
    // The agent may not read before it has set up its terminal.
    let settings = json!({"tmux": tmux.to_str().unwrap(), "socket": terminal.socket(), "adopt": adopt,
                          "enter_delay_ms": 500});
    let verdict = deliver(&record, settings.clone(), json!({"content": "hello"})).await;
    assert_eq!(verdict, Verdict::Accepted);
    wait_until(LIMIT, "it is typed", async || {
        terminal.typed("a").contains("hello")
    })
    .await;
    let said = format!("{} id;$(x)=7f3a\n", folder.display());
    assert_eq!(
        terminal.typed("a.said"),
        said,
        "its folder, and one argument that no shell read"
    );
    let variables = terminal.typed("a.env");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(
        variables.contains("PATH=") && !variables.contains("CARGO_MANIFEST_DIR="),
        "none of the worker's secrets: {variables}"
    );
    let option = ["show-options", "-pv", "-t", "=lk-s:", "@lanekeeper_session"];
    assert_eq!(terminal.tmux(&option), "s");

    record.known.lock().unwrap().stage = None;
    let verdict = deliver(&record, settings, json!({"content": "again"})).await;
    assert_eq!(verdict, Verdict::Accepted, "into the same pane");
    wait_until(LIMIT, "it is typed", async || {
        terminal.typed("a").contains("again")
    })
    .await;
    let hostile = json!({"tmux": tmux.to_str().unwrap(), "socket": terminal.socket(), "adopt": ["true", "{native_session_id}"]});
    terminal.tmux(&["kill-session", "-t", "=lk-s"]);
    *record.known.lock().unwrap() = Known {
        native_session_id: Some("--dangerously".to_owned()),
        ..live()
    };
    let verdict = deliver(&record, hostile, json!({"content": "x"})).await;
    assert!(
        reason(&verdict).contains("cannot stand in a command"),
        "{verdict:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_been_typed_is_not_typed_again() {
    let terminal = Terminal::new();
    terminal.name_pane(&terminal.start("a").await, "s");
    for (stage, answers, ends) in [
        (Stage::Pasting, false, Some(Stage::Unconfirmed)),
        (Stage::Entered, false, Some(Stage::Unconfirmed)),
        (Stage::Pasting, true, Some(Stage::Confirmed)),
        (Stage::Confirmed, false, None),
        (Stage::Unconfirmed, false, None),
    ] {
        let record = record(Known {
            stage: Some(stage),
            is_prompted: answers,
            ..live()
        });
        let at = json!({"socket": terminal.socket()});
        let verdict = deliver(&record, at, json!({"content": "hello"})).await;
        assert_eq!(verdict, Verdict::Accepted, "{stage:?}");
        let marks = record.marks.lock().unwrap().clone();
        assert_eq!(
            marks,
            ends.map(Some).into_iter().collect::<Vec<_>>(),
            "{stage:?}"
        );
    }
    assert_eq!(terminal.typed("a"), "");
}

/// A database with the subscription `type`, a worker process, and an agent whose hooks report its start.
struct Scene {
    terminal: Terminal,
    plant: Plant,
}

impl Scene {
    async fn open(more: &str) -> Self {
        let scene = Self {
            terminal: Terminal::new(),
            plant: Plant::new(Duration::ZERO).await,
        };
        let file = format!(
            "[subscription.type]\nstream = \"inbound\"\nadapter = \"tmux\"\nsocket = \"{}\"\n{more}",
            scene.terminal.socket()
        );
        let applied = run(&["apply", "-f", "-"], &scene.database(), &file).await;
        assert_eq!(applied.code, Some(0), "{}", applied.stderr);
        scene
    }

    fn database(&self) -> [(&'static str, &str); 1] {
        [("DATABASE_URL", self.plant.url.as_str())]
    }

    async fn worker(&self) -> WorkerProcess {
        self.plant.worker(&[]).await
    }

    /// The agent's hooks report this.
    async fn hook(&self, name: &str) {
        let payload = json!({"hook_event_name": name, "session_id": "s", "cwd": "/", "source": "startup",
                             "prompt": "hello"});
        let spool = self.terminal.path("spool");
        let variables = [
            self.database()[0],
            // Enough for a loaded machine.
            ("LANEKEEPER_HOOK__TIMEOUT_MS", "10000"),
            ("LANEKEEPER_SPOOL__DIR", spool.to_str().unwrap()),
        ];
        let hook = ["hook", "--cli", "claude-code"];
        let ran = run(&hook, &variables, &payload.to_string()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    }

    async fn typed(&self, seq: i64) -> Option<String> {
        let read = "SELECT typed FROM lanekeeper.inbound_message WHERE session = 's' AND seq = $1";
        self.plant
            .client
            .query_one(read, &[&seq])
            .await
            .unwrap()
            .get(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_typed_confirmed_entered_in_the_registry_and_told_to_other_destinations() {
    let scene = Scene::open("enter_delay_ms = 50\nconfirm_timeout_ms = 30000\n").await;
    let (terminal, client) = (&scene.terminal, &scene.plant.client);
    let pane = terminal.start("a").await;
    let socket = terminal.socket();
    let bind = [
        "session", "bind", "inbound", "s", "--pane", &pane, "--socket", &socket,
    ];
    let bound = run(&bind, &scene.database(), "").await;
    assert_eq!(bound.code, Some(0), "{}", bound.stderr);
    let worker = scene.worker().await;
    text(client, "s", "zwei\nZeilen 日本語", None)
        .await
        .unwrap();
    // Nothing is typed before the agent reports its start.
    scene.hook("SessionStart").await;
    terminal.comes("a", &pasted("zwei\nZeilen 日本語")).await;
    text(client, "s", "next", None).await.unwrap();
    wait_until(LIMIT, "Enter is on record", async || {
        scene.typed(1).await.as_deref() == Some("entered")
    })
    .await;
    assert_eq!(scene.typed(2).await, None, "it waits for its turn");
    scene.hook("UserPromptSubmit").await;
    wait_until(LIMIT, "it is confirmed", async || {
        scene.typed(1).await.as_deref() == Some("confirmed")
    })
    .await;
    wait_until(LIMIT, "the next is typed", async || {
        scene.typed(2).await.as_deref() == Some("entered")
    })
    .await;
    scene.hook("UserPromptSubmit").await;
    scene.plant.settled().await;
    let state =
        "SELECT array_agg(state || ' ' || typed ORDER BY seq) FROM lanekeeper.inbound_message";
    let states: Vec<String> = client.query_one(state, &[]).await.unwrap().get(0);
    assert_eq!(states, ["delivered confirmed", "delivered confirmed"]);
    let all = pasted("zwei\nZeilen 日本語") + &pasted("next");
    terminal.comes("a", &all).await;
    let registry = "SELECT last_input || ' ' || last_input_origin FROM lanekeeper.session_registry";
    let last: String = client.query_one(registry, &[]).await.unwrap().get(0);
    assert_eq!(last, "next telegram");
    let told = "SELECT array_agg(payload ->> 'content' ORDER BY seq) FROM lanekeeper.message
                WHERE stream = 'hooks' AND event_type = 'user_input' AND subscription = 'registry'";
    let told: Vec<String> = client.query_one(told, &[]).await.unwrap().get(0);
    assert_eq!(told, ["zwei\nZeilen 日本語", "next"]);
    assert!(worker.stop().await.success());

    let attach = ["session", "attach", "none", "--socket", &socket];
    let refused = run(&attach, &[], "").await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("no pane of this tmux server"),
        "{}",
        refused.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_between_the_paste_and_enter_never_doubles_the_text() {
    let scene = Scene::open("enter_delay_ms = 20000\nconfirm_timeout_ms = 500\n").await;
    let terminal = &scene.terminal;
    terminal.name_pane(&terminal.start("a").await, "s");
    let worker = scene.worker().await;
    scene.hook("SessionStart").await;
    text(&scene.plant.client, "s", "once", None).await.unwrap();
    let paste = pasted("once");
    let without_enter = paste.trim_end_matches('\r');
    terminal.comes("a", without_enter).await;
    worker.kill().await;
    let successor = scene.worker().await;
    wait_until(LIMIT, "it is given up", async || {
        scene.typed(1).await.as_deref() == Some("unconfirmed")
    })
    .await;
    scene.plant.settled().await;
    assert!(successor.stop().await.success());
    assert_eq!(
        terminal.typed("a"),
        without_enter,
        "once, and at most unconfirmed"
    );
}
