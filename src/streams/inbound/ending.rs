//! Ends connections that have a source's lock and do not answer.

use deadpool_postgres::Pool;
use lanekeeper_postgres::lane_connection::{self, Backend};
use tokio::time::timeout;

use super::ANSWER_WITHIN;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Tells backends to end. They are told again with the next look if they are still there.
pub(super) async fn end(pool: &Pool, backends: &[Backend]) {
    let ending = async {
        let client = pool.get().await?;
        lane_connection::end(&**client, backends).await?;
        Ok::<_, Failure>(())
    };
    if let Ok(Err(error)) = timeout(ANSWER_WITHIN, ending).await {
        tracing::debug!(
            error = &*error,
            "a connection could not be ended; it is tried again"
        );
    }
}
