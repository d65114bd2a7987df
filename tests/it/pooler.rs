//! PgBouncer in transaction mode: producers work through it, and a worker reports that it cannot.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls};

use crate::command::run;
use crate::support::{TestDb, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

struct Pooler {
    url: String,
    _process: Child,
    _dir: TempDir,
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join("pgbouncer"))
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no pgbouncer on this machine");
    }
    found
}

impl Pooler {
    /// Two server connections for all clients; `more` are further lines of its configuration.
    async fn start(program: &Path, db: &TestDb, more: &str) -> Self {
        let server: Config = db.url().parse().unwrap();
        let host = match &server.get_hosts()[0] {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let (name, user) = (server.get_dbname().unwrap(), server.get_user().unwrap());
        let password = server.get_password().map_or_else(String::new, |password| {
            format!("password={}", String::from_utf8_lossy(password))
        });
        let dir = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let ini = dir.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n{name} = host={host} port={} dbname={name} user={user} {password}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n{more}\n",
            server.get_ports()[0]
        );
        std::fs::write(&ini, text).unwrap();
        let mut command = Command::new(program);
        command.arg("-q").arg(&ini);
        if rustix::process::geteuid().is_root() {
            // It refuses to be root. The server's user can enter the folder of its socket.
            command.args(["-u", "postgres"]);
        }
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let url = format!("postgres://{user}@127.0.0.1:{port}/{name}");
        wait_until(LIMIT, "the pooler answers", async || {
            tokio_postgres::connect(&url, NoTls).await.is_ok()
        })
        .await;
        Self {
            url,
            _process: process,
            _dir: dir,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_work_through_a_transaction_pooler() {
    let Some(program) = program() else {
        return;
    };
    let db = TestDb::new().await;
    let pooler = Pooler::start(&program, &db, "").await;
    let spool = tempfile::tempdir().unwrap();
    let variables = [
        ("DATABASE_URL", pooler.url.as_str()),
        ("LANEKEEPER_HOOK__TIMEOUT_MS", "10000"),
        ("LANEKEEPER_SPOOL__DIR", spool.path().to_str().unwrap()),
    ];
    // Many at once, so that one's statements meet another's on the two server connections.
    let calls = (0..8).map(async |number| {
        for round in 0..4 {
            let session = format!("s{number}");
            let payload =
                format!(r#"{{"session_id":"{session}","hook_event_name":"Stop","n":{round}}}"#);
            let hook = run(&["hook", "--cli", "codex"], &variables, &payload).await;
            assert_eq!((hook.code, hook.stderr.as_str()), (Some(0), ""));
            let one = ["enqueue", "runs", &session, "step", "--payload", "1"];
            let ran = run(&one, &variables, "").await;
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let lines =
                format!(r#"{{"session":"{session}","event_type":"step","payload":{round}}}"#);
            let ran = run(&["enqueue", "runs", "--lines"], &variables, &lines).await;
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        }
    });
    futures_util::future::join_all(calls).await;
    let client = db.connect().await;
    let count = "SELECT count(*) FROM lanekeeper.event";
    let events: i64 = client.query_one(count, &[]).await.unwrap().get(0);
    assert_eq!(events, 8 * 4 * 3);
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
                (SELECT oid FROM pg_database WHERE datname = current_database())";
    let locks: i64 = client.query_one(held, &[]).await.unwrap().get(0);
    assert_eq!(
        locks, 0,
        "nothing of a producer stays on the pooler's connections"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_behind_a_pooler_says_so_and_ends_whether_its_settings_are_refused_or_swallowed() {
    let Some(program) = program() else {
        return;
    };
    let db = TestDb::new().await;
    for more in ["", "ignore_startup_parameters = options,extra_float_digits"] {
        let pooler = Pooler::start(&program, &db, more).await;
        let variables = [
            ("DATABASE_URL", pooler.url.as_str()),
            ("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0"),
        ];
        let ran = run(&["worker"], &variables, "").await;
        assert_eq!(ran.code, Some(1), "{more:?}: {}", ran.stderr);
        for told in ["pooler", "LANEKEEPER_DATABASE__URL"] {
            assert!(ran.stderr.contains(told), "{more:?}: {}", ran.stderr);
        }
    }
}
