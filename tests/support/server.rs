//! A private server that a test may take down and start again.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use lanekeeper_dev::{Data, Options, Postgres};
use lanekeeper_postgres::migrate::migrate;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{connect, mutation, private_server};

pub struct Server {
    pub postgres: Postgres,
    options: Options,
    /// Of its migrated database, over TCP.
    pub url: String,
    dir: TempDir,
}

impl Server {
    pub async fn start() -> Self {
        let server = Self::on(Self::directory()).await;
        let mut client = connect(&server.url).await;
        migrate(&mut client).await.unwrap();
        mutation::apply_chosen(&client).await;
        server
    }

    /// A directory that the server's user can enter.
    pub fn directory() -> TempDir {
        tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .unwrap()
    }

    /// On what is in `server` of this directory, or on a new cluster there.
    pub async fn on(dir: TempDir) -> Self {
        let mut options = Options {
            data: Data::Kept(dir.path().join("server")),
            port: Some(0),
            ..private_server()
        };
        let postgres = Postgres::start(&options).await.unwrap();
        let url = postgres.tcp_url().unwrap().to_owned();
        options.port = url::Url::parse(&url).unwrap().port();
        Self {
            postgres,
            options,
            url,
            dir,
        }
    }

    /// Where its home is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn port(&self) -> u16 {
        self.options.port.unwrap()
    }

    /// What `pg_ctl stop -m immediate` does: no shutdown, connections end without a word.
    pub async fn crash(self) -> Crashed {
        let Self {
            mut postgres,
            options,
            url,
            dir,
        } = self;
        let file = postgres.home().join("postgres/postmaster.pid");
        let pid = std::fs::read_to_string(file).unwrap();
        let pid = pid.lines().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::QUIT).unwrap();
        println!("{}", postgres.exited().await);
        Crashed { options, url, dir }
    }

    pub async fn restart(self) -> Self {
        self.crash().await.start().await
    }

    pub async fn stop(self) {
        self.postgres.stop().await.unwrap();
    }
}

/// Its data, waiting for a start.
pub struct Crashed {
    options: Options,
    url: String,
    dir: TempDir,
}

impl Crashed {
    pub async fn start(self) -> Server {
        let Self { options, url, dir } = self;
        Server {
            postgres: Postgres::start(&options).await.unwrap(),
            options,
            url,
            dir,
        }
    }
}
