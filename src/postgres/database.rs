//! Where the database is and how connections to it are secured: what every connection is made of.
//!
//! A Unix socket is never wrapped in TLS, whatever the mode: nothing is between it and the server.
//! With `sslmode=prefer` a handshake that fails, or a server that lets this user in only without
//! TLS, is followed by an attempt without, as libpq does it. Where the connection string or the password stands in a
//! file, each connection is made with the credentials that it has by then (`credentials`).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::str::FromStr;

use lanekeeper_secret::Secret;
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Config, Error, Socket};

use crate::connection::{ConnectionString, ConnectionStringError, SslMode, SslParameters};

use super::credentials::Credentials;
use super::tls::{Connector, Stream, TlsError};

/// What drives a client of [`Database::connect`].
pub type Connection = tokio_postgres::Connection<Socket, Stream>;

/// A database and the way to it.
#[derive(Clone, Debug)]
pub struct Database {
    driver: Config,
    tls: Connector,
    /// Where user and password may be replaced.
    credentials: Option<Credentials>,
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
            driver,
            tls,
            credentials: None,
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

    fn demands_tls(&self) -> bool {
        self.driver.get_ssl_mode() == tokio_postgres::config::SslMode::Require
    }

    /// # Errors
    /// The driver's. Where TLS is the reason, its source is a [`TlsError`].
    pub async fn connect(&self) -> Result<(Client, Connection), Error> {
        self.connect_by(&self.connector()).await
    }

    /// For [`Database::connect_by`], to be asked afterwards what came of TLS.
    pub(super) fn connector(&self) -> Connector {
        self.tls.anew()
    }

    pub(super) async fn connect_by(&self, tls: &Connector) -> Result<(Client, Connection), Error> {
        let driver = match &self.credentials {
            Some(credentials) => credentials.on(&self.driver).await,
            None => self.driver.clone(),
        };
        match driver.connect(tls.clone()).await {
            Err(error) if self.may_go_without(tls, &error) => {
                let mut plain = driver;
                plain.ssl_mode(tokio_postgres::config::SslMode::Disable);
                plain.connect(tls.clone()).await.map_err(|_| error)
            }
            connected => connected,
        }
    }

    /// Asks the server to end what the token's connection is at, over a connection secured like it.
    ///
    /// # Errors
    /// Where the server was not reached.
    pub async fn cancel(&self, token: &CancelToken) -> Result<(), Error> {
        token.cancel_query(self.tls.anew()).await
    }

    /// Whether an attempt ended because the server, which was reached, does not offer TLS.
    pub(super) fn lacked_tls(&self, tried: &Connector, error: &Error) -> bool {
        let is_io = std::error::Error::source(error).is_some_and(|cause| cause.is::<io::Error>());
        self.demands_tls()
            && !tried.was_used()
            && error.code().is_none()
            && !error.is_closed()
            && !is_io
    }

    fn may_go_without(&self, tried: &Connector, error: &Error) -> bool {
        let refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        self.driver.get_ssl_mode() == tokio_postgres::config::SslMode::Prefer
            && tried.was_used()
            && (refused || TlsError::of(error).is_some())
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
    use tokio_postgres::config::SslMode as Driver;

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

    #[test]
    fn settings_of_the_driver_keep_their_mode() {
        let mut driver = Config::new();
        driver.host("db").ssl_mode(Driver::Require);
        assert!(Database::from(driver).demands_tls());
    }
}
