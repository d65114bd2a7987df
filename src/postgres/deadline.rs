//! Appends with a deadline.
//!
//! A statement that runs past its deadline is cancelled if possible: backends that wait for a session's append lock
//! must not pile up behind hook calls. The outcome of a cancelled append stays unknown. Its message id makes a
//! repetition safe.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Client;

use super::Database;
use super::append::AppendError;

/// How long a cancel request may take on top of the deadline that was missed: a connection of its
/// own, with a TLS handshake where the first had one.
const CANCEL_WAIT: Duration = Duration::from_millis(200);

/// Awaits a call on a connection until its deadline, and has the server give it up then.
///
/// # Errors
/// The call's own, and [`AppendError::TimedOut`].
pub async fn within<T>(
    client: &Client,
    database: &Database,
    deadline: Instant,
    call: impl Future<Output = Result<T, AppendError>>,
) -> Result<T, AppendError> {
    match timeout_at(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => {
            let cancel = client.cancel_token();
            let _ = timeout(CANCEL_WAIT, database.cancel(&cancel)).await;
            Err(AppendError::TimedOut)
        }
    }
}
