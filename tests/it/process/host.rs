//! A worker and the other processes of its host: its user, and its limit of open files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::process::Command;

use super::plant::LIMIT;
use crate::command::run;
use crate::support::{Receiver, SECRET_ENV, TestDb, WorkerProcess, lanekeeper_by, wait_until};

/// The limit that a worker of these tests is started with.
const STARTED_WITH: u32 = 300;

/// Waits for its own limit, and tries to read the environment of the worker that started it.
const CURIOUS: &str = r#"
until [ "$(ulimit -S -n)" = 300 ]; do :; done
if cat "/proc/$PPID/environ" > "$OUT/environ"; then echo read; else echo refused; fi > "$OUT/part"
mv "$OUT/part" "$OUT/said""#;

async fn apply(db: &TestDb, file: &str) {
    let ran = run(&["apply", "-f", "-"], &[("DATABASE_URL", db.url())], file).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

async fn enqueue(db: &TestDb, sessions: i64) {
    let client = db.connect().await;
    let call = "SELECT lanekeeper.enqueue('runs', 's' || s, 'step', '{}') FROM generate_series(1, $1::bigint) AS s";
    client.execute(call, &[&sessions]).await.unwrap();
}

/// A worker whose limits a shell sets before.
fn limited(limits: &str) -> Command {
    lanekeeper_by(&["sh", "-c", &format!("{limits}; exec \"$@\""), "sh"])
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_same_user_cannot_read_the_workers_secrets_and_has_the_limits_of_its_start()
 {
    let db = TestDb::new().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let subscription = format!(
        "[subscription.curious]\nstream = \"runs\"\nadapter = \"exec\"\n\
         command = [\"sh\", \"-c\", '''{CURIOUS}''']\nenv = {{ OUT = \"{}\" }}\n",
        folder.path().display()
    );
    apply(&db, &subscription).await;
    let receiver = Receiver::start(Duration::ZERO).await;
    let (sender, secret) = receiver.new_secret();
    let limits = format!("ulimit -S -n {STARTED_WITH}; exec \"$@\"");
    let mut starter = vec!["sh", "-c", &limits, "sh"];
    if rustix::process::getuid().is_root() {
        // Root may read and trace everything, unless this is taken from it.
        let without = "-sys_ptrace,-sys_admin,-perfmon";
        starter.splice(0..0, ["setpriv", "--bounding-set", without]);
    }
    let program = lanekeeper_by(&starter);
    let worker = WorkerProcess::spawn_as(program, db.url(), sender, &secret, &[]);
    worker.serves().await;
    enqueue(&db, 1).await;
    let said = folder.path().join("said");
    wait_until(LIMIT, "the program has tried", async || said.exists()).await;
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "refused\n");
    let environ = std::fs::read(folder.path().join("environ")).unwrap();
    assert!(environ.is_empty());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", worker.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut figures = line.unwrap().split_whitespace().skip(3);
    let (soft, hard) = (figures.next().unwrap(), figures.next().unwrap());
    assert_eq!(soft, hard, "it raised its own");
    assert!(worker.stop().await.success());
}

/// A user is named so that programs can do less. That the worker runs as the same one changes nothing of that.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_runs_as_the_workers_own_user_is_in_none_of_its_other_groups() {
    if !rustix::process::getuid().is_root() {
        // Nobody else can have groups taken away.
        return;
    }
    let db = TestDb::new().await;
    let folder = tempfile::tempdir().unwrap();
    let subscription = format!(
        "[subscription.grouped]\nstream = \"runs\"\nadapter = \"exec\"\nuser = \"0:0\"\n\
         command = [\"sh\", \"-c\", 'id -G > \"$OUT/part\"; mv \"$OUT/part\" \"$OUT/said\"']\n\
         env = {{ OUT = \"{}\" }}\n",
        folder.path().display()
    );
    apply(&db, &subscription).await;
    enqueue(&db, 1).await;
    let program = lanekeeper_by(&["setpriv", "--groups", "4711,4712"]);
    let worker = WorkerProcess::spawn_as(program, db.url(), 0, "none", &[]);
    worker.serves().await;
    let said = folder.path().join("said");
    wait_until(LIMIT, "the program has said its groups", async || {
        said.exists()
    })
    .await;
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "0\n");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_hangs_takes_no_file_descriptor_of_another() {
    let db = TestDb::new().await;
    let receiver = Receiver::start(Duration::ZERO).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let section = |name: &str, url: &str| {
        format!(
            "[subscription.{name}]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{url}\"\n\
             secret_env = \"{SECRET_ENV}\"\nconcurrency = 200\ntimeout = \"60s\"\n"
        )
    };
    let hangs = format!("http://{}/", silent.local_addr().unwrap());
    apply(
        &db,
        &(section("hangs", &hangs) + &section("sound", receiver.url())),
    )
    .await;
    let (hanging, opened) = tokio::sync::watch::channel(0);
    let silence = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            connections.push(connection);
            hanging.send_replace(connections.len());
        }
    });
    enqueue(&db, 400).await;
    let (sender, secret) = receiver.new_secret();
    let program = limited("ulimit -n 128");
    let worker = WorkerProcess::spawn_as(program, db.url(), sender, &secret, &[]);
    worker.serves().await;
    receiver
        .wait_until(LIMIT, "the sound one has everything", |seen| {
            seen.arrivals.len() == 400
        })
        .await;
    let seen = receiver.seen();
    assert!(seen.arrivals.iter().all(|one| one.attempt == 1));
    let hung = *opened.borrow();
    assert!((1..=16).contains(&hung), "{hung} connections hang");
    let log = worker.log();
    assert!(log.contains("limit of open files is too low"), "{log}");
    assert!(!log.contains("circuit opened"), "{log}");
    worker.kill().await;
    silence.abort();
}
