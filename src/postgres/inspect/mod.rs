//! What people inspect: subscriptions, workers, lanes, sessions, dead letters.
//!
//! Every read is bounded, and none reads the backlog or the idle lanes; the statements' headers say what each one
//! reads. They run under [`begin`], which keeps the planner on the right indexes whatever the statistics are. Rows
//! serialise as the JSON that commands print, so their field names are stable.

mod dead_letter;
mod delivery;
mod find;
mod foreign_lock;
mod lane;
mod registry;
mod search;
mod session;
mod stalled;
mod status;
mod subscription;
mod timeline;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Row, Transaction};

use super::StoreError;

pub use dead_letter::{
    DeadLetter, DeadLetterFilter, DeadLetterPage, Letter, Since, dead_letter_excerpt,
    dead_letter_page, dead_letters, dead_letters_by_id, letters, waiting_dead_letters,
};
pub use delivery::{Deliveries, Delivery, DeliveryState, WorkerCounts, WorkerReport, deliveries};
pub use find::{FindError, find_session, find_stream, find_streams, find_subscription};
pub use foreign_lock::{ForeignLock, foreign_locks};
pub use lane::{
    LaneFilter, LanePlace, LaneStatus, NoSuchPlace, active_lanes, lanes, lanes_of_session,
};
pub use registry::{RegistryEntry, RegistryFilter, TurnState, registered};
pub use search::{Place, search_message, search_session};
pub use session::{SessionStatus, Stretch, session_page, sessions};
pub use stalled::{Stalled, StalledState, stalled};
pub use status::{
    LANES_LOOKED_AT, LaneCounts, SubscriptionStatus, WorkerStatus, glance, glance_at, status,
    workers,
};
pub use subscription::{SubscriptionSummary, subscription_page, subscriptions};
pub use timeline::{Excerpt, Fate, TimelineEvent, excerpt, fates, timeline};

const BEGIN: &str = "
    SET LOCAL enable_seqscan = off;
    SET LOCAL enable_bitmapscan = off;
    SET LOCAL enable_hashjoin = off;
    SET LOCAL enable_mergejoin = off;
    SET LOCAL jit = off;
    SET LOCAL statement_timeout = '30s'";

/// A read-only transaction for the functions of this module. Short: drop it before anything slow.
///
/// # Errors
/// Where the server does not answer.
pub async fn begin(client: &mut Client) -> Result<Transaction<'_>, StoreError> {
    let transaction = client
        .build_transaction()
        .read_only(true)
        .start()
        .await
        .map_err(StoreError::on("beginning to read"))?;
    transaction
        .batch_execute(BEGIN)
        .await
        .map_err(StoreError::on("beginning to read"))?;
    Ok(transaction)
}

/// Rows of an unnamed statement, each read by `from_row`.
async fn read<T>(
    client: &impl GenericClient,
    operation: &'static str,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
    from_row: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, StoreError> {
    client
        .query_typed(statement, parameters)
        .await
        .and_then(|rows| rows.iter().map(from_row).collect())
        .map_err(StoreError::on(operation))
}
