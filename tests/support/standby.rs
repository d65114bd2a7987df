//! A streaming replica of a private server, that can be promoted.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{Instant, sleep};
use tokio_postgres::config::Host;

use super::{Server, connect};

const LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "standby";

impl Server {
    /// A standby that this server waits for at each commit: what was confirmed is there too.
    pub async fn standby(&self) -> Self {
        let dir = Self::directory();
        let home = dir.path().join("server");
        fs::create_dir(&home).unwrap();
        // What a home has beside its data.
        fs::write(home.join("lock"), "").unwrap();
        fs::copy(self.postgres.home().join("password"), home.join("password")).unwrap();
        let config: tokio_postgres::Config = self.postgres.url().parse().unwrap();
        let Host::Unix(socket) = &config.get_hosts()[0] else {
            panic!("a private server is reached over its socket")
        };
        let source = format!(
            "host={} port={} user={} application_name={NAME}",
            socket.display(),
            self.port(),
            config.get_user().unwrap()
        );
        let copied = Command::new(self.postgres.binaries().program("pg_basebackup"))
            .args(["--checkpoint=fast", "--write-recovery-conf", "--no-sync"])
            .args(["-d", &source, "-D"])
            .arg(home.join("postgres"))
            .output()
            .await
            .unwrap();
        assert!(
            copied.status.success(),
            "{}",
            String::from_utf8_lossy(&copied.stderr)
        );
        let owner = fs::metadata(self.postgres.home().join("postgres")).unwrap();
        give(&home, owner.uid(), owner.gid());
        let standby = Self::on(dir).await;
        let client = connect(&self.url).await;
        client
            .batch_execute(&format!(
                "ALTER SYSTEM SET synchronous_standby_names = '{NAME}'"
            ))
            .await
            .unwrap();
        client
            .execute("SELECT pg_reload_conf()", &[])
            .await
            .unwrap();
        let query = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
        let deadline = Instant::now() + LIMIT;
        while client.query_opt(query, &[]).await.unwrap().is_none() {
            assert!(Instant::now() < deadline, "nobody waits for the standby");
            sleep(Duration::from_millis(20)).await;
        }
        standby
    }

    /// Makes a standby the server; returns when it takes writes.
    pub async fn promote(&self) {
        let client = connect(&self.url).await;
        let promoted = client.query_one("SELECT pg_promote()", &[]).await.unwrap();
        assert!(promoted.get::<_, bool>(0), "not within a minute");
    }
}

fn give(path: &Path, uid: u32, gid: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), uid, gid);
        }
    }
}
