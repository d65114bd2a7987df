//! Starting and stopping the server in its home.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::PipeWriter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Child;
use tokio::time::Instant;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use super::account::{Account, command};
use super::binaries::Binaries;
use super::error::file;
use super::home::Home;
use super::{Data, DevError, Options, cluster, url};

/// Recovery after a crash comes before readiness; it takes as long as the log since the last
/// checkpoint is long.
const START_LIMIT: Duration = Duration::from_secs(120);
/// The supervisor's ten seconds of fast shutdown, and an immediate one after them.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Names the socket's file where no TCP port is opened.
const SOCKET_PORT: u16 = 5432;
const LOG_TAIL_LINES: usize = 15;

/// A running private server. Dropping it stops the server without waiting for that.
#[derive(Debug)]
pub struct Postgres {
    supervisor: Child,
    /// The supervisor stops the server when this closes.
    owner: PipeWriter,
    url: String,
    tcp_url: Option<String>,
    binaries: Binaries,
    home: PathBuf,
    log: PathBuf,
    socket_dir: PathBuf,
    port: u16,
}

impl Postgres {
    /// Starts the server and returns when it accepts connections and has its database.
    pub async fn start(options: &Options) -> Result<Self, DevError> {
        let found = Binaries::find(options.postgres_bin.as_deref())?;
        let account = Account::choose()?;
        let home = match &options.data {
            Data::Kept(dir) => Home::kept(dir, account).await?,
            Data::Ephemeral => Home::ephemeral(account).await?,
        };
        let written_by = home.major()?;
        let binaries = Binaries::choose(found, written_by, &home.root)?;
        let password = home.password()?;
        if written_by.is_none() {
            // What is to be removed at the end need not survive a power cut before.
            cluster::create(&home, &binaries, options.data != Data::Ephemeral).await?;
        }
        home.remove_stale_pid()?;
        let port = options.port.map(free_port).transpose()?;
        let mut postgres = Self::spawn(home, binaries, options.fsync, port)?;
        postgres.tcp_url = port.map(|port| url::over_tcp(&password, port));
        postgres.become_ready().await?;
        Ok(postgres)
    }

    fn spawn(
        home: Home,
        binaries: Binaries,
        fsync: bool,
        tcp: Option<u16>,
    ) -> Result<Self, DevError> {
        let (log, port) = (home.log(), tcp.unwrap_or(SOCKET_PORT));
        let socket_dir = home.run.clone();
        let log_file = open_log(&log)?;
        let lock = home.lock.try_clone().map_err(file("lock", &home.root))?;
        let program = PathBuf::from("sh");
        let failed = |source| DevError::Run {
            program: program.clone(),
            source,
        };
        let (end, owner) = std::io::pipe().map_err(failed)?;
        let mut supervisor = command(&program, home.account.as_ref());
        supervisor
            .args(["-c", include_str!("supervise.sh"), "lanekeeper-postgres"])
            .arg(home.scratch.path())
            .arg(binaries.program("postgres"))
            .args(cluster::arguments(&home, fsync, tcp, port))
            .stdin(end)
            .stdout(lock)
            .stderr(log_file)
            // A terminal's Ctrl-C is for the owner, which stops the server after its own work.
            .process_group(0);
        let supervisor = supervisor.spawn().map_err(failed)?;
        let root = home.root.clone();
        home.scratch.hand_over();
        Ok(Self {
            supervisor,
            owner,
            url: url::over_socket(&socket_dir, port, url::NAME),
            tcp_url: None,
            binaries,
            home: root,
            log,
            socket_dir,
            port,
        })
    }

    /// For tokio-postgres, psql and whatever else speaks libpq's URLs; over the Unix socket.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Over TCP, with the password; `None` unless a port was asked for.
    pub fn tcp_url(&self) -> Option<&str> {
        self.tcp_url.as_deref()
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Where data, log and password are.
    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What libpq's programs read from the environment to reach this server.
    pub fn environment(&self) -> [(&'static str, OsString); 4] {
        [
            ("PGHOST", self.socket_dir.clone().into_os_string()),
            ("PGPORT", self.port.to_string().into()),
            ("PGUSER", url::NAME.into()),
            ("PGDATABASE", url::NAME.into()),
        ]
    }

    /// Returns when the server has ended without having been told to, with the reason.
    pub async fn exited(&mut self) -> DevError {
        match self.supervisor.wait().await {
            Ok(status) => DevError::Exited {
                status,
                log: self.log.clone(),
                tail: tail(&self.log),
            },
            Err(source) => DevError::Run {
                program: "sh".into(),
                source,
            },
        }
    }

    /// Shuts the server down and returns when it is gone, an ephemeral one with its data.
    pub async fn stop(mut self) -> Result<(), DevError> {
        drop(self.owner);
        match tokio::time::timeout(STOP_LIMIT, self.supervisor.wait()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(DevError::Run {
                program: "sh".into(),
                source,
            }),
            Err(_) => Err(DevError::StillRunning {
                seconds: STOP_LIMIT.as_secs(),
                log: self.log,
            }),
        }
    }

    async fn become_ready(&mut self) -> Result<(), DevError> {
        let maintenance = url::over_socket(&self.socket_dir, self.port, "postgres");
        let deadline = Instant::now() + START_LIMIT;
        let (client, connection) = loop {
            match tokio_postgres::connect(&maintenance, NoTls).await {
                Ok(connected) => break connected,
                Err(error) if !is_starting(&error) => {
                    return Err(DevError::Query {
                        action: "a connection",
                        source: error,
                    });
                }
                Err(_) if Instant::now() > deadline => {
                    return Err(DevError::NotReady {
                        seconds: START_LIMIT.as_secs(),
                        log: self.log.clone(),
                        tail: tail(&self.log),
                    });
                }
                Err(_) => {}
            }
            tokio::select! {
                error = self.exited() => return Err(error),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        };
        let create = async {
            let exists = client
                .query_opt("SELECT FROM pg_database WHERE datname = $1", &[&url::NAME])
                .await?
                .is_some();
            if !exists {
                client
                    .batch_execute(&format!("CREATE DATABASE {}", url::NAME))
                    .await?;
            }
            drop(client);
            Ok(())
        };
        let (created, closed) = tokio::join!(create, connection);
        created.and(closed).map_err(|source| DevError::Query {
            action: "to create its database",
            source,
        })
    }
}

/// The socket is not there yet, or the server says that it is starting up.
fn is_starting(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_none_or(|code| *code == SqlState::CANNOT_CONNECT_NOW)
}

/// Keeps the log of the run before: it says why that one ended.
fn open_log(path: &Path) -> Result<std::fs::File, DevError> {
    if path.exists() {
        std::fs::rename(path, path.with_extension("log.1")).map_err(file("rename", path))?;
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(file("create", path))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_else(|error| error.to_string().into_bytes());
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// PostgreSQL cannot choose a port for itself. Somebody else may take it before PostgreSQL does;
/// the start then fails and says so.
fn free_port(wanted: u16) -> Result<u16, DevError> {
    if wanted != 0 {
        return Ok(wanted);
    }
    std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(DevError::NoPort)
}
