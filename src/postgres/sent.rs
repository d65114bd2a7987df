//! Messages that were sent and wait for acknowledgements, and acknowledging them.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::StoreError;

/// What came of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acked {
    Acked,
    AlreadyAcked,
    /// Nothing waits for it. No error: it may have come too late.
    Unknown,
}

impl Acked {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::AlreadyAcked => "already_acked",
            Self::Unknown => "unknown",
        }
    }
}

/// Acknowledges messages, of these streams or of all, for all subscriptions that sent them or for one; each with what came of
/// it, in the order given.
///
/// # Errors
/// None was acknowledged.
pub async fn ack_many(
    client: &impl GenericClient,
    message_ids: &[Uuid],
    subscription: Option<&str>,
    streams: Option<&[String]>,
) -> Result<Vec<(Uuid, Acked)>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/ack_many.sql"),
            &[
                (&message_ids, Type::UUID_ARRAY),
                (&subscription, Type::TEXT),
                (&streams, Type::TEXT_ARRAY),
            ],
        )
        .await
        .map_err(StoreError::on("acknowledging messages"))?;
    let acked = |row: &Row| {
        let acked = match row.get("result") {
            "acked" => Acked::Acked,
            "already_acked" => Acked::AlreadyAcked,
            _ => Acked::Unknown,
        };
        (row.get("message_id"), acked)
    };
    Ok(rows.iter().map(acked).collect())
}

/// The messages of a lane behind its cursor that were sent, each with whether it is acknowledged.
///
/// # Errors
/// Where they cannot be read.
pub async fn of_lane(
    client: &impl GenericClient,
    lane_id: i64,
    cursor: i64,
) -> Result<Vec<(i64, bool)>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/sent_of_lane.sql"),
            &[(&lane_id, Type::INT8), (&cursor, Type::INT8)],
        )
        .await
        .map_err(StoreError::on("reading what waits for acknowledgements"))?;
    Ok(rows
        .iter()
        .map(|row| (row.get("seq"), row.get("acked")))
        .collect())
}

/// Enters a message before it is sent, so that its acknowledgement finds it however soon it comes. Returns whether it is
/// acknowledged already.
///
/// # Errors
/// It must not be sent.
pub async fn enter(
    client: &impl GenericClient,
    lane_id: i64,
    seq: i64,
    message_id: Uuid,
) -> Result<bool, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/sent_enter.sql"),
            &[
                (&message_id, Type::UUID),
                (&lane_id, Type::INT8),
                (&seq, Type::INT8),
            ],
        )
        .await
        .and_then(|row| row.try_get("acked"))
        .map_err(StoreError::on("entering a message that is to be sent"))
}

/// As [`enter`], for several messages of a lane with their seqs. Returns the seqs of those that are acknowledged already.
///
/// # Errors
/// None of them must be sent.
pub async fn enter_many(
    client: &impl GenericClient,
    lane_id: i64,
    messages: &[(i64, Uuid)],
) -> Result<Vec<i64>, StoreError> {
    let (seqs, ids): (Vec<i64>, Vec<Uuid>) = messages.iter().copied().unzip();
    let rows = client
        .query_typed(
            include_str!("sql/sent_enter_many.sql"),
            &[
                (&ids, Type::UUID_ARRAY),
                (&lane_id, Type::INT8),
                (&seqs, Type::INT8_ARRAY),
            ],
        )
        .await
        .map_err(StoreError::on("entering messages that are to be sent"))?;
    Ok(rows.iter().map(|row| row.get("seq")).collect())
}

/// The destination acknowledged a message in its answer, while earlier ones of its lane are not.
///
/// # Errors
/// It is sent again.
pub async fn remember(
    client: &impl GenericClient,
    lane_id: i64,
    message_id: Uuid,
) -> Result<(), StoreError> {
    client
        .query_typed(
            include_str!("sql/sent_remember.sql"),
            &[(&message_id, Type::UUID), (&lane_id, Type::INT8)],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("remembering an acknowledgement"))
}
