//! Where the database is and how connections to it are secured. Every connection is made from this.
//!
//! A connection over a Unix socket never uses TLS, whatever the mode, because no network is in between. With
//! `sslmode=prefer`, as in libpq, the client tries again without TLS if the handshake fails or if the server accepts
//! this user only without TLS. If the connection string or the password is in a file, each connection uses the file's
//! present credentials (`credentials`). Several hosts are tried one after the other (`attempt`), and connecting ends
//! within
//! [`Database::patience`].

use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_secret::Secret;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::Host;
use tokio_postgres::{CancelToken, Client, Config, Error};

use crate::connection::{ConnectionString, ConnectionStringError, SslMode, SslParameters};

pub use super::attempt::Connection;
use super::attempt::{Attempt, Failed};
use super::credentials::Credentials;
use super::host::Silent;
use super::tls::Connector;

/// How long connecting may take where nobody says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// A database and the way to it.
#[derive(Clone, Debug)]
pub struct Database {
    driver: Config,
    tls: Connector,
    /// Where user and password may be replaced.
    credentials: Option<Credentials>,
    /// What the connection string allows each host.
    each: Option<Duration>,
    /// What is allowed for all hosts together.
    whole: Option<Duration>,
    /// Of all connections that are made by clones of this.
    silent: Arc<Silent>,
}

impl Database {
    /// With `beside` for what the connection string does not say of TLS.
    ///
    /// # Errors
    /// Where either cannot be used.
    pub fn new(string: &str, beside: SslParameters) -> Result<Self, ConnectionStringError> {
        let ConnectionString { driver, ssl } = string.parse()?;
        let ssl = ssl.or(beside);
        ssl.check()?;
        Ok(Self::secured(driver, ssl))
    }

    /// As [`Database::new`], with a password for a string that has none; where one of them stands in a file, with
    /// what that has when a connection is made.
    ///
    /// # Errors
    /// As there.
    pub fn of_secrets(
        string: &Secret,
        password: Option<&Secret>,
        beside: SslParameters,
    ) -> Result<Self, ConnectionStringError> {
        let credentials = Credentials::of(string, password)?;
        Ok(Self {
            credentials,
            ..Self::new(string.expose(), beside)?
        })
    }

    fn secured(mut driver: Config, ssl: SslParameters) -> Self {
        // The name that a certificate is checked against, and that TLS cannot do without.
        if driver.get_hosts().is_empty() {
            for address in driver.get_hostaddrs().to_vec() {
                driver.host(address.to_string());
            }
        }
        let tls = Connector::new(ssl);
        let local = |host: &Host| matches!(host, Host::Unix(_));
        driver.ssl_mode(match tls.mode() {
            _ if driver.get_hosts().iter().all(local) => tokio_postgres::config::SslMode::Disable,
            SslMode::Disable => tokio_postgres::config::SslMode::Disable,
            SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            _ => tokio_postgres::config::SslMode::Require,
        });
        Self {
            each: driver.get_connect_timeout().copied(),
            driver,
            tls,
            credentials: None,
            whole: None,
            silent: Arc::default(),
        }
    }

    /// The driver's settings, without those of TLS.
    pub fn driver(&self) -> &Config {
        &self.driver
    }

    /// This database with other settings of the driver; how it is secured stays.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Config)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.driver);
        changed
    }

    /// This database for a caller who waits no longer than this for a connection, however many hosts there are.
    #[must_use]
    pub fn within(&self, whole: Duration) -> Self {
        Self {
            whole: Some(whole),
            ..self.clone()
        }
    }

    /// As [`Database::within`], unless the connection string has a `connect_timeout` of its own.
    #[must_use]
    pub fn within_unless_told(self, whole: Duration) -> Self {
        match self.each {
            None => self.within(whole),
            Some(_) => self,
        }
    }

    /// How long connecting takes at most: by `connect_timeout` of the connection string for each host, or 5 s.
    pub fn patience(&self) -> Duration {
        let hosts = u32::try_from(self.driver.get_hosts().len()).unwrap_or(u32::MAX);
        let told = || self.each.map(|each| each.saturating_mul(hosts.max(1)));
        self.whole.or_else(told).unwrap_or(PATIENCE)
    }

    /// # Errors
    /// The driver's. Where TLS is the reason, its source is a [`TlsError`](super::tls::TlsError).
    pub async fn connect(&self) -> Result<(Client, Connection), Error> {
        self.attempt().await.map_err(|Failed { error, .. }| error)
    }

    /// The same, with more about the reason.
    pub(super) async fn attempt(&self) -> Result<(Client, Connection), Failed> {
        let until = Instant::now() + self.patience();
        let renewed;
        let driver = match &self.credentials {
            Some(credentials) => {
                // Their file may lie where nothing answers.
                let Ok(on) = timeout_at(until, credentials.on(&self.driver)).await else {
                    return Err(Failed::silent().await);
                };
                renewed = on;
                &renewed
            }
            None => &self.driver,
        };
        let attempt = Attempt {
            driver,
            tls: &self.tls,
            silent: &self.silent,
            until,
            most_per_host: self.each.unwrap_or(Duration::MAX),
        };
        attempt.connect().await
    }

    /// Asks the server to end what the token's connection is at, over a connection secured like it.
    ///
    /// # Errors
    /// Where the server was not reached.
    pub async fn cancel(&self, token: &CancelToken) -> Result<(), Error> {
        token.cancel_query(self.tls.anew()).await
    }
}

/// For a pool: its settings are those of this database, which it was made with.
impl deadpool_postgres::Connect for Database {
    fn connect(
        &self,
        _settings: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(async move {
            let (client, connection) = Database::connect(self).await?;
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "a pooled connection ended");
                }
            });
            Ok((client, task))
        })
    }
}

impl FromStr for Database {
    type Err = ConnectionStringError;

    fn from_str(string: &str) -> Result<Self, Self::Err> {
        Self::new(string, SslParameters::default())
    }
}

/// With the mode that the driver's settings name.
impl From<Config> for Database {
    fn from(driver: Config) -> Self {
        let mode = match driver.get_ssl_mode() {
            tokio_postgres::config::SslMode::Disable => SslMode::Disable,
            tokio_postgres::config::SslMode::Require => SslMode::Require,
            _ => SslMode::Prefer,
        };
        let ssl = SslParameters {
            mode: Some(mode),
            ..SslParameters::default()
        };
        Self::secured(driver, ssl)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use tokio_postgres::config::SslMode as Driver;

    use super::super::attempt::is_silence;
    use super::*;

    #[test]
    fn the_driver_is_told_what_it_knows_of_the_mode_and_a_unix_socket_stays_plain() {
        for (string, mode) in [
            ("postgres://db", Driver::Prefer),
            ("postgres://db?sslmode=disable", Driver::Disable),
            ("postgres://db?sslmode=require", Driver::Require),
            ("postgres://db?sslmode=verify-full", Driver::Require),
            (
                "postgres://%2Frun%2Fpg/app?sslmode=verify-full",
                Driver::Disable,
            ),
            ("host=/run/pg,db sslmode=require", Driver::Require),
            ("hostaddr=127.0.0.1 sslmode=require", Driver::Require),
        ] {
            let database: Database = string.parse().unwrap();
            assert_eq!(database.driver().get_ssl_mode(), mode, "{string}");
        }
    }

    #[test]
    fn an_address_without_a_name_is_its_own_name() {
        let database: Database = "hostaddr=127.0.0.1,::1 port=1".parse().unwrap();
        let hosts = ["127.0.0.1", "::1"].map(|host| Host::Tcp(host.to_owned()));
        assert_eq!(database.driver().get_hosts(), hosts);
    }

    #[tokio::test]
    async fn a_silent_server_that_is_named_by_its_address_alone_takes_no_longer_than_the_patience()
    {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let string = format!("hostaddr=127.0.0.1,127.0.0.1 port={port} user=nobody");
        let patience = Duration::from_millis(200);
        let database = string.parse::<Database>().unwrap().within(patience);
        let failed = timeout(20 * patience, database.attempt()).await.unwrap();
        assert!(is_silence(&failed.map(drop).unwrap_err().error));
        // Both were asked.
        for _ in 0..2 {
            timeout(patience, silent.accept()).await.unwrap().unwrap();
        }
    }

    #[test]
    fn connecting_takes_what_the_connection_string_allows_each_host_unless_the_caller_has_less() {
        let patience = |string: &str| string.parse::<Database>().unwrap().patience();
        let seconds = Duration::from_secs;
        assert_eq!(patience("host=a,b"), PATIENCE);
        assert_eq!(patience("host=a,b connect_timeout=7"), seconds(14));
        assert_eq!(
            patience("hostaddr=127.0.0.1,::1 connect_timeout=7"),
            seconds(14)
        );
        let told: Database = "host=a connect_timeout=7".parse().unwrap();
        assert_eq!(told.within(seconds(2)).patience(), seconds(2));
        assert_eq!(told.within_unless_told(seconds(2)).patience(), seconds(7));
        let untold: Database = "host=a".parse().unwrap();
        assert_eq!(untold.within_unless_told(seconds(2)).patience(), seconds(2));
    }

    #[test]
    fn settings_of_the_driver_keep_their_mode() {
        let mut driver = Config::new();
        driver.host("db").ssl_mode(Driver::Require);
        assert_eq!(
            Database::from(driver).driver().get_ssl_mode(),
            Driver::Require
        );
    }
}
