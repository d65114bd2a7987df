//! A connection string of PostgreSQL, with what the driver does not know: how the connection is
//! secured, in libpq's words.
//!
//! `sslmode`, `sslrootcert`, `sslcert` and `sslkey` are taken out, of a URL's query or of a string
//! of `key=value`; everything else is the driver's to read, and to refuse.

use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_postgres::Config;

mod hosts;

pub use hosts::servers;

/// How much of TLS is asked for, as in libpq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never.
    Disable,
    /// Where the server offers it, trusting whatever certificate it shows.
    #[default]
    #[serde(alias = "allow")]
    Prefer,
    /// Always, trusting whatever certificate it shows; with root certificates as `VerifyCa`.
    Require,
    /// Always, with a certificate that a given root signed.
    VerifyCa,
    /// Like `VerifyCa`, and the certificate is for the host that was asked for.
    VerifyFull,
}

impl SslMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

impl FromStr for SslMode {
    type Err = ConnectionStringError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "disable" => Self::Disable,
            // Plain first would be the weaker half of it.
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return Err(ConnectionStringError::UnknownMode),
        })
    }
}

/// What a server's certificate is judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootCertificates {
    /// Those of the operating system.
    System,
    /// PEM.
    File(PathBuf),
}

impl From<PathBuf> for RootCertificates {
    fn from(path: PathBuf) -> Self {
        match path.to_str() {
            Some("system") => Self::System,
            _ => Self::File(path),
        }
    }
}

/// How connections are secured, as far as somebody said so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SslParameters {
    pub mode: Option<SslMode>,
    pub root: Option<RootCertificates>,
    /// The client's certificate and those that lead to its root, PEM.
    pub cert: Option<PathBuf>,
    /// Its key, PEM, not encrypted.
    pub key: Option<PathBuf>,
}

impl SslParameters {
    /// These, with `others` for what they leave open.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            mode: self.mode.or(others.mode),
            root: self.root.or(others.root),
            cert: self.cert.or(others.cert),
            key: self.key.or(others.key),
        }
    }

    /// # Errors
    /// Where they promise what they cannot keep.
    pub fn check(&self) -> Result<(), ConnectionStringError> {
        match (self.mode, &self.root) {
            (Some(SslMode::VerifyFull) | None, Some(RootCertificates::System)) => {}
            (Some(SslMode::Disable), Some(RootCertificates::System)) => {}
            (_, Some(RootCertificates::System)) => {
                return Err(ConnectionStringError::WeakForSystem);
            }
            (Some(SslMode::VerifyCa), None) => return Err(ConnectionStringError::NoRoot),
            _ => {}
        }
        match (&self.cert, &self.key) {
            (Some(_), None) | (None, Some(_)) => Err(ConnectionStringError::HalfClientCertificate),
            _ => Ok(()),
        }
    }

    fn set(&mut self, key: &str, value: String) -> Result<bool, ConnectionStringError> {
        match key {
            "sslmode" => self.mode = Some(value.parse()?),
            "sslrootcert" => self.root = Some(PathBuf::from(value).into()),
            "sslcert" => self.cert = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Names options, never their values: one of them may be a password.
#[derive(Debug, Error)]
pub enum ConnectionStringError {
    #[error("it is no connection string of PostgreSQL")]
    Driver(#[source] tokio_postgres::Error),
    #[error("sslmode must be disable, prefer, require, verify-ca or verify-full")]
    UnknownMode,
    #[error(
        "sslrootcert=system goes with sslmode=verify-full only: anybody has a certificate that the system trusts"
    )]
    WeakForSystem,
    #[error("sslmode=verify-ca needs sslrootcert, the file with the root certificate")]
    NoRoot,
    #[error("sslcert and sslkey go together")]
    HalfClientCertificate,
    #[error("the query has an escape that is not UTF-8")]
    Escape,
    #[error("a URL of PostgreSQL begins with postgres:// or postgresql://")]
    Scheme,
    #[error(
        "it is neither a URL nor words such as host=db: write postgres://USER@HOST:5432/DATABASE"
    )]
    NoUrl,
    #[error("it names no host: write postgres://USER@HOST:5432/DATABASE")]
    NoHost,
}

/// What a connection string says.
#[derive(Clone, Debug)]
pub struct ConnectionString {
    /// Without its `sslmode`, which is among the parameters.
    pub driver: Config,
    pub ssl: SslParameters,
}

impl FromStr for ConnectionString {
    type Err = ConnectionStringError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, ssl) = match query(text) {
            Some((before, query)) => split_query(before, query)?,
            None if is_url(text) => (text.to_owned(), SslParameters::default()),
            None => split_words(text)?,
        };
        let driver: Config = rest
            .parse()
            .map_err(|error| misread(text).unwrap_or(ConnectionStringError::Driver(error)))?;
        if hosts::are_absent(&driver) {
            return Err(ConnectionStringError::NoHost);
        }
        Ok(Self { driver, ssl })
    }
}

/// What a text that the driver refuses was probably meant to be: it says only at which character it stopped.
fn misread(text: &str) -> Option<ConnectionStringError> {
    match text.split_once("://") {
        Some((scheme, _)) if !is_url(text) && !scheme.contains(['=', ' ']) => {
            Some(ConnectionStringError::Scheme)
        }
        None if !text.contains('=') => Some(ConnectionStringError::NoUrl),
        _ => None,
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// A URL's text up to its query, and the query; found as the driver finds it, since a password may
/// have a question mark.
fn query(text: &str) -> Option<(&str, &str)> {
    if !is_url(text) {
        return None;
    }
    let after_credentials = text.find('@').map_or(0, |at| at + 1);
    let mark = after_credentials + text[after_credentials..].find('?')?;
    Some((&text[..mark], &text[mark + 1..]))
}

fn split_query(
    before: &str,
    query: &str,
) -> Result<(String, SslParameters), ConnectionStringError> {
    let mut ssl = SslParameters::default();
    let mut rest = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text| {
            percent_decode_str(text)
                .decode_utf8()
                .map_err(|_| ConnectionStringError::Escape)
        };
        let is_ours = decoded(key)?.starts_with("ssl")
            && ssl.set(&decoded(key)?, decoded(value)?.into_owned())?;
        if !is_ours {
            rest.push(pair);
        }
    }
    let rest = match rest.join("&") {
        rest if rest.is_empty() => before.to_owned(),
        rest => format!("{before}?{rest}"),
    };
    Ok((rest, ssl))
}

/// Of `key = value` or `key = 'value'`, with backslashes before what would end a value.
fn split_words(text: &str) -> Result<(String, SslParameters), ConnectionStringError> {
    let mut ssl = SslParameters::default();
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((key, value, after)) = word(rest) {
        if !ssl.set(key, value)? {
            kept.push_str(&rest[..rest.len() - after.len()]);
        }
        rest = after;
    }
    // What is no word is the driver's to refuse.
    kept.push_str(rest);
    Ok((kept, ssl))
}

/// The first word of a text: its key, its value, and what follows it.
fn word(text: &str) -> Option<(&str, String, &str)> {
    let (key, after) = text.split_once('=')?;
    let after = after.trim_start();
    let (quoted, after) = match after.strip_prefix('\'') {
        Some(after) => (true, after),
        None => (false, after),
    };
    let mut value = String::new();
    let mut chars = after.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\'' if quoted => return Some((key.trim(), value, &after[at + 1..])),
            _ if !quoted && char.is_whitespace() => return Some((key.trim(), value, &after[at..])),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => value.push(char),
        }
    }
    (!quoted && !value.is_empty()).then_some((key.trim(), value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ConnectionString {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    fn full() -> SslParameters {
        SslParameters {
            mode: Some(SslMode::VerifyFull),
            root: Some(RootCertificates::File("/etc/a b.pem".into())),
            cert: Some("c".into()),
            key: Some("k".into()),
        }
    }

    #[test]
    fn what_secures_a_connection_is_taken_out_of_urls_and_of_words() {
        for text in [
            "postgres://me:a%3Fb@db:6000/app?sslmode=verify-full&application_name=x&sslrootcert=/etc/a%20b.pem&sslcert=c&sslkey=k",
            "postgresql://me:a?b@db:6000/app?sslkey=k&sslcert=c&ssl%72ootcert=%2Fetc%2Fa%20b.pem&sslmode=verify-full&application_name=x",
            r"host=db port = 6000 user=me password='a?b' dbname=app sslmode=verify-full sslrootcert='/etc/a b.pem' sslcert=c sslkey =k application_name=x",
            r"sslrootcert=/etc/a\ b.pem sslcert=c sslkey='k' sslmode = 'verify-full' application_name=x host=db port=6000 user=me password=a\?b dbname=app",
        ] {
            let ConnectionString { driver, ssl } = parsed(text);
            assert_eq!(ssl, full(), "{text}");
            assert_eq!(driver.get_user(), Some("me"), "{text}");
            assert_eq!(driver.get_password(), Some(&b"a?b"[..]), "{text}");
            assert_eq!(driver.get_dbname(), Some("app"), "{text}");
            assert_eq!(driver.get_ports(), [6000], "{text}");
            assert_eq!(driver.get_application_name(), Some("x"), "{text}");
        }
    }

    #[test]
    fn a_text_that_says_nothing_of_tls_is_left_as_it_is() {
        for text in [
            "postgres://me@db/app",
            "postgres://db?application_name=x",
            "host=db user=me",
            "host=/run/pg dbname='it''s'",
        ] {
            let split = text.parse::<ConnectionString>();
            let alone = text.parse::<tokio_postgres::Config>();
            assert_eq!(split.is_ok(), alone.is_ok(), "{text}");
            if let (Ok(split), Ok(alone)) = (split, alone) {
                assert_eq!(split.driver, alone);
                assert_eq!(split.ssl, SslParameters::default());
            }
        }
    }

    #[test]
    fn what_the_driver_does_not_know_is_refused_with_its_name_and_without_its_value() {
        use std::error::Error as _;
        for text in [
            "postgres://me:hunter2@db/app?sslcrl=hunter2",
            "host=db password=hunter2 sslcrl=hunter2",
        ] {
            let error = text.parse::<ConnectionString>().unwrap_err();
            let mut told = error.to_string();
            let mut cause = error.source();
            while let Some(deeper) = cause {
                told = format!("{told}: {deeper}");
                cause = deeper.source();
            }
            assert!(
                told.contains("sslcrl") && !told.contains("hunter2"),
                "{told}"
            );
        }
        assert!(
            "postgres://db?sslmode=full"
                .parse::<ConnectionString>()
                .is_err()
        );
        assert!(
            "host=db sslmode='verify-full"
                .parse::<ConnectionString>()
                .is_err()
        );
        assert!("host=db sslmode=".parse::<ConnectionString>().is_err());
    }

    #[test]
    fn promises_that_cannot_be_kept_are_refused() {
        let of = |text: &str| parsed(text).ssl.check();
        for text in [
            "host=db sslmode=verify-ca",
            "host=db sslmode=verify-ca sslrootcert=system",
            "host=db sslmode=prefer sslrootcert=system",
            "host=db sslcert=c",
            "host=db sslkey=k",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
        for text in [
            "host=db",
            "host=db sslmode=verify-full",
            "host=db sslmode=verify-full sslrootcert=system",
            "host=db sslmode=verify-ca sslrootcert=/ca.pem",
            "host=db sslmode=require sslrootcert=/ca.pem",
            "host=db sslmode=allow",
        ] {
            assert!(of(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_connection_string_is_stronger_than_what_is_set_beside_it() {
        let beside = SslParameters {
            mode: Some(SslMode::Disable),
            root: Some(RootCertificates::System),
            ..SslParameters::default()
        };
        let ssl = parsed("host=db sslmode=verify-full").ssl.or(beside);
        assert_eq!(ssl.mode, Some(SslMode::VerifyFull));
        assert_eq!(ssl.root, Some(RootCertificates::System));
    }

    proptest::proptest! {
        /// Nothing of the driver's grammar is changed by looking for our own words.
        #[test]
        fn any_text_is_taken_or_refused_as_by_the_driver_alone(text in ".{0,60}") {
            if let Ok(split) = text.parse::<ConnectionString>()
                && split.ssl == SslParameters::default()
            {
                let alone = text.parse::<tokio_postgres::Config>();
                proptest::prop_assert_eq!(alone.ok(), Some(split.driver));
            }
        }
    }
}
