//! Commands, written as shell scripts.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::{Adapter, Verdict};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::conforms;
use super::destination::{
    Conduct, Destination, Recorder, Watched, deliver, event, rejection, retry_error,
};

conforms!(Script:
    accepted_event_arrives_whole,
    passing_failure_is_retried,
    final_refusal_is_a_rejection,
    silence_ends_at_the_time_out_in_a_retry,
    dropped_delivery_leaves_nothing_running,
    payload_passes_through_unchanged,
    any_session_name_is_carried,
    concurrent_deliveries_do_not_mix,
);

/// Renamed when whole, so that nobody reads half of it.
const KEEP_BODY: &str = r#"cat > "$OUT/part.$LANEKEEPER_EVENT_MESSAGE_ID" && mv "$OUT/part.$LANEKEEPER_EVENT_MESSAGE_ID" "$OUT/body.$LANEKEEPER_EVENT_MESSAGE_ID""#;
/// Two processes that end by force only, both of them writers of the FIFO.
const HANG: &str = r#"exec 3>"$OUT/alive"; sleep 1000 & echo up >&3; sleep 1000"#;

struct Script {
    folder: TempDir,
    adapter: Arc<dyn Adapter>,
    alive: watch::Receiver<Alive>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alive {
    NotYet,
    Yes,
    /// The last process that had the FIFO open is gone.
    NoMore,
}

#[async_trait]
impl Destination for Script {
    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let alive = watch_fifo(&folder.path().join("alive"));
        let script = match conduct {
            Conduct::Accept => KEEP_BODY,
            Conduct::FailForNow => "echo not now >&2; exit 75",
            Conduct::Refuse => "echo never >&2; exit 65",
            Conduct::Hang => HANG,
        };
        let settings = json!({
            "command": ["sh", "-c", script],
            "timeout_ms": u64::try_from(timeout.as_millis()).unwrap(),
            "env": {"OUT": folder.path()},
        });
        let adapter = exec(&settings);
        Self {
            folder,
            adapter,
            alive,
        }
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        self.adapter.clone()
    }
}

#[async_trait]
impl Recorder for Script {
    async fn bodies(&self, n: usize) -> Vec<String> {
        // Exit code 0 means that the body was renamed: there is nothing to wait for.
        let bodies = read_bodies(self.folder.path());
        assert!(bodies.len() >= n, "{} of {n} bodies", bodies.len());
        bodies
    }
}

#[async_trait]
impl Watched for Script {
    async fn reached(&self) {
        self.alive
            .clone()
            .wait_for(|alive| *alive == Alive::Yes)
            .await
            .unwrap();
    }

    async fn abandoned(&self) {
        self.alive
            .clone()
            .wait_for(|alive| *alive == Alive::NoMore)
            .await
            .unwrap();
    }
}

fn read_bodies(folder: &Path) -> Vec<String> {
    let paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_body = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "body");
    paths
        .filter(is_body)
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// The end of a FIFO is seen when no process has it open for writing any more.
fn watch_fifo(path: &Path) -> watch::Receiver<Alive> {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let (tell, alive) = watch::channel(Alive::NotYet);
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut fifo = File::open(path).unwrap();
        fifo.read_exact(&mut [0; 3]).unwrap();
        tell.send_replace(Alive::Yes);
        fifo.read_to_end(&mut Vec::new()).unwrap();
        tell.send_replace(Alive::NoMore);
    });
    alive
}

fn exec(settings: &Value) -> Arc<dyn Adapter> {
    let environment = Environment::with_variables(false, [("", ""); 0]);
    build("exec", "audit", settings, &environment).unwrap()
}

async fn verdict_on(script: &str) -> Verdict {
    let adapter = exec(&json!({"command": ["sh", "-c", script], "timeout_ms": 20_000}));
    deliver(&*adapter, &event("s-1", 42, "{}")).await
}

#[tokio::test]
async fn exit_codes_are_judged_as_documented() {
    assert_eq!(verdict_on("exit 0").await, Verdict::Accepted);
    for code in [65, 100] {
        let error = rejection(verdict_on(&format!("exit {code}")).await);
        assert!(error.contains(&format!("exit code {code}")), "{error}");
    }
    for code in [1, 2, 75, 126, 127, 255] {
        retry_error(verdict_on(&format!("exit {code}")).await);
    }
    let error = retry_error(verdict_on("kill -TERM $$").await);
    assert!(error.contains("killed by signal 15"), "{error}");
}

#[tokio::test]
async fn error_quotes_the_end_of_what_the_command_said() {
    let error = retry_error(verdict_on("seq 1 99999 >&2; echo the end >&2; exit 1").await);
    assert!(
        error.ends_with("99998 99999 the end") && error.len() < 600,
        "{error}"
    );
    let error = retry_error(verdict_on("echo on stdout; exit 1").await);
    assert!(error.ends_with(": on stdout"), "{error}");
}

#[tokio::test]
async fn program_that_does_not_exist_is_retried_and_named() {
    let adapter = exec(&json!({"command": ["/nonexistent/program"]}));
    let error = retry_error(deliver(&*adapter, &event("s-1", 1, "{}")).await);
    assert!(
        error.contains("/nonexistent/program could not be started"),
        "{error}"
    );
}

#[tokio::test]
async fn command_that_reads_nothing_may_still_accept() {
    let adapter = exec(&json!({"command": ["true"]}));
    let event = event("s-1", 1, &format!("\"{}\"", "x".repeat(1024 * 1024)));
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Accepted);
}

#[tokio::test]
async fn background_process_that_keeps_the_pipes_open_holds_up_nothing() {
    let started = Instant::now();
    let script = "sleep 15 & echo $!; exit 1";
    let error = retry_error(verdict_on(script).await);
    assert!(started.elapsed() < Duration::from_secs(10));
    let sleep = error.rsplit(' ').next().unwrap().to_owned();
    assert!(
        Command::new("kill").arg(&sleep).status().unwrap().success(),
        "it was left alone"
    );
}

#[tokio::test]
async fn the_environment_describes_the_event_and_has_nothing_of_the_workers_but_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({
        "command": ["sh", "-c", "env > environment; pwd > folder"],
        "cwd": folder.path(),
        "env": {"GREETING": "hello", "DATABASE_URL": "the command's own"},
    });
    let event = event("s 1", 42, "{}");
    assert_eq!(deliver(&*exec(&settings), &event).await, Verdict::Accepted);
    let environment = std::fs::read_to_string(folder.path().join("environment")).unwrap();
    let has = |line: &str| environment.lines().any(|given| given == line);
    assert!(
        has("LANEKEEPER_EVENT_STREAM=hooks") && has("LANEKEEPER_EVENT_SESSION=s 1"),
        "{environment}"
    );
    assert!(
        has("LANEKEEPER_EVENT_SEQ=42") && has("LANEKEEPER_EVENT_ATTEMPT=3"),
        "{environment}"
    );
    assert!(
        has(&format!("LANEKEEPER_EVENT_MESSAGE_ID={}", event.message_id)),
        "{environment}"
    );
    assert!(has("LANEKEEPER_EVENT_TYPE=agent_stop"), "{environment}");
    assert!(has("LANEKEEPER_EVENT_SUBSCRIPTION=audit"), "{environment}");
    assert!(
        has("GREETING=hello") && has("DATABASE_URL=the command's own"),
        "{environment}"
    );
    // The shell adds some of its own.
    let listed = [
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "GREETING",
        "DATABASE_URL",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    let stranger = environment.lines().find(|line| {
        let name = line.split('=').next().unwrap();
        !listed.contains(&name) && !name.starts_with("LANEKEEPER_")
    });
    assert_eq!(stranger, None, "{environment}");
    assert!(
        environment.lines().any(|line| line.starts_with("PATH=")),
        "{environment}"
    );
    assert!(std::env::vars_os().count() > 8, "there was more to hand on");
    let cwd = std::fs::read_to_string(folder.path().join("folder")).unwrap();
    assert_eq!(Path::new(cwd.trim()), folder.path().canonicalize().unwrap());
}

#[tokio::test]
async fn a_program_may_use_lanekeeper_with_what_it_is_told_of_the_event() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({
        "command": ["sh", "-c", "\"$0\" config > settings", env!("CARGO_BIN_EXE_lanekeeper")],
        "cwd": folder.path(),
        "env": {"HOME": folder.path(), "XDG_CONFIG_HOME": "", "LANEKEEPER_CONFIG": "/dev/null"},
    });
    let event = event("s-1", 1, "{}");
    assert_eq!(deliver(&*exec(&settings), &event).await, Verdict::Accepted);
    let settings = std::fs::read_to_string(folder.path().join("settings")).unwrap();
    assert!(settings.starts_with("KEY "), "{settings}");
}

#[tokio::test]
async fn addresses_in_what_a_command_says_are_not_stored() {
    let script = "echo mail of jane.doe@example.com bounced >&2; exit 1";
    let error = retry_error(verdict_on(script).await);
    assert!(error.ends_with(": mail of [email] bounced"), "{error}");
}

#[tokio::test]
async fn a_command_runs_as_the_user_that_is_named_without_the_workers_groups_or_is_refused() {
    let settings = json!({
        "command": ["sh", "-c", "echo uid $(id -u) gid $(id -g) groups $(id -G) home $HOME; exit 1"],
        "user": "4711:4712",
    });
    let environment = Environment::with_variables(false, [("", ""); 0]);
    let built = build("exec", "audit", &settings, &environment);
    if rustix::process::getuid().is_root() {
        let error = retry_error(deliver(&*built.unwrap(), &event("s-1", 1, "{}")).await);
        assert!(
            error.ends_with("uid 4711 gid 4712 groups 4712 home /"),
            "{error}"
        );
    } else {
        let error = built.err().unwrap().to_string();
        assert!(error.contains("must run as root"), "{error}");
    }
    let settings = json!({"command": ["true"], "user": "nobody-of-this-name"});
    let error = build("exec", "audit", &settings, &environment)
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("\"nobody-of-this-name\" is no user"),
        "{error}"
    );
}
