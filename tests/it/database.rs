//! A migrated database of a test's own, dropped with it, on the server at `TEST_DATABASE_URL`. The
//! variable is none of ours: unknown `LANEKEEPER_…` variables stop the binary under test.

use lanekeeper::config::{DatabaseConfig, Secret};
use lanekeeper::store::{connect, migrate};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Where databases may be created.
const SERVER: &str = "TEST_DATABASE_URL";

pub struct Database {
    name: String,
    server: tokio_postgres::Config,
    pub url: String,
}

impl Database {
    pub async fn create() -> Self {
        let server = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("{SERVER} must be the URL of a PostgreSQL where databases may be created")
        });
        let name = format!("lanekeeper_it_{}", Uuid::now_v7().simple());
        let url = {
            let mut url = url::Url::parse(&server).unwrap();
            url.set_path(&name);
            url.to_string()
        };
        let database = Self {
            name,
            server: server.parse().unwrap(),
            url,
        };
        execute(
            &database.server,
            &format!("CREATE DATABASE {}", database.name),
        )
        .await;
        let mut client = connect::open(&database.config()).await.unwrap();
        migrate::migrate(&mut client).await.unwrap();
        database
    }

    pub fn config(&self) -> DatabaseConfig {
        DatabaseConfig {
            url: Some(Secret::new(&self.url)),
            ..DatabaseConfig::default()
        }
    }

    pub async fn client(&self) -> Client {
        connect::connect(&self.config()).await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let drop = format!("DROP DATABASE {name} WITH (FORCE)");
            runtime.unwrap().block_on(execute(&server, &drop));
        });
        dropped.join().unwrap();
    }
}

async fn execute(server: &tokio_postgres::Config, statement: &str) {
    let (client, connection) = server.connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(statement).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}
