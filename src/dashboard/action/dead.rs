//! Requeue and drop dead letters, up to a thousand at once.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::response::Response;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::inspect::{self, DeadLetter};
use lanekeeper_postgres::operate::{self, Requeued};
use tokio::time::Instant;
use tokio_postgres::Client;

use super::{Order, refused};
use crate::notice::Notice;
use crate::page::dead_review::MOST;
use crate::part::format::plural;
use crate::reading::Lease;
use crate::trouble::Trouble;

/// After this no more is begun: a lane may take five seconds, and the answer is to come in time.
const BEGIN_WITHIN: Duration = Duration::from_secs(6);

/// What came of many.
#[derive(Default)]
struct Sum {
    done: i64,
    /// They were dealt with before.
    before: i64,
    /// Their lanes are busy, or the time was over.
    left: i64,
    failed: Option<StoreError>,
}

/// `POST /action/dead`
pub(crate) async fn carry_out(order: Order) -> Result<Response, Trouble> {
    let ids = order.form.numbers("id")?;
    if ids.is_empty() || ids.len() > MOST {
        let detail = format!("Name from 1 to {MOST} dead letters. Nothing was changed.");
        return Err(Trouble::invalid(detail));
    }
    let action = order.form.required("action")?;
    let reason = order.reason()?;
    let lease = Lease::take(&order.dashboard).await?;
    let client = lease.client()?;
    let letters = inspect::dead_letters_by_id(client, &ids).await?;
    // All or nothing: a letter of another stream is not even counted.
    for letter in &letters {
        order.visitor.require_operate(&letter.stream)?;
    }
    let (sum, what) = match action {
        "requeue" => (requeue(client, &letters, &reason).await, "requeued"),
        "drop" => (drop_all(client, &letters, &reason).await, "dropped"),
        _ => return Err(Trouble::invalid("There is no such action on dead letters.")),
    };
    let notice = told(sum, what, ids.len() as i64)?;
    lease.done();
    Ok(order.tell(&notice))
}

/// All of a lane in one call: the first of them wakes the lane, and a later call would find it busy.
async fn requeue(client: &Client, letters: &[DeadLetter], reason: &str) -> Sum {
    let mut lanes: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for letter in letters {
        lanes
            .entry(letter.lane_id)
            .or_default()
            .push(letter.dead_id);
    }
    let began = Instant::now();
    let mut sum = Sum::default();
    for ids in lanes.values() {
        if began.elapsed() > BEGIN_WITHIN {
            sum.left += ids.len() as i64;
            continue;
        }
        match operate::requeue_dead_letters(client, ids, false, Some(reason)).await {
            Ok(results) => {
                for (_, result) in results {
                    match result {
                        Requeued::Requeued => sum.done += 1,
                        Requeued::Before | Requeued::Resolved => sum.before += 1,
                    }
                }
            }
            Err(error) => {
                sum.left += ids.len() as i64;
                sum.failed = sum.failed.or(Some(error));
            }
        }
    }
    sum
}

async fn drop_all(client: &Client, letters: &[DeadLetter], reason: &str) -> Sum {
    let began = Instant::now();
    let mut sum = Sum::default();
    for letter in letters {
        if began.elapsed() > BEGIN_WITHIN {
            sum.left += 1;
            continue;
        }
        match operate::drop_dead_letter(client, letter.dead_id, Some(reason)).await {
            Ok(true) => sum.done += 1,
            Ok(false) => sum.before += 1,
            Err(error) => {
                sum.left += 1;
                sum.failed = sum.failed.or(Some(error));
            }
        }
    }
    sum
}

fn told(sum: Sum, what: &str, asked: i64) -> Result<Notice, Trouble> {
    let Sum {
        done,
        before,
        left,
        failed,
    } = sum;
    if done == 0
        && let Some(error) = failed
    {
        return refused(error);
    }
    let were = if done == 1 { "was" } else { "were" };
    let mut text = format!(
        "{} {were} {what}.",
        plural(done, "dead letter", "dead letters")
    );
    let gone = asked - done - before - left;
    for (count, why) in [
        (before, "had been dealt with already"),
        (left, "could not be dealt with now: do it again for them"),
        (gone, "are not there any more"),
    ] {
        if count > 0 {
            text += &format!(" {} {why}.", plural(count, "other", "others"));
        }
    }
    Ok(match left > 0 || done == 0 {
        true => Notice::refused(text),
        false => Notice::done(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_done_is_told_beside_what_was() {
        let sum = |done, before, left| Sum {
            done,
            before,
            left,
            failed: None,
        };
        let all = told(sum(10, 0, 0), "requeued", 10).ok();
        assert_eq!(all, Some(Notice::done("10 dead letters were requeued.")));
        let some = told(sum(1, 2, 3), "dropped", 7).ok();
        assert_eq!(
            some,
            Some(Notice::refused(
                "1 dead letter was dropped. 2 others had been dealt with already. \
                 3 others could not be dealt with now: do it again for them. 1 other are not there any more."
            ))
        );
        let none = told(sum(0, 1, 0), "dropped", 1).ok();
        assert!(none.is_some_and(|notice| !notice.done));
    }
}
