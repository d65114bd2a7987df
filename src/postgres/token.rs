//! Access tokens of the HTTP API.
//!
//! A token is `lk_ID_SECRET`: the number of its row, and 64 characters of which Postgres keeps only the SHA-256.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use lanekeeper_core::bucket::{Rate, RateError};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::StoreError;

const PREFIX: &str = "lk_";
/// Two version 4 UUIDs, in hexadecimal.
const SECRET_LEN: usize = 64;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Append events.
    Produce,
    /// Read logs and states.
    Read,
    /// What operators do.
    Operate,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

/// A token as its holder has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    token_id: i64,
    secret: String,
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_***", self.token_id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a token of Lanekeeper: they look like lk_7_0123456789abcdef…")]
pub struct NotAToken;

impl FromStr for Bearer {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let (id, secret) = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('_'))
            .ok_or(NotAToken)?;
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let token_id = Some(id)
            .filter(|id| plain(id))
            .and_then(|id| id.parse().ok())
            .ok_or(NotAToken)?;
        if secret.len() != SECRET_LEN || !secret.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotAToken);
        }
        Ok(Self {
            token_id,
            secret: secret.to_owned(),
        })
    }
}

impl Bearer {
    pub fn token_id(&self) -> i64 {
        self.token_id
    }

    /// The whole token, to be shown once.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.token_id, self.secret)
    }
}

fn hash(secret: &str) -> Vec<u8> {
    Sha256::digest(secret.as_bytes()).to_vec()
}

/// What a new token is to be.
#[derive(Clone, Debug)]
pub struct NewToken<'a> {
    pub name: &'a str,
    pub scopes: &'a [Scope],
    /// `None`: every stream, though none may append to [`RESERVED_STREAM`](super::append::RESERVED_STREAM).
    pub streams: Option<&'a [String]>,
    /// Names of sessions; one that ends with `*` stands for all that begin so. `None`: every session.
    pub sessions: Option<&'a [String]>,
    /// Requests; `None`: as many as the server takes.
    pub rate: Option<Rate>,
    /// Seconds from now; `None`: never.
    pub expires_in_s: Option<i64>,
}

/// Makes a token. Its secret is nowhere but in what is returned.
///
/// # Errors
/// Nothing was made; `is_name_taken` tells whether the name is in use.
pub async fn create(
    client: &impl GenericClient,
    new: &NewToken<'_>,
) -> Result<(Bearer, Option<Timestamp>), StoreError> {
    let secret = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let scopes: Vec<&str> = new.scopes.iter().map(|scope| scope.as_str()).collect();
    let rate = new.rate.map(|rate| rate.to_string());
    let row = client
        .query_typed_one(
            include_str!("sql/token_create.sql"),
            &[
                (&new.name, Type::TEXT),
                (&hash(&secret), Type::BYTEA),
                (&scopes, Type::TEXT_ARRAY),
                (&new.streams, Type::TEXT_ARRAY),
                (&rate, Type::TEXT),
                (&new.expires_in_s, Type::INT8),
                (&new.sessions, Type::TEXT_ARRAY),
            ],
        )
        .await;
    row.and_then(|row| {
        let bearer = Bearer {
            token_id: row.try_get("token_id")?,
            secret,
        };
        Ok((bearer, row.try_get("expires_at")?))
    })
    .map_err(StoreError::on("making the token"))
}

/// A token as operators see it.
#[derive(Clone, Debug, Serialize)]
pub struct TokenView {
    pub token_id: i64,
    pub name: String,
    pub scopes: Vec<String>,
    pub streams: Option<Vec<String>>,
    pub sessions: Option<Vec<String>>,
    pub rate: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// Every token, revoked ones included.
///
/// # Errors
/// Where they cannot be read.
pub async fn list(client: &impl GenericClient) -> Result<Vec<TokenView>, StoreError> {
    let view = |row: &Row| {
        Ok(TokenView {
            token_id: row.try_get("token_id")?,
            name: row.try_get("name")?,
            scopes: row.try_get("scopes")?,
            streams: row.try_get("streams")?,
            sessions: row.try_get("sessions")?,
            rate: row.try_get("rate")?,
            created_at: row.try_get("created_at")?,
            expires_at: row.try_get("expires_at")?,
            revoked_at: row.try_get("revoked_at")?,
        })
    };
    let rows = client.query_typed(include_str!("sql/token_list.sql"), &[]);
    let rows = rows.await.map_err(StoreError::on("reading the tokens"))?;
    rows.iter()
        .map(view)
        .collect::<Result<_, tokio_postgres::Error>>()
        .map_err(StoreError::on("reading the tokens"))
}

/// Ends a token. Whether there was one of that name.
///
/// # Errors
/// It goes on.
pub async fn revoke(client: &impl GenericClient, name: &str) -> Result<bool, StoreError> {
    let statement = include_str!("sql/token_revoke.sql");
    let revoked = client
        .query_typed(statement, &[(&name, Type::TEXT)])
        .await
        .map_err(StoreError::on("revoking the token"))?;
    Ok(!revoked.is_empty())
}

/// What a token that was found to be good allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub token_id: i64,
    pub name: String,
    scopes: Vec<String>,
    streams: Option<Vec<String>>,
    sessions: Option<Vec<String>>,
    /// An error where the row has one that is none: it stands for no rate at all.
    pub rate: Result<Option<Rate>, RateError>,
    /// By Postgres' clock.
    pub has_expired: bool,
    /// Milliseconds until it expires, by Postgres' clock when the row was read; `None`: never.
    pub expires_in_ms: Option<i64>,
    hash: Vec<u8>,
}

impl Grant {
    /// Whether it is this token's. Takes the same time wherever they differ.
    pub fn is_of(&self, bearer: &Bearer) -> bool {
        hash(&bearer.secret).ct_eq(&self.hash).into()
    }

    /// As whom its holder appends: what streams name among their producers.
    pub fn producer(&self) -> String {
        format!("token {}", self.name)
    }

    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|has| has == scope.as_str())
    }

    /// The streams that it is good for; `None`: all.
    pub fn streams(&self) -> Option<&[String]> {
        self.streams.as_deref()
    }

    /// Whether it is good for a stream.
    pub fn reaches(&self, stream: &str) -> bool {
        self.streams
            .as_ref()
            .is_none_or(|streams| streams.iter().any(|has| has == stream))
    }

    /// Whether it is good for every session of its streams.
    pub fn reaches_all_sessions(&self) -> bool {
        self.sessions.is_none()
    }

    /// Whether it is good for a session of its streams.
    pub fn reaches_session(&self, session: &str) -> bool {
        self.sessions.as_ref().is_none_or(|sessions| {
            sessions.iter().any(|has| match has.strip_suffix('*') {
                Some(prefix) => session.starts_with(prefix),
                None => has == session,
            })
        })
    }
}

/// The grant of a token's row, where it is not revoked. Whether it has expired, and whether it is the bearer's, is
/// for the caller to see, with [`Grant::is_of`].
///
/// # Errors
/// Where it cannot be read.
pub async fn find(client: &impl GenericClient, token_id: i64) -> Result<Option<Grant>, StoreError> {
    let statement = include_str!("sql/token_find.sql");
    let rows = client
        .query_typed(statement, &[(&token_id, Type::INT8)])
        .await
        .map_err(StoreError::on("reading a token"))?;
    let grant = |row: &Row| {
        let rate: Option<&str> = row.try_get("rate")?;
        Ok(Grant {
            token_id: row.try_get("token_id")?,
            name: row.try_get("name")?,
            scopes: row.try_get("scopes")?,
            streams: row.try_get("streams")?,
            sessions: row.try_get("sessions")?,
            rate: rate.map(str::parse).transpose(),
            has_expired: row.try_get("has_expired")?,
            expires_in_ms: row.try_get("expires_in_ms")?,
            hash: row.try_get("hash")?,
        })
    };
    rows.first()
        .map(grant)
        .transpose()
        .map_err(StoreError::on("reading a token"))
}

/// Whether tokens are in use at all.
///
/// # Errors
/// Where it cannot be read.
pub async fn any(client: &impl GenericClient) -> Result<bool, StoreError> {
    client
        .query_typed_one(include_str!("sql/token_any.sql"), &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("looking for tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(token_id: i64) -> Bearer {
        Bearer {
            token_id,
            secret: "0123456789abcdef".repeat(4),
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_shown_and_never_printed() {
        let token = bearer(7);
        assert_eq!(token.reveal().parse(), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), "lk_7_***");
    }

    #[test]
    fn what_is_no_token_is_refused_before_anything_is_asked_of_postgres() {
        let secret = "0123456789abcdef".repeat(4);
        for bad in [
            "".to_owned(),
            "lk_".to_owned(),
            format!("7_{secret}"),
            format!("lk_-7_{secret}"),
            format!("lk_+7_{secret}"),
            format!("lk_7_{}", &secret[1..]),
            format!("lk_7_{secret}0"),
            format!("lk_7_{}g", &secret[1..]),
            format!("lk_99999999999999999999_{secret}"),
        ] {
            assert_eq!(bad.parse::<Bearer>(), Err(NotAToken), "{bad}");
        }
    }

    #[test]
    fn only_the_whole_secret_is_the_tokens() {
        let good = bearer(7);
        let grant = Grant {
            token_id: 7,
            name: "ci".to_owned(),
            scopes: vec!["produce".to_owned()],
            streams: Some(vec!["runs".to_owned()]),
            sessions: Some(vec!["r1".to_owned(), "t7-*".to_owned()]),
            rate: Ok(None),
            has_expired: false,
            expires_in_ms: None,
            hash: hash(&good.secret),
        };
        assert!(grant.is_of(&good));
        let mut other = good.clone();
        other.secret.replace_range(63..64, "0");
        assert!(!grant.is_of(&other));
        assert!(grant.has(Scope::Produce) && !grant.has(Scope::Read));
        assert!(grant.reaches("runs") && !grant.reaches("hooks"));
        assert!(grant.reaches_session("r1") && grant.reaches_session("t7-x"));
        assert!(!grant.reaches_session("r10") && !grant.reaches_session("t70-x"));
        assert!(!grant.reaches_all_sessions());
    }
}
