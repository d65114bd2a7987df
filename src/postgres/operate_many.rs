//! Operators' actions on many lanes or dead letters, each lane in a transaction of its own: one whose delivery does not
//! end delays no other. They run on a connection that is in no transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;

use super::StoreError;
use super::inspect::{DeadLetter, LaneStatus};
use super::operate::{self, LaneAction, Requeued};

/// After this no more is begun: a lane may take five seconds, and whoever asked waits for an answer.
const BEGIN_WITHIN: Duration = Duration::from_secs(6);

/// What came of many.
#[derive(Debug)]
pub struct Many<T> {
    /// What came of each that was acted on, by its id.
    pub done: Vec<(i64, T)>,
    /// Nothing was done with them: their lanes are busy or take none, or the time was over.
    pub left: Vec<i64>,
    /// Why, for the first of those that were tried.
    pub failed: Option<StoreError>,
}

impl<T> Many<T> {
    fn new() -> Self {
        Self {
            done: Vec::new(),
            left: Vec::new(),
            failed: None,
        }
    }

    fn failed(&mut self, ids: &[i64], error: StoreError) {
        self.left.extend(ids);
        self.failed.get_or_insert(error);
    }
}

/// Acts on lanes. The head that a skip is of is the one that `lanes` has.
pub async fn change_lanes(
    client: &Client,
    lanes: &[LaneStatus],
    action: LaneAction,
    reason: &str,
) -> Many<String> {
    let began = Instant::now();
    let mut many = Many::new();
    for lane in lanes {
        if began.elapsed() > BEGIN_WITHIN {
            many.left.push(lane.lane_id);
            continue;
        }
        let head = lane.head_seq.filter(|_| action == LaneAction::Skip);
        match operate::change_lane(client, lane.lane_id, action, Some(reason), head).await {
            Ok(state) => many.done.push((lane.lane_id, state)),
            Err(error) => many.failed(&[lane.lane_id], error),
        }
    }
    many
}

/// Requeues dead letters, all of a lane in one call: the first of them wakes the lane, and a later call would find it
/// busy.
pub async fn requeue_by_lane(
    client: &Client,
    letters: &[DeadLetter],
    at_end: bool,
    reason: &str,
) -> Many<Requeued> {
    let mut lanes: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for letter in letters {
        let ids = lanes.entry(letter.lane_id).or_default();
        ids.push(letter.dead_id);
    }
    let began = Instant::now();
    let mut many = Many::new();
    for ids in lanes.values() {
        if began.elapsed() > BEGIN_WITHIN {
            many.left.extend(ids);
            continue;
        }
        match operate::requeue_dead_letters(client, ids, at_end, Some(reason)).await {
            Ok(results) => many.done.extend(results),
            Err(error) => many.failed(ids, error),
        }
    }
    many
}

/// Drops dead letters; false for those that were dealt with already.
pub async fn drop_each(client: &Client, letters: &[DeadLetter], reason: &str) -> Many<bool> {
    let began = Instant::now();
    let mut many = Many::new();
    for letter in letters {
        let dead_id = letter.dead_id;
        if began.elapsed() > BEGIN_WITHIN {
            many.left.push(dead_id);
            continue;
        }
        match operate::drop_dead_letter(client, dead_id, Some(reason)).await {
            Ok(dropped) => many.done.push((dead_id, dropped)),
            Err(error) => many.failed(&[dead_id], error),
        }
    }
    many
}
