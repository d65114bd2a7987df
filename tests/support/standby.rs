//! A streaming replica of a private server, that can be promoted.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{Instant, sleep};
use tokio_postgres::NoTls;
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
        let program = self.postgres.binaries().program("pg_basebackup");
        if program.exists() {
            let copied = Command::new(program)
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
        } else {
            self.copy_by_hand(&home.join("postgres"), &source).await;
        }
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

    /// Waits until its standby has all that it has. A server that crashed with commits under way shows them after its
    /// start, whether or not the standby ever got them.
    pub async fn standby_has_all(&self) {
        let deadline = Instant::now() + LIMIT;
        let mut end = None;
        // Where others have all its connections nobody can ask; then nothing new commits either.
        while !self.standby_is_at(&mut end).await.unwrap_or(true) {
            assert!(
                Instant::now() < deadline,
                "the standby does not come up to it"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it has come to `end`, which is where this server is now if it was not known. An error where it
    /// takes no connection, as others have them all.
    async fn standby_is_at(&self, end: &mut Option<String>) -> Result<bool, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        let Some(end) = end else {
            let query = "SELECT pg_current_wal_lsn()::text";
            *end = Some(client.query_one(query, &[]).await?.get(0));
            return Ok(false);
        };
        let query = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= $1::text::pg_lsn";
        Ok(client.query_opt(query, &[end]).await?.is_some())
    }

    /// What `pg_basebackup` does, for packages of the server that come without it. PostgreSQL 15 and later.
    async fn copy_by_hand(&self, to: &Path, source: &str) {
        let client = connect(&self.url).await;
        client
            .query_one("SELECT pg_backup_start('standby', true)", &[])
            .await
            .unwrap();
        copy(&self.postgres.home().join("postgres"), to);
        let stop = "SELECT labelfile FROM pg_backup_stop(false)";
        let label: String = client.query_one(stop, &[]).await.unwrap().get(0);
        fs::write(to.join("backup_label"), label).unwrap();
        fs::write(to.join("standby.signal"), "").unwrap();
        let settings = to.join("postgresql.auto.conf");
        let before = fs::read_to_string(&settings).unwrap();
        fs::write(settings, format!("{before}primary_conninfo = '{source}'\n")).unwrap();
        // Only the owner may enter it.
        fs::set_permissions(to, Permissions::from_mode(0o700)).unwrap();
    }

    /// Makes a standby the server; returns when it takes writes.
    pub async fn promote(&self) {
        let client = connect(&self.url).await;
        let promoted = client.query_one("SELECT pg_promote()", &[]).await.unwrap();
        assert!(promoted.get::<_, bool>(0), "not within a minute");
    }
}

/// Copies a folder that is written to meanwhile: what is gone when it is its turn is left out.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().expect("an entry has a name");
        if name.to_string_lossy().starts_with("postmaster.") {
            continue;
        }
        let target = to.join(name);
        if path.is_dir() {
            copy(&path, &target);
        } else if let Err(error) = fs::copy(&path, target) {
            assert_eq!(
                error.kind(),
                ErrorKind::NotFound,
                "{}: {error}",
                path.display()
            );
        }
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
