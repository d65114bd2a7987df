//! Databases for tests, cloned from a migrated template.
//!
//! The template is named after the content of the schema and is built once per server, by
//! whichever test process comes first: the others wait for it at an advisory lock. It gets its
//! final name when it is complete, so that a builder that was killed leaves nothing half-made.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use lanekeeper_dev::{Options, Postgres};
use lanekeeper_postgres::migrate::migrate;
use lanekeeper_postgres::migrate::schema::Schema;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};
use url::Url;

use super::mutation;

/// Any number that nothing else in the maintenance database locks.
const TEMPLATE_LOCK: i64 = 0x6c61_6e65_7465_7374;

/// The server that all tests of this process use.
struct Server {
    url: Url,
    template: String,
    /// Held here, so that it ends with this process and takes all test databases along.
    private: Option<Postgres>,
}

static SERVER: OnceCell<Server> = OnceCell::const_new();

impl Server {
    async fn get() -> &'static Self {
        SERVER.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        let (url, private) = match std::env::var("TEST_DATABASE_URL") {
            Ok(url) => (url, None),
            Err(_) => {
                let postgres = Postgres::start(&private_server())
                    .await
                    .expect("a private server");
                (postgres.url().to_owned(), Some(postgres))
            }
        };
        let url = Url::parse(&url).expect("TEST_DATABASE_URL is a URL");
        let template = template(&url).await;
        Self {
            url,
            template,
            private,
        }
    }
}

/// An ephemeral server of the version that `TEST_POSTGRES_BIN` names, for tests that start their own.
pub fn private_server() -> Options {
    Options {
        postgres_bin: std::env::var_os("TEST_POSTGRES_BIN").map(PathBuf::from),
        ..Options::ephemeral()
    }
}

/// A migrated database of its own, dropped with this.
pub struct TestDb {
    name: String,
    url: Url,
    server: &'static Server,
}

impl TestDb {
    pub async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let server = Server::get().await;
        // The pid tells what a killed test left behind.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lanekeeper_test_{}_{number}", std::process::id());
        let admin = connect(server.url.as_str()).await;
        admin
            .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            .await
            .expect("dropped leftovers");
        admin
            .batch_execute(&format!(
                "CREATE DATABASE {name} TEMPLATE {}",
                server.template
            ))
            .await
            .expect("a clone of the template");
        let db = Self {
            url: with_database(&server.url, &name),
            name,
            server,
        };
        mutation::apply_chosen(&db.connect().await).await;
        db
    }

    /// For processes that a test starts.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    pub async fn connect(&self) -> Client {
        connect(self.url()).await
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if self.server.private.is_some() {
            return;
        }
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let url = self.server.url.clone();
        // A drop cannot await, and must not block the runtime that it happens in.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(url.as_str(), NoTls)
                    .await
                    .map_err(std::io::Error::other)?;
                let drop_it = async {
                    let result = client.batch_execute(&statement).await;
                    drop(client);
                    result
                };
                let (result, _) = tokio::join!(drop_it, connection);
                result.map_err(std::io::Error::other)
            })
        })
        .join();
        if !matches!(dropped, Ok(Ok(()))) {
            eprintln!("{} is left behind: {dropped:?}", self.name);
        }
    }
}

/// Connects, and drives the connection in the background until the client is dropped.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("a connection");
    // Tests that cut connections see the error in the client's next call.
    tokio::spawn(connection);
    client
}

/// The name of the migrated template, built if this server has none yet.
async fn template(url: &Url) -> String {
    let name = format!(
        "lanekeeper_template_{}",
        &Schema::of_this_release().digest()[..12]
    );

    let admin = connect(url.as_str()).await;
    admin
        .execute("SELECT pg_advisory_lock($1)", &[&TEMPLATE_LOCK])
        .await
        .expect("the template lock");
    let exists = admin
        .query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name])
        .await
        .expect("the list of databases")
        .is_some();
    if !exists {
        let unfinished = format!("{name}_unfinished");
        for statement in [
            format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)"),
            format!("CREATE DATABASE {unfinished} TEMPLATE template0"),
        ] {
            admin
                .batch_execute(&statement)
                .await
                .expect("an empty template");
        }
        let unfinished_url = with_database(url, &unfinished);
        let (mut client, connection) = tokio_postgres::connect(unfinished_url.as_str(), NoTls)
            .await
            .expect("a connection");
        let migration = async {
            migrate(&mut client).await.expect("a migrated template");
            drop(client);
        };
        let ((), closed) = tokio::join!(migration, connection);
        closed.expect("a clean end of the connection");
        admin
            .batch_execute(&format!("ALTER DATABASE {unfinished} RENAME TO {name}"))
            .await
            .expect("the finished template");
    }
    name
}

fn with_database(url: &Url, name: &str) -> Url {
    let mut url = url.clone();
    url.set_path(name);
    url
}
