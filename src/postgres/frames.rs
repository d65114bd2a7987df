//! What the receiver of frames asks: when a stream acknowledges, what was handled, and whose acknowledgements count.

use lanekeeper_core::subscription::FrameAcknowledge;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::StoreError;
use super::subscription::acknowledge;

/// When a stream acknowledges frames; `None`: there is no such stream.
///
/// # Errors
/// Where it cannot be read.
pub async fn inbox(
    client: &impl GenericClient,
    stream: &str,
) -> Result<Option<FrameAcknowledge>, StoreError> {
    let operation = "looking up the stream of a frame";
    let rows = client
        .query_typed(
            include_str!("sql/frame_inbox.sql"),
            &[(&stream, Type::TEXT)],
        )
        .await
        .map_err(StoreError::on(operation))?;
    let found = rows.first().map(acknowledge).transpose();
    found.map_err(StoreError::on(operation))
}

/// Which of these events of a session, each with its type, were handled by all that get them.
///
/// # Errors
/// Where it cannot be read.
pub async fn handled(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
    events: &[(i64, &str)],
) -> Result<Vec<i64>, StoreError> {
    let (seqs, types): (Vec<i64>, Vec<&str>) = events.iter().copied().unzip();
    let rows = client
        .query_typed(
            include_str!("sql/frame_handled.sql"),
            &[
                (&stream, Type::TEXT),
                (&session, Type::TEXT),
                (&seqs, Type::INT8_ARRAY),
                (&types, Type::TEXT_ARRAY),
            ],
        )
        .await
        .map_err(StoreError::on("asking what was handled"))?;
    Ok(rows.iter().map(|row| row.get("seq")).collect())
}

/// The subscriptions that send to the holder of the access token of this name; `None`: to any peer.
///
/// # Errors
/// Where they cannot be read.
pub async fn sent_to(
    client: &impl GenericClient,
    token: Option<&str>,
) -> Result<Vec<String>, StoreError> {
    let rows = client
        .query_typed(include_str!("sql/frame_peer.sql"), &[(&token, Type::TEXT)])
        .await
        .map_err(StoreError::on("looking up what is sent to a peer"))?;
    Ok(rows.iter().map(|row| row.get("name")).collect())
}
