//! A private PostgreSQL that speaks TLS, with certificates of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanekeeper_dev::{Options, Postgres};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::command::{Ran, run};
use crate::support::{connect, private_server, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// Who may come in how: `lanekeeper` only by TLS, `plain` only without it, `certified` only with a
/// certificate.
const HBA: &str = "\
local     all all                     trust
hostssl   all certified 127.0.0.1/32  cert
hostnossl all plain     127.0.0.1/32  trust
hostssl   all lanekeeper 127.0.0.1/32 scram-sha-256
";

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate and its key, for a host or for a user.
    pub fn issue(&self, host: Option<&str>, user: Option<&str>) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = host.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        if let Some(user) = user {
            params.distinguished_name.push(DnType::CommonName, user);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }
}

pub struct Server {
    pub postgres: Postgres,
    /// For what the tests give to the program.
    dir: TempDir,
}

impl Server {
    /// Without TLS as yet.
    pub async fn start() -> Self {
        let options = Options {
            port: Some(0),
            ..private_server()
        };
        Self {
            postgres: Postgres::start(&options).await.unwrap(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// With this certificate and key, under the authority that signs clients' certificates too.
    pub async fn speak_tls(&self, shown: &[String; 2], authority: &str) {
        let client = connect(self.postgres.url()).await;
        let home = home(&client).await;
        write_for_server(&home.join("authority.crt"), authority);
        fs::write(home.join("pg_hba.conf"), HBA).unwrap();
        for (name, file) in [
            ("ssl_cert_file", "server.crt"),
            ("ssl_key_file", "server.key"),
            ("ssl_ca_file", "authority.crt"),
        ] {
            let path = home.join(file);
            let statement = format!("ALTER SYSTEM SET {name} = '{}'", path.display());
            client.batch_execute(&statement).await.unwrap();
        }
        client
            .batch_execute("ALTER SYSTEM SET ssl = on")
            .await
            .unwrap();
        for role in ["plain", "certified"] {
            let statement = format!("CREATE ROLE {role} LOGIN SUPERUSER");
            client.batch_execute(&statement).await.unwrap();
        }
        self.show(&client, shown).await;
        let root = self.file("probe.crt", authority);
        let root = [("PGSSLROOTCERT", root.to_str().unwrap())];
        wait_until(LIMIT, "the server shows its certificate", async || {
            let ran = self.migrate("localhost", "sslmode=verify-ca", &root).await;
            ran.code == Some(0)
        })
        .await;
    }

    /// Has new connections see this certificate, soon.
    pub async fn show(&self, client: &Client, [certificate, key]: &[String; 2]) {
        let home = home(client).await;
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            write_for_server(&home.join(name), text);
        }
        client
            .batch_execute("SELECT pg_reload_conf()")
            .await
            .unwrap();
    }

    /// A file for the program.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// By this name of the host, with these parameters.
    pub fn url(&self, host: &str, parameters: &str) -> String {
        let url = self.postgres.tcp_url().unwrap();
        format!("{}?{parameters}", url.replace("127.0.0.1", host))
    }

    /// The least that a command does with a database.
    pub async fn migrate(&self, host: &str, parameters: &str, variables: &[(&str, &str)]) -> Ran {
        let url = self.url(host, parameters);
        let variables = [&[("DATABASE_URL", url.as_str())], variables].concat();
        run(&["migrate"], &variables, "").await
    }
}

async fn home(client: &Client) -> PathBuf {
    let row = client.query_one("SHOW data_directory", &[]).await.unwrap();
    row.get::<_, String>(0).into()
}

/// Readable for the server's user alone, as it demands of keys.
fn write_for_server(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    let owner = fs::metadata(path.parent().unwrap()).unwrap();
    chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
