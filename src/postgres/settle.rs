//! Settles lanes: one call of `lanekeeper.settle` or `lanekeeper.finish` for many lanes, and the statements around it.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use lanekeeper_core::subscription::MessageStage;
use tokio::try_join;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, Row, Statement};

use super::StoreError;
use super::claim::ReadyEntry;
use super::ctid::Ctid;

pub const SETTLE: &str = include_str!("sql/settle.sql");
pub const FINISH: &str = include_str!("sql/finish.sql");
pub const UNLOCK: &str = include_str!("sql/unlock.sql");
pub const RECORD_IN_FLIGHT: &str = include_str!("sql/record_in_flight.sql");
pub const RECORD_SUSPECTED_POISON: &str = include_str!("sql/record_suspected_poison.sql");

/// Errors are cut to this many bytes.
const ERROR_LIMIT: usize = 2000;

/// The new state of a lane. The numbers are those of `lanekeeper.settle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The cursor moves, and the lane stays held.
    Keep = 1,
    /// The cursor moves; the lane goes idle if nothing is left.
    Finish = 2,
    /// The head failed or must wait: the lane is due again after a delay.
    Retry = 3,
    /// The lane is parked until an operator acts.
    Park = 4,
    /// The lane is due again now, after the other lanes that are due.
    Yield = 5,
    /// The lane has another ready entry, so this one is deleted.
    Discard = 6,
    /// The lane is released unchanged.
    Release = 7,
    /// It waits for acknowledgements: due again when the first is late.
    Await = 8,
}

/// Why the cursor passes an event that was not delivered, or the result of a requeued dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    Coalesced {
        replaced_by: i64,
    },
    DeadLettered {
        error: String,
        attempts: i32,
        crashes: i32,
    },
    Dropped {
        error: String,
    },
    /// It and those up to `to_seq` were too old when their turn came.
    Expired {
        to_seq: i64,
        error: String,
    },
    /// It and those up to `to_seq` were the oldest of too many.
    DroppedOldest {
        to_seq: i64,
        error: String,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// A requeued dead letter was accepted: its event counts as delivered.
    Redelivered {
        dead_id: i64,
    },
    /// A requeued dead letter was exhausted once more.
    DeadLetteredAgain {
        dead_id: i64,
        error: String,
        attempts: i32,
        crashes: i32,
    },
    /// Events behind the cursor were delivered again, up to this one.
    Replayed {
        replay_id: i64,
        delivered: i32,
        exhausted: i32,
    },
}

impl OutcomeKind {
    /// The name in `lanekeeper.settle`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Coalesced { .. } => "coalesced",
            Self::DeadLettered { .. } => "dead_lettered",
            Self::Dropped { .. } | Self::DroppedOldest { .. } => "dropped",
            Self::Expired { .. } => "expired",
            Self::Cancelled => "cancelled",
            Self::Redelivered { .. } => "redelivered",
            Self::DeadLetteredAgain { .. } => "dead_lettered_again",
            Self::Replayed { .. } => "replayed",
        }
    }
}

impl OutcomeKind {
    /// What the lifecycle feed calls it; `None` for what it is not told of.
    pub fn stage(&self) -> Option<MessageStage> {
        match self {
            Self::DeadLettered { .. } | Self::DeadLetteredAgain { .. } | Self::Dropped { .. } => {
                Some(MessageStage::Failed)
            }
            Self::Expired { .. } => Some(MessageStage::Expired),
            Self::DroppedOldest { .. } => Some(MessageStage::Dropped),
            Self::Cancelled
            | Self::Coalesced { .. }
            | Self::Redelivered { .. }
            | Self::Replayed { .. } => None,
        }
    }

    /// The last seq of a range, and why.
    pub fn range_and_error(&self) -> (Option<i64>, Option<&str>) {
        match self {
            Self::Expired { to_seq, error } | Self::DroppedOldest { to_seq, error } => {
                (Some(*to_seq), Some(error))
            }
            Self::DeadLettered { error, .. }
            | Self::DeadLetteredAgain { error, .. }
            | Self::Dropped { error } => (None, Some(error)),
            Self::Cancelled
            | Self::Coalesced { .. }
            | Self::Redelivered { .. }
            | Self::Replayed { .. } => (None, None),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub seq: i64,
    pub kind: OutcomeKind,
}

impl Outcome {
    /// How many events it is for, filtered ones among them.
    pub fn events(&self) -> u64 {
        if let OutcomeKind::Replayed { delivered, .. } = self.kind {
            return u64::try_from(delivered).unwrap_or(0);
        }
        let (to_seq, _) = self.kind.range_and_error();
        to_seq.map_or(1, |to_seq| {
            u64::try_from(to_seq - self.seq).unwrap_or(0) + 1
        })
    }
}

/// The new state of one held lane.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub lane_id: i64,
    pub session_id: i64,
    /// The version and step that were read, for the compare-and-set.
    pub version: i64,
    /// The ctid of the row with that version. `None`: not known.
    pub progress_ctid: Option<Ctid>,
    pub operation: Operation,
    /// Whether there is a new state to write.
    pub changed: bool,
    pub cursor: i64,
    pub cursor_day: Date,
    pub attempts: i32,
    pub crashes: i32,
    /// For [`Operation::Retry`].
    pub delay: Duration,
    pub error: Option<String>,
    /// The first seq of the settled range, if the subscription keeps history.
    pub history_from: Option<i64>,
    pub outcomes: Vec<Outcome>,
    /// Where the subscription requires acknowledgements.
    pub acks: Option<Acks>,
}

/// What a lane that requires acknowledgements has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// Events up to this seq were sent and are not all acknowledged. `None`: it waits for none.
    pub sent: Option<i64>,
    /// When the wait would have been over that it was claimed in: the entry of that instant goes.
    pub wait_ended: Option<Timestamp>,
}

impl Settlement {
    /// Whether it is the usual case: its events were accepted, and there is nothing else to write.
    fn only_finishes(&self) -> bool {
        self.operation == Operation::Finish
            && self.changed
            && self.progress_ctid.is_some()
            && self.attempts == 0
            && self.crashes == 0
            && self.error.is_none()
            && self.history_from.is_none()
            && self.outcomes.is_empty()
            && self.acks.is_none()
    }
}

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The compare-and-set failed: the lane was settled by another process, and nothing was written for it.
    Lost,
    Done,
    /// Finish: nothing is left, the entry is gone.
    Idle,
    /// Finish: there are newer events.
    More,
    /// Finish: nothing newer is committed, but a producer holds the append lock; the entry stays.
    Busy,
}

/// The settlement on one connection.
pub struct Settle {
    any: Statement,
    /// For lanes that all finish, and of whose heads nothing is to be said: the usual case.
    finish: Statement,
}

/// Prepares `lanekeeper.settle` and `lanekeeper.finish` for a connection.
///
/// # Errors
/// Where the schema lacks them.
pub async fn prepare(client: &impl GenericClient) -> Result<Settle, StoreError> {
    let any = [
        Type::INT8,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT8_ARRAY,
        Type::DATE_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
        Type::INT2_ARRAY,
        Type::TID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::TID_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ];
    let finish = [
        Type::INT8,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::DATE_ARRAY,
        Type::TID_ARRAY,
        Type::TID_ARRAY,
        Type::INT8_ARRAY,
    ];
    let (any, finish) = try_join!(
        client.prepare_typed(SETTLE, &any),
        client.prepare_typed(FINISH, &finish),
    )
    .map_err(StoreError::on("preparing the settlement"))?;
    Ok(Settle { any, finish })
}

/// Settles lanes, each with the entry by which it was claimed. The results come in the same order.
///
/// # Errors
/// All or nothing was written; after [`super::ErrorClass::ConnectionLost`] nobody knows which.
pub async fn settle(
    client: &impl GenericClient,
    settle: &Settle,
    worker_id: i64,
    lanes: &[(Settlement, ReadyEntry)],
) -> Result<Vec<Settled>, StoreError> {
    // As the functions look entries up.
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    order.sort_unstable_by_key(|&at| lanes[at].1.id);
    let lanes: Vec<&(Settlement, ReadyEntry)> = order.iter().map(|&at| &lanes[at]).collect();
    let settling = StoreError::on("settling lanes");
    let in_order = if lanes
        .iter()
        .all(|(settlement, _)| settlement.only_finishes())
    {
        finish(client, &settle.finish, worker_id, &lanes).await
    } else {
        settle_any(client, &settle.any, worker_id, &lanes).await
    }
    .map_err(settling)?;
    let mut results = vec![Settled::Lost; lanes.len()];
    for (place, result) in order.into_iter().zip(in_order) {
        results[place] = result;
    }
    Ok(results)
}

/// Lanes that all finish.
async fn finish(
    client: &impl GenericClient,
    statement: &Statement,
    worker_id: i64,
    lanes: &[&(Settlement, ReadyEntry)],
) -> Result<Vec<Settled>, tokio_postgres::Error> {
    let settled = || lanes.iter().map(|(settlement, _)| settlement);
    let ids: Vec<i64> = settled().map(|s| s.lane_id).collect();
    let sessions: Vec<i64> = settled().map(|s| s.session_id).collect();
    let versions: Vec<i64> = settled().map(|s| s.version).collect();
    let cursors: Vec<i64> = settled().map(|s| s.cursor).collect();
    let mut days: Vec<Date> = settled().map(|s| s.cursor_day).collect();
    if days.iter().all(|day| *day == days[0]) {
        days.truncate(1);
    }
    let progress: Vec<Option<Ctid>> = settled().map(|s| s.progress_ctid).collect();
    let ctids: Vec<Ctid> = lanes.iter().map(|(_, entry)| entry.ctid).collect();
    let entries: Vec<i64> = lanes.iter().map(|(_, entry)| entry.id).collect();
    let row = client
        .query_one(
            statement,
            &[
                &worker_id, &ids, &sessions, &versions, &cursors, &days, &progress, &ctids,
                &entries,
            ],
        )
        .await?;
    let mut results = vec![Settled::Idle; lanes.len()];
    enter(&row, &mut results);
    Ok(results)
}

async fn settle_any(
    client: &impl GenericClient,
    statement: &Statement,
    worker_id: i64,
    lanes: &[&(Settlement, ReadyEntry)],
) -> Result<Vec<Settled>, tokio_postgres::Error> {
    macro_rules! column {
        ($ty:ty, |$s:ident, $t:ident| $value:expr) => {
            lanes
                .iter()
                .map(|($s, $t)| {
                    let _ = ($s, $t);
                    $value
                })
                .collect::<Vec<$ty>>()
        };
    }
    let ids = column!(i64, |s, t| s.lane_id);
    let sessions = column!(i64, |s, t| s.session_id);
    let versions = column!(i64, |s, t| s.version);
    let operations = column!(i16, |s, t| s.operation as i16);
    let changed = column!(bool, |s, t| s.changed);
    let cursors = column!(i64, |s, t| s.cursor);
    let days = column!(Date, |s, t| s.cursor_day);
    // Empty where no lane has any: the usual case need not carry them.
    macro_rules! sparse_column {
        ($ty:ty, |$s:ident| $any:expr, $value:expr) => {
            if lanes.iter().any(|($s, _)| $any) {
                column!($ty, |$s, t| $value)
            } else {
                Vec::new()
            }
        };
    }
    let attempts = sparse_column!(i32, |s| s.attempts > 0, s.attempts);
    let crashes = sparse_column!(i32, |s| s.crashes > 0, s.crashes);
    let delays = sparse_column!(
        i64,
        |s| matches!(s.operation, Operation::Retry | Operation::Await),
        i64::try_from(s.delay.as_millis()).unwrap_or(i64::MAX)
    );
    let errors = sparse_column!(
        Option<String>,
        |s| s.error.is_some(),
        s.error.as_deref().map(storable)
    );
    let replaced = lanes.iter().any(|(s, _)| {
        matches!(
            s.operation,
            Operation::Retry | Operation::Yield | Operation::Await
        )
    });
    let (routes, priorities) = if replaced {
        (
            column!(i32, |s, t| t.route),
            column!(i16, |s, t| t.priority),
        )
    } else {
        (Vec::new(), Vec::new())
    };
    let ctids = column!(Ctid, |s, t| t.ctid);
    let entries = column!(i64, |s, t| t.id);
    let history = sparse_column!(Option<i64>, |s| s.history_from.is_some(), s.history_from);
    let progress_ctids =
        sparse_column!(Option<Ctid>, |s| s.progress_ctid.is_some(), s.progress_ctid);
    let sents = sparse_column!(
        Option<i64>,
        |s| s.acks.is_some(),
        s.acks.and_then(|acks| acks.sent)
    );
    let waits_ended = sparse_column!(
        Option<Timestamp>,
        |s| s.acks.is_some_and(|acks| acks.wait_ended.is_some()),
        s.acks.and_then(|acks| acks.wait_ended)
    );
    let outcomes = OutcomeColumns::of(lanes);
    let row = client
        .query_one(
            statement,
            &[
                &worker_id,
                &ids,
                &sessions,
                &versions,
                &operations,
                &changed,
                &cursors,
                &days,
                &attempts,
                &crashes,
                &delays,
                &errors,
                &routes,
                &priorities,
                &ctids,
                &entries,
                &history,
                &outcomes.ords,
                &outcomes.seqs,
                &outcomes.kinds,
                &outcomes.replaced_by,
                &outcomes.errors,
                &outcomes.attempts,
                &outcomes.crashes,
                &progress_ctids,
                &sents,
                &waits_ended,
            ],
        )
        .await?;
    let mut results = vec![Settled::Lost; lanes.len()];
    enter(&row, &mut results);
    Ok(results)
}

/// Enters what the lanes came to of which something is said.
fn enter(row: &Row, results: &mut [Settled]) {
    let ords: Option<Vec<i32>> = row.get(0);
    let codes: Option<Vec<i16>> = row.get(1);
    for (ord, code) in ords.into_iter().flatten().zip(codes.into_iter().flatten()) {
        let place = usize::try_from(ord).expect("a place counts from 1") - 1;
        results[place] = result(code);
    }
}

fn result(code: i16) -> Settled {
    match code {
        1 => Settled::Done,
        2 => Settled::Idle,
        3 => Settled::More,
        4 => Settled::Busy,
        _ => Settled::Lost,
    }
}

/// An error as Postgres text: without NUL, and bounded.
fn storable(error: &str) -> String {
    let mut end = error.len().min(ERROR_LIMIT);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error[..end].replace('\0', "\u{fffd}")
}

#[derive(Default)]
struct OutcomeColumns {
    /// Which of the settled lanes each belongs to, from 1.
    ords: Vec<i32>,
    seqs: Vec<i64>,
    kinds: Vec<&'static str>,
    /// The id of the dead letter, for outcomes of dead letters; of the replay; the last seq, for ranges.
    replaced_by: Vec<Option<i64>>,
    errors: Vec<Option<String>>,
    /// Of a replay: what was delivered, and exhausted.
    attempts: Vec<i32>,
    crashes: Vec<i32>,
}

impl OutcomeColumns {
    fn of(lanes: &[&(Settlement, ReadyEntry)]) -> Self {
        let mut columns = Self::default();
        for (ord, (settlement, _)) in (1..).zip(lanes) {
            for outcome in &settlement.outcomes {
                let (replaced_by, error, attempts, crashes) = match &outcome.kind {
                    OutcomeKind::Coalesced { replaced_by } => (Some(*replaced_by), None, 0, 0),
                    OutcomeKind::DeadLettered {
                        error,
                        attempts,
                        crashes,
                    } => (None, Some(storable(error)), *attempts, *crashes),
                    OutcomeKind::Dropped { error } => (None, Some(storable(error)), 0, 0),
                    OutcomeKind::Expired { to_seq, error }
                    | OutcomeKind::DroppedOldest { to_seq, error } => {
                        (Some(*to_seq), Some(storable(error)), 0, 0)
                    }
                    OutcomeKind::Cancelled => (None, None, 0, 0),
                    OutcomeKind::Redelivered { dead_id } => (Some(*dead_id), None, 0, 0),
                    OutcomeKind::DeadLetteredAgain {
                        dead_id,
                        error,
                        attempts,
                        crashes,
                    } => (Some(*dead_id), Some(storable(error)), *attempts, *crashes),
                    OutcomeKind::Replayed {
                        replay_id,
                        delivered,
                        exhausted,
                    } => (Some(*replay_id), None, *delivered, *exhausted),
                };
                columns.ords.push(ord);
                columns.seqs.push(outcome.seq);
                columns.kinds.push(outcome.kind.as_str());
                columns.replaced_by.push(replaced_by);
                columns.errors.push(error);
                columns.attempts.push(attempts);
                columns.crashes.push(crashes);
            }
        }
        columns
    }
}

/// Gives back lane locks, and forgets the claims of which nothing is held any more.
///
/// # Errors
/// The connection must be closed then: which locks it still holds is not known.
pub async fn unlock(
    client: &Client,
    statement: &Statement,
    lanes: &[i64],
    connection_id: i64,
    finished_claims: &[i64],
) -> Result<(), StoreError> {
    client
        .query_one(statement, &[&lanes, &connection_id, &finished_claims])
        .await
        .map(drop)
        .map_err(StoreError::on("unlocking lanes"))
}

/// Replaces the entries of held lanes by ones due after `delay`; returns where the new ones are.
///
/// # Errors
/// Nothing was changed, unless the connection is lost.
pub async fn record_in_flight(
    client: &Client,
    statement: &Statement,
    lanes: &[(i64, ReadyEntry)],
    delay: Duration,
) -> Result<Vec<(i64, Ctid, i64)>, StoreError> {
    let ids: Vec<i64> = lanes.iter().map(|(lane_id, _)| *lane_id).collect();
    let routes: Vec<i32> = lanes.iter().map(|(_, entry)| entry.route).collect();
    let priorities: Vec<i16> = lanes.iter().map(|(_, entry)| entry.priority).collect();
    let ctids: Vec<Ctid> = lanes.iter().map(|(_, entry)| entry.ctid).collect();
    let entries: Vec<i64> = lanes.iter().map(|(_, entry)| entry.id).collect();
    let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
    let rows = client
        .query(
            statement,
            &[&ids, &routes, &priorities, &ctids, &entries, &delay_ms],
        )
        .await
        .map_err(StoreError::on("marking slow lanes"))?;
    Ok(rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect())
}

/// Records that a suspected poison event is about to be delivered alone, under a claim of its own.
///
/// # Errors
/// Nothing was recorded: do not deliver.
pub async fn record_suspected_poison(
    client: &Client,
    connection_id: i64,
    claim_id: i64,
    lane: (i64, i64, i32),
) -> Result<(), StoreError> {
    let (lane_id, version, crashes) = lane;
    client
        .execute(
            RECORD_SUSPECTED_POISON,
            &[&connection_id, &claim_id, &lane_id, &version, &crashes],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("recording a suspect event"))
}
