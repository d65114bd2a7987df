//! Gives the lanes of replays their turns, while there is a replay. One worker does it at a time, under an advisory lock; the
//! protocol stands in `migrations/functions/replay/feed_replays.sql`.
//!
//! | failure | what happens |
//! |---|---|
//! | this worker stops or dies | another begins at its next poll floor; lanes that have their turn go on meanwhile |
//! | Postgres does not answer | the next poll floor begins again |

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::replay::{self, Turn};
use tokio::time::{sleep, timeout};

use crate::shared::Shared;

/// Between two turns.
const EVERY: Duration = Duration::from_millis(100);
/// The same while lanes begin: those with few events come to their end within that, and others are to follow.
const EVERY_BEGUN: Duration = Duration::from_millis(10);
/// The time-out of a turn.
const TIMEOUT: Duration = Duration::from_secs(10);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs until nothing is left to do, or the worker stops.
pub async fn run(shared: Arc<Shared>) {
    while !shared.stopping.is_cancelled() {
        let turn = timeout(TIMEOUT, turn(&shared)).await;
        let pause = match turn.unwrap_or_else(|silent| Err(silent.into())) {
            Ok(Turn { unfinished: 0, .. }) => return,
            Ok(Turn { begun: 0, .. }) => EVERY,
            Ok(_) => EVERY_BEGUN,
            Err(error) => {
                tracing::warn!(
                    error = &*error,
                    "replays could not be gone on with; it is tried again, and lanes that are replayed continue"
                );
                return;
            }
        };
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

async fn turn(shared: &Shared) -> Result<Turn, Failure> {
    let client = shared.pool.get().await?;
    Ok(replay::feed(&**client).await?)
}
