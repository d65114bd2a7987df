//! The private server of `lanekeeper dev`: it stops when it should, and keeps its data if it should.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lanekeeper_dev::{Data, DevError, Options, Postgres};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio_postgres::config::Host;

use crate::support::{connect, lanekeeper, private_server, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// A directory of this test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("lanekeeper-it-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn kept(data: impl Into<PathBuf>) -> Options {
    Options {
        data: Data::Kept(data.into()),
        ..private_server()
    }
}

/// `lanekeeper dev --ephemeral` around a shell script, and the first line that this prints.
async fn dev(script: &str) -> (Child, String) {
    let mut command = lanekeeper();
    if let Some(bin) = private_server().postgres_bin {
        command.env("LANEKEEPER_DEV__POSTGRES_BIN", bin);
    }
    let mut child = command
        .args([
            "dev",
            "--ephemeral",
            "--no-migrate",
            "--",
            "sh",
            "-c",
            script,
        ])
        // Open, so that `cat` as a command stays until the test ends.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let line = BufReader::new(stdout).lines().next_line().await.unwrap();
    (child, line.expect("the command prints a line"))
}

#[tokio::test]
async fn a_subscription_file_is_applied_before_the_worker_serves() {
    let folder = Folder::new("subscriptions");
    let file = folder.0.join("look.toml");
    std::fs::write(
        &file,
        "[subscription.look]\nstream = \"runs\"\nadapter = \"stdout\"\n",
    )
    .unwrap();
    let mut command = lanekeeper();
    if let Some(bin) = private_server().postgres_bin {
        command.env("LANEKEEPER_DEV__POSTGRES_BIN", bin);
    }
    let mut child = command
        .args(["dev", "--ephemeral", "-f"])
        .arg(&file)
        .env("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    let url = loop {
        let line = lines.next_line().await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended: {said:?}"));
        if let Some(url) = line.strip_prefix("export DATABASE_URL=") {
            break url.trim_matches('\'').to_owned();
        }
        said.push(line);
    };
    assert!(said.iter().any(|line| line.contains("+ look")), "{said:?}");
    let http = said.iter().find_map(|line| line.strip_prefix("worker "));
    assert!(http.unwrap().contains("http://127.0.0.1:"), "{said:?}");

    let enqueue = "SELECT lanekeeper.enqueue('runs', 's', 'step', '{\"n\": 1}')";
    connect(&url).await.batch_execute(enqueue).await.unwrap();
    let delivered = loop {
        let line = lines.next_line().await.unwrap().expect("it serves");
        if line.starts_with('{') {
            break line;
        }
    };
    let delivered: serde_json::Value = serde_json::from_str(&delivered).unwrap();
    assert_eq!(delivered["data"]["n"], 1);
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_subscription_file_that_cannot_be_is_refused_before_a_server_starts() {
    let mut command = lanekeeper();
    let refused = command
        .args(["dev", "--ephemeral", "-f", "/nonexistent/look.toml"])
        .output()
        .await
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("/nonexistent/look.toml"), "{said}");
    assert!(refused.stdout.is_empty());
}

fn socket_dir(url: &str) -> PathBuf {
    let config: tokio_postgres::Config = url.parse().unwrap();
    match &config.get_hosts()[0] {
        Host::Unix(dir) => dir.clone(),
        Host::Tcp(host) => panic!("{host} is no directory"),
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_command_reaches_the_server_and_its_exit_code_is_passed_on() {
    let (mut child, url) = dev("echo \"$DATABASE_URL\"; cat; exit 7").await;
    let answer = connect(&url)
        .await
        .query_one("SHOW cluster_name", &[])
        .await
        .unwrap();
    assert_eq!(answer.get::<_, &str>(0), "lanekeeper-dev");
    drop(child.stdin.take());
    assert_eq!(child.wait().await.unwrap().code(), Some(7));
    assert!(
        !socket_dir(&url).parent().unwrap().exists(),
        "an ephemeral server leaves nothing"
    );
}

#[tokio::test]
async fn a_server_ends_with_an_owner_that_was_killed() {
    let (mut child, url) = dev("echo \"$DATABASE_URL\"; exec cat").await;
    let home = socket_dir(&url).parent().unwrap().to_owned();
    let client = connect(&url).await;
    assert!(home.exists());
    signal(&child, Signal::KILL);
    wait_until(LIMIT, "the server closes its connections", async || {
        client.is_closed()
    })
    .await;
    wait_until(LIMIT, "its data is removed", async || !home.exists()).await;
    child.wait().await.unwrap();
}

#[tokio::test]
async fn sigterm_reaches_the_command_and_the_server_stops_after_it() {
    let script = "trap 'exit 5' TERM; echo \"$DATABASE_URL\"; while :; do sleep 0.05; done";
    let (mut child, url) = dev(script).await;
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().await.unwrap().code(), Some(5));
    assert!(!socket_dir(&url).parent().unwrap().exists());
}

async fn numbers(postgres: &Postgres) -> Vec<i32> {
    let client = connect(postgres.url()).await;
    let rows = client
        .query("SELECT number FROM kept ORDER BY number", &[])
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn kept_data_is_there_at_the_next_start_and_for_one_owner_at_a_time() {
    let folder = Folder::new("kept");
    let options = kept(folder.0.join("data"));
    let first = Postgres::start(&options).await.unwrap();
    let create = "CREATE TABLE kept AS SELECT 42 AS number";
    connect(first.url())
        .await
        .batch_execute(create)
        .await
        .unwrap();

    let second = Postgres::start(&options).await;
    assert!(matches!(second, Err(DevError::InUse { .. })), "{second:?}");
    assert_eq!(numbers(&first).await, [42], "the refused start did no harm");

    first.stop().await.unwrap();
    let next = Postgres::start(&options).await.unwrap();
    assert_eq!(numbers(&next).await, [42]);
    next.stop().await.unwrap();
}

#[tokio::test]
async fn a_start_waits_for_the_server_that_a_dropped_owner_left_stopping() {
    let folder = Folder::new("dropped");
    let options = kept(folder.0.join("data"));
    let postgres = Postgres::start(&options).await.unwrap();
    let socket = socket_dir(postgres.url());
    connect(postgres.url())
        .await
        .batch_execute("CREATE TABLE kept AS SELECT 1 AS number")
        .await
        .unwrap();
    drop(postgres);
    wait_until(LIMIT, "the socket is removed", async || !socket.exists()).await;
    // The supervisor may still hold the lock for a moment, in the name of this live process.
    let mut next = None;
    wait_until(LIMIT, "the lock is free", async || {
        next = Postgres::start(&options).await.ok();
        next.is_some()
    })
    .await;
    let next = next.unwrap();
    assert_eq!(numbers(&next).await, [1]);
    next.stop().await.unwrap();
}

#[tokio::test]
async fn tcp_is_closed_unless_asked_for_and_wants_the_password() {
    let mut options = private_server();
    options.port = Some(0);
    let postgres = Postgres::start(&options).await.unwrap();
    let url = postgres.tcp_url().unwrap().to_owned();
    connect(&url).await.batch_execute("SELECT 1").await.unwrap();
    let mut wrong: tokio_postgres::Config = url.parse().unwrap();
    wrong.password("guess");
    let refused = wrong.connect(tokio_postgres::NoTls).await.err().unwrap();
    assert_eq!(
        refused.code(),
        Some(&tokio_postgres::error::SqlState::INVALID_PASSWORD)
    );
    postgres.stop().await.unwrap();

    let postgres = Postgres::start(&private_server()).await.unwrap();
    assert_eq!(postgres.tcp_url(), None);
    let listens = connect(postgres.url())
        .await
        .query_one("SHOW listen_addresses", &[])
        .await
        .unwrap();
    assert_eq!(listens.get::<_, &str>(0), "");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_half_made_data_directory_is_made_anew() {
    let folder = Folder::new("half");
    let data = folder.0.join("data");
    std::fs::create_dir_all(data.join("postgres.new")).unwrap();
    std::fs::write(data.join("postgres.new/PG_VERSION"), "15\n").unwrap();
    std::fs::write(data.join("lock"), "").unwrap();
    let postgres = Postgres::start(&kept(&data)).await.unwrap();
    assert!(!Path::new(&data).join("postgres.new").exists());
    postgres.stop().await.unwrap();
}
