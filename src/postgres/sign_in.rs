//! Sign-ins at the dashboard. Postgres keeps them, so that every worker knows them, and only the hash of their random ids.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::StoreError;

/// Characters of an id: two version 4 UUIDs, in hexadecimal.
const LEN: usize = 64;

/// A new sign-in's id, which nothing but the browser gets to keep.
pub fn new_id() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Whether a text can be an id at all.
pub fn is_id(text: &str) -> bool {
    text.len() == LEN && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn hash(id: &str) -> Vec<u8> {
    Sha256::digest(id.as_bytes()).to_vec()
}

/// Remembers a sign-in of a token's holder for some time.
///
/// # Errors
/// It does not count.
pub async fn create(
    client: &impl GenericClient,
    id: &str,
    token_id: i64,
    lasts: Duration,
) -> Result<(), StoreError> {
    let lasts_s = i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX);
    client
        .execute_typed(
            include_str!("sql/sign_in_create.sql"),
            &[
                (&hash(id), Type::BYTEA),
                (&token_id, Type::INT8),
                (&lasts_s, Type::INT8),
            ],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("signing in"))
}

/// The token that signed in so, while the sign-in lasts. Whether the token is still good is for the caller to see.
///
/// # Errors
/// Where it cannot be read.
pub async fn find(client: &impl GenericClient, id: &str) -> Result<Option<i64>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/sign_in_find.sql"),
            &[(&hash(id), Type::BYTEA)],
        )
        .await
        .map_err(StoreError::on("reading a sign-in"))?;
    let token_id = rows.first().map(|row| row.try_get("token_id"));
    token_id
        .transpose()
        .map_err(StoreError::on("reading a sign-in"))
}

/// Ends a sign-in, for every worker.
///
/// # Errors
/// It may go on.
pub async fn end(client: &impl GenericClient, id: &str) -> Result<(), StoreError> {
    client
        .execute_typed(
            include_str!("sql/sign_in_end.sql"),
            &[(&hash(id), Type::BYTEA)],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("signing out"))
}
