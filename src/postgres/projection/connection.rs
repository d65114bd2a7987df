//! A connection that logged in as a projection's role, and the transactions on it.
//!
//! Nothing is prepared under a name: the function could put a statement of its own in its place, and be handed the permit.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use tokio::time::{error::Elapsed, sleep, timeout};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient};

use super::{Projection, quoted};
use crate::lane_connection::{self, Backend, bound_silence};
use crate::settle::Settlement;
use crate::{Database, StoreError};

pub const IDENTITY: &str = include_str!("../sql/projection_identity.sql");
pub const PERMIT: &str = include_str!("../sql/projection_permit.sql");
pub const SETTLE: &str = include_str!("../sql/projection_settle.sql");

/// How much longer than its function a call may take until the server is taken for silent.
const GRACE: Duration = Duration::from_secs(5);
/// How long a transaction waits for a switch of its read model. Other projections of the worker wait meanwhile.
const SWITCH_WITHIN: Duration = Duration::from_millis(250);
/// How long ending an abandoned backend may take.
const END_WITHIN: Duration = Duration::from_secs(10);
const END_PAUSE: Duration = Duration::from_millis(20);

/// Why events were not handled. Nothing of them was committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The function refused an event, or took too long.
    #[error("{0}")]
    Raised(String),
    /// It was not run: says nothing of the events.
    #[error("{0}")]
    Unavailable(String),
    /// Its read model is being switched to a rebuilt one: says nothing of the events.
    #[error("its read model is being switched to a rebuilt one")]
    Switching,
}

/// What a transaction settles: the lane's cursor passes events, or a requeued dead letter is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    pub lane_id: i64,
    pub version: i64,
    pub cursor: i64,
    pub day: Date,
    pub history_from: Option<i64>,
    /// The requeued dead letter, and its seq.
    pub dead_letter: Option<(i64, i64)>,
}

impl Passed {
    /// Of a settlement that passes events and says nothing else.
    pub fn of(settlement: &Settlement) -> Self {
        use crate::settle::OutcomeKind;
        let dead_letter = settlement
            .outcomes
            .iter()
            .find_map(|outcome| match outcome.kind {
                OutcomeKind::Redelivered { dead_id } => Some((dead_id, outcome.seq)),
                _ => None,
            });
        debug_assert_eq!(
            settlement.outcomes.len(),
            usize::from(dead_letter.is_some()),
            "other outcomes are settled on the lane's connection first"
        );
        Self {
            lane_id: settlement.lane_id,
            version: settlement.version,
            cursor: settlement.cursor,
            day: settlement.cursor_day,
            history_from: settlement.history_from,
            dead_letter,
        }
    }

    /// Lets a connection of `role` settle this, asked on the connection that holds the lane.
    ///
    /// # Errors
    /// There is no permit.
    pub async fn permit(
        &self,
        client: &impl GenericClient,
        role: &str,
    ) -> Result<Vec<u8>, StoreError> {
        let operation = "permitting a settlement";
        let (dead_id, dead_seq) = self.dead_letter.unzip();
        let row = client
            .query_typed_one(
                PERMIT,
                &[
                    (&role, Type::TEXT),
                    (&self.lane_id, Type::INT8),
                    (&self.version, Type::INT8),
                    (&self.cursor, Type::INT8),
                    (&self.day, Type::DATE),
                    (&self.history_from, Type::INT8),
                    (&dead_id, Type::INT8),
                    (&dead_seq, Type::INT8),
                ],
            )
            .await
            .map_err(StoreError::on(operation))?;
        row.try_get(0).map_err(StoreError::on(operation))
    }
}

/// A connection of the projection's role.
pub struct Connection {
    client: Client,
    backend: Backend,
    database: Database,
    timeout: Duration,
    opening: String,
    call: String,
    closing: String,
}

impl Connection {
    /// # Errors
    /// The role cannot be used.
    pub async fn open(projection: &Projection, subscription_id: i32) -> Result<Self, Failure> {
        let path = quoted(&projection.schema);
        Self::open_on(projection, Some(subscription_id), &path).await
    }

    /// For a rebuild: unqualified names mean something else first, and a switch waits for no transaction of it.
    pub(super) async fn open_beside(projection: &Projection, path: &str) -> Result<Self, Failure> {
        Self::open_on(projection, None, path).await
    }

    async fn open_on(
        projection: &Projection,
        subscription_id: Option<i32>,
        path: &str,
    ) -> Result<Self, Failure> {
        let Projection { role, database, .. } = projection;
        let database = database.with(|driver| {
            driver.application_name("lanekeeper projection");
            bound_silence(driver);
        });
        let within = database.patience();
        let opening = async {
            let (client, connection) = database
                .connect()
                .await
                .map_err(|error| unavailable(&format!("cannot connect as {role}"), &error))?;
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "a projection's connection ended");
                }
            });
            let backend = identify(&client, role).await?;
            Ok(Self {
                client,
                backend,
                database: database.clone(),
                timeout: projection.timeout,
                opening: opening(path, projection.timeout, subscription_id),
                call: format!(
                    "SELECT {}(e.event::jsonb) FROM unnest($1::text[]) AS e (event)",
                    projection.qualified(&projection.function)
                ),
                closing: closing(projection.timeout),
            })
        };
        timeout(within + GRACE, opening).await.unwrap_or_else(|_| {
            let text = format!("PostgreSQL did not answer {role} within {within:?}");
            Err(Failure::Unavailable(text))
        })
    }

    /// Whether the server, or somebody on the way, closed it.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Calls the function with each event in a new transaction, which stays open, and lets nothing of the user's be left
    /// that would run later in it. The events are envelopes: see [`lanekeeper_core::envelope`].
    ///
    /// # Errors
    /// Roll back, if the connection is not closed. `Err(None)`: it did not answer in time; abandon it.
    pub async fn call(&self, events: &[String]) -> Result<(), Option<Failure>> {
        let calling = async {
            let lacking = |error: tokio_postgres::Error| match error.code() {
                Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => Failure::Switching,
                _ => unavailable("cannot begin", &error),
            };
            let raised = |error| self.raised(&error);
            self.client
                .batch_execute(&self.opening)
                .await
                .map_err(lacking)?;
            self.client
                .execute_typed(&self.call, &[(&events, Type::TEXT_ARRAY)])
                .await
                .map_err(raised)?;
            self.client
                .batch_execute(&self.closing)
                .await
                .map_err(raised)
        };
        match self.patiently(calling).await {
            Ok(result) => result.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// What a call means for its events that was not answered in time.
    pub fn unanswered(&self) -> Failure {
        Failure::Raised(format!(
            "the function did not end within {:?}, nor when it was cancelled: rolled back",
            self.timeout
        ))
    }

    /// Settles in the open transaction; `false`: another holder settled the lane.
    ///
    /// # Errors
    /// Roll back.
    pub async fn settle(
        &self,
        worker_id: i64,
        passed: &Passed,
        permit: &[u8],
    ) -> Result<bool, Failure> {
        let Passed {
            lane_id,
            version,
            cursor,
            day,
            history_from,
            dead_letter,
        } = passed;
        let (dead_id, dead_seq) = dead_letter.unzip();
        let failed = |error| unavailable("cannot settle", &error);
        self.client
            .query_typed_one(
                SETTLE,
                &[
                    (&worker_id, Type::INT8),
                    (lane_id, Type::INT8),
                    (version, Type::INT8),
                    (cursor, Type::INT8),
                    (day, Type::DATE),
                    (history_from, Type::INT8),
                    (&dead_id, Type::INT8),
                    (&dead_seq, Type::INT8),
                    (&permit, Type::BYTEA),
                ],
            )
            .await
            .and_then(|row| row.try_get(0))
            .map_err(failed)
    }

    /// # Errors
    /// It is not known whether it was committed.
    pub async fn commit(&self) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute("COMMIT").await
    }

    /// Returns whether the connection can be used again.
    pub async fn rollback(&self) -> bool {
        let rolling_back = self.client.batch_execute("ROLLBACK");
        matches!(timeout(GRACE, rolling_back).await, Ok(Ok(())))
    }

    /// Ends it at the server, whatever it is at there: a function may trap the cancellation of its statement, and go on.
    pub fn abandon(self) {
        tokio::spawn(self.end());
    }

    /// As [`Self::abandon`], for who goes on only when its row locks are gone.
    pub(super) async fn end(self) {
        let Self {
            client,
            backend,
            database,
            ..
        } = self;
        let token = client.cancel_token();
        let ending = timeout(END_WITHIN, async {
            if let Err(error) = database.cancel(&token).await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "a projection's statement could not be cancelled");
            }
            drop(client);
            let (client, connection) = database.connect().await?;
            tokio::spawn(connection);
            // A role may end its own backends.
            while !lane_connection::end(&client, &[backend]).await?.is_empty() {
                sleep(END_PAUSE).await;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
        let failed = match ending.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "PostgreSQL did not answer, or did not end its backend".to_owned(),
        };
        tracing::warn!(
            backend_pid = backend.pid,
            failed,
            "a projection's function may still be running; what it does is not committed"
        );
    }

    /// For statements of a rebuild.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    async fn patiently<T>(&self, question: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.timeout + GRACE, question).await
    }

    /// What an error of the function, or of a constraint that it deferred, means.
    fn raised(&self, error: &tokio_postgres::Error) -> Failure {
        let Some(said) = error.as_db_error() else {
            return unavailable("the connection was lost", error);
        };
        match said.code().code() {
            // It came from outside: nothing of the function was on the stack.
            "42883" | "42725" | "42501" | "3F000" | "0A000" if said.where_().is_none() => {
                unavailable("the function cannot be called", error)
            }
            // Neighbours were in the way, or the server.
            code if ["40001", "40P01"].contains(&code) || code.starts_with("53") => {
                unavailable("the function was interrupted", error)
            }
            "57014" => Failure::Raised(format!(
                "the function did not end within {:?}: rolled back",
                self.timeout
            )),
            code if code.starts_with("57P") && self.client.is_closed() => {
                unavailable("the connection was ended", error)
            }
            _ => Failure::Raised(text(said)),
        }
    }
}

/// Who the connection is, if it may be used.
async fn identify(client: &Client, role: &str) -> Result<Backend, Failure> {
    let asked = |error| unavailable("cannot see who the connection is", &error);
    let row = client.query_one(IDENTITY, &[]).await.map_err(asked)?;
    let (session_role, is_mighty): (String, bool) = row
        .try_get("role")
        .and_then(|role| Ok((role, row.try_get("is_mighty")?)))
        .map_err(asked)?;
    if session_role != role {
        return Err(Failure::Unavailable(format!(
            "its connection string logs in as {session_role}, and its role is {role}"
        )));
    }
    if is_mighty {
        return Err(Failure::Unavailable(format!(
            "the role {role} has Lanekeeper's own rights: give the projection a role of its own"
        )));
    }
    let pid: i32 = row.try_get("pid").map_err(asked)?;
    let start: Timestamp = row.try_get("backend_start").map_err(asked)?;
    Ok(Backend { pid, start })
}

/// What each transaction begins with, whatever the function left behind in the session.
fn opening(path: &str, timeout: Duration, subscription_id: Option<i32>) -> String {
    let mut opening = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL search_path TO {path}, pg_temp; \
         SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = 0; \
         SET LOCAL idle_in_transaction_session_timeout = 60000",
        timeout.as_millis()
    );
    if let Some(id) = subscription_id {
        // In the same message: it saves a round trip.
        opening += &format!(
            "; SET LOCAL lock_timeout = {}; SELECT lanekeeper.begin_projection({id}); SET LOCAL lock_timeout = 0",
            SWITCH_WITHIN.as_millis()
        );
    }
    opening
}

/// After the function: nothing of the user's is left that would run with the settlement or the commit.
fn closing(timeout: Duration) -> String {
    format!(
        "SET CONSTRAINTS ALL IMMEDIATE; CLOSE ALL; RESET ROLE; SET LOCAL statement_timeout = {}",
        timeout.as_millis()
    )
}

fn unavailable(what: &str, error: &tokio_postgres::Error) -> Failure {
    let said = error.as_db_error().map_or_else(|| error.to_string(), text);
    Failure::Unavailable(format!("{what}: {said}"))
}

/// The server's words, with the place in the function.
fn text(said: &DbError) -> String {
    let mut text = format!("{} (SQLSTATE {})", said.message(), said.code().code());
    for more in [said.detail(), said.where_()].into_iter().flatten() {
        text.push_str("; ");
        text.push_str(more);
    }
    text
}
