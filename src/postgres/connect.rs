//! Connecting to Postgres, and telling a user plainly why it did not work.
//!
//! Failures are told apart by SQLSTATE and by the kind of I/O error, never by text: servers speak
//! the language of their locale.

use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client};

use super::attempt::{Failed, is_silence};
use super::config::DatabaseConfig;
use crate::connection::{ConnectionStringError, servers};

use super::migrate::{self, OLDEST_POSTGRES, Unfit};
use super::tls::TlsError;
use super::{Database, StoreError};

/// Why there is no connection to work with. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no database is configured")]
    NotConfigured,
    #[error("database.url cannot be used")]
    Url { source: ConnectionStringError },
    #[error("no PostgreSQL answers at {server}")]
    Unreachable {
        server: String,
        source: tokio_postgres::Error,
    },
    #[error("PostgreSQL at {server} did not answer within {} ms", timeout.as_millis())]
    TimedOut { server: String, timeout: Duration },
    #[error("PostgreSQL at {server} is starting up or shutting down")]
    NotReady {
        server: String,
        source: tokio_postgres::Error,
    },
    #[error("PostgreSQL at {server} has no connection left")]
    TooManyConnections {
        server: String,
        source: tokio_postgres::Error,
    },
    #[error("PostgreSQL at {server} does not let user {user} in")]
    NotAuthorised {
        server: String,
        user: String,
        source: tokio_postgres::Error,
    },
    #[error("PostgreSQL at {server} does not offer TLS, and sslmode demands it")]
    NoTls {
        server: String,
        source: tokio_postgres::Error,
    },
    #[error("the connection to PostgreSQL at {server} cannot be secured")]
    Tls {
        server: String,
        source: tokio_postgres::Error,
    },
    #[error("PostgreSQL at {server} has no database {database}")]
    DatabaseMissing {
        server: String,
        database: String,
        source: tokio_postgres::Error,
    },
    #[error("PostgreSQL at {server} is version {version}; at least {OLDEST_POSTGRES} is needed")]
    TooOld { server: String, version: String },
    #[error("database {database} at {server} has no Lanekeeper schema")]
    NotMigrated { server: String, database: String },
    #[error(
        "the schema of database {database} at {server} has version {found}; this release needs {known}"
    )]
    SchemaTooOld {
        server: String,
        database: String,
        found: i32,
        known: i32,
    },
    #[error(
        "the schema of database {database} at {server} has version {found}, for programs of version {oldest} or newer; \
         this release knows {known}"
    )]
    SchemaTooNew {
        server: String,
        database: String,
        found: i32,
        oldest: i32,
        known: i32,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("could not connect to PostgreSQL at {server}")]
    Other {
        server: String,
        source: tokio_postgres::Error,
    },
}

impl ConnectError {
    /// Whether the same attempt may work later.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::TimedOut { .. }
                | Self::NotReady { .. }
                | Self::TooManyConnections { .. }
        )
    }

    /// What the user can do about it.
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotConfigured => {
                "set DATABASE_URL, for example postgres://user:password@host:5432/database, or \
                 run `lanekeeper dev`, which brings a PostgreSQL of its own"
            }
            Self::Url { .. } => "write it as postgres://user:password@host:5432/database",
            Self::Unreachable { .. } => "start PostgreSQL, or correct host and port",
            Self::TimedOut { .. } => {
                "check the network, or raise database.connect_timeout_ms (connect_timeout, where the URL has it)"
            }
            Self::NotReady { .. } => "wait until it is ready",
            Self::TooManyConnections { .. } => {
                "lower database.pool_size or the number of replicas, or raise the server's \
                 max_connections"
            }
            Self::NoTls { .. } => {
                "set `ssl = on` there, or sslmode=disable where the network can be trusted"
            }
            Self::Tls { source, .. } => return TlsError::of(source).map(TlsError::advice),
            Self::NotAuthorised { .. } => {
                "correct user and password, the server's pg_hba.conf, or sslmode where that demands TLS"
            }
            Self::DatabaseMissing { .. } => "create it with CREATE DATABASE, or correct its name",
            Self::TooOld { .. } => "upgrade the server",
            Self::NotMigrated { .. } => "run `lanekeeper migrate` on it",
            Self::SchemaTooNew { .. } => "run the release that migrated it, or a newer one",
            Self::SchemaTooOld { .. } => "run `lanekeeper migrate` on it",
            Self::Other { .. } | Self::Store(_) => return None,
        })
    }
}

/// The configured database.
pub fn settings(config: &DatabaseConfig) -> Result<Database, ConnectError> {
    let url = config.url.as_ref().ok_or(ConnectError::NotConfigured)?;
    let database = Database::of_secrets(url, config.password.as_ref(), config.ssl())
        .map_err(|source| ConnectError::Url { source })?;
    let timeout = Duration::from_millis(config.connect_timeout_ms);
    Ok(database.within_unless_told(timeout).with(|driver| {
        if driver.get_application_name().is_none() {
            driver.application_name("lanekeeper");
        }
    }))
}

/// Connects, and checks that this release may work with the schema. The connection's
/// task ends with the client.
pub async fn connect(config: &DatabaseConfig) -> Result<Client, ConnectError> {
    let client = open(config).await?;
    check_schema(&client, config).await?;
    Ok(client)
}

/// Connects like [`connect`], and says when the schema's channel is notified. Through a transaction
/// pooler it never is: notifications are hints.
pub async fn listen(config: &DatabaseConfig) -> Result<(Client, Arc<Notify>), ConnectError> {
    let notified = Arc::new(Notify::new());
    let notifying = Arc::clone(&notified);
    let client = open_with(config, move || notifying.notify_one()).await?;
    check_schema(&client, config).await?;
    client
        .batch_execute("LISTEN lanekeeper")
        .await
        .map_err(StoreError::on("listening"))?;
    Ok((client, notified))
}

/// Whether this release may work with the schema: it has its version, or a newer one that still admits it.
pub async fn check_schema(client: &Client, config: &DatabaseConfig) -> Result<(), ConnectError> {
    let Target {
        server, database, ..
    } = Target::of(&settings(config)?);
    let known = migrate::latest();
    let Some(version) = migrate::version(client).await? else {
        return Err(ConnectError::NotMigrated { server, database });
    };
    version.admits(known).map_err(|unfit| match unfit {
        Unfit::TooOld { found } => ConnectError::SchemaTooOld {
            server,
            database,
            found,
            known,
        },
        Unfit::TooNew { found } => ConnectError::SchemaTooNew {
            server,
            database,
            found: found.number,
            oldest: found.oldest_worker,
            known,
        },
    })
}

/// Connects to a server that need not be migrated.
pub async fn open(config: &DatabaseConfig) -> Result<Client, ConnectError> {
    open_with(config, || {}).await
}

async fn open_with(
    config: &DatabaseConfig,
    mut notified: impl FnMut() + Send + 'static,
) -> Result<Client, ConnectError> {
    let database = settings(config)?;
    let target = Target::of(&database);
    let (client, mut connection) = database
        .attempt()
        .await
        .map_err(|failed| target.explain(failed, database.patience()))?;
    let version = connection
        .parameter("server_version")
        .unwrap_or_default()
        .to_owned();
    tokio::spawn(async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(_)) => notified(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a database connection broke"
                    );
                    return;
                }
            }
        }
    });
    // "16.2 (Debian …)" and "17beta1" alike.
    let major = version
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or_default();
    if major
        .parse()
        .is_ok_and(|major: i32| major < OLDEST_POSTGRES)
    {
        return Err(ConnectError::TooOld {
            server: target.server,
            version,
        });
    }
    Ok(client)
}

/// What messages may name of a database: no password.
struct Target {
    server: String,
    user: String,
    database: String,
}

impl Target {
    fn of(database: &Database) -> Self {
        let settings = database.driver();
        let user = settings
            .get_user()
            .unwrap_or("(the operating system's)")
            .to_owned();
        Self {
            server: servers(settings),
            database: settings.get_dbname().unwrap_or(&user).to_owned(),
            user,
        }
    }

    fn explain(&self, failed: Failed, timeout: Duration) -> ConnectError {
        let Self {
            server,
            user,
            database,
        } = self;
        let (server, user, database) = (server.clone(), user.clone(), database.clone());
        let Failed {
            error: source,
            lacked_tls,
        } = failed;
        match source.code() {
            _ if lacked_tls => ConnectError::NoTls { server, source },
            _ if is_silence(&source) => ConnectError::TimedOut { server, timeout },
            Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                ConnectError::NotAuthorised {
                    server,
                    user,
                    source,
                }
            }
            Some(&SqlState::INVALID_CATALOG_NAME) => ConnectError::DatabaseMissing {
                server,
                database,
                source,
            },
            Some(&SqlState::TOO_MANY_CONNECTIONS) => {
                ConnectError::TooManyConnections { server, source }
            }
            Some(&SqlState::CANNOT_CONNECT_NOW) => ConnectError::NotReady { server, source },
            Some(_) => ConnectError::Other { server, source },
            None if source.source().is_some_and(|cause| cause.is::<io::Error>()) => {
                ConnectError::Unreachable { server, source }
            }
            None if TlsError::of(&source).is_some() => ConnectError::Tls { server, source },
            None => ConnectError::Other { server, source },
        }
    }
}
