//! Requeue and drop dead letters, up to a thousand at once.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::operate::Requeued;
use lanekeeper_postgres::operate_many::{self, Many};
use lanekeeper_postgres::{StoreError, inspect};

use super::{Order, refused};
use crate::notice::Notice;
use crate::page::dead_review::MOST;
use crate::part::format::plural;
use crate::trouble::Trouble;

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
    let lease = Lease::take(&order.dashboard.pool).await?;
    let client = lease.client();
    let letters = inspect::dead_letters_by_id(client, &ids).await?;
    // All or nothing: a letter of another stream is not even counted.
    for letter in &letters {
        order.visitor.require_operate(&letter.stream)?;
    }
    let (sum, what) = match action {
        "requeue" => {
            let many = operate_many::requeue_by_lane(client, &letters, false, &reason).await;
            (sum(many, |it| *it == Requeued::Requeued), "requeued")
        }
        "drop" => {
            let many = operate_many::drop_each(client, &letters, &reason).await;
            (sum(many, |dropped| *dropped), "dropped")
        }
        _ => return Err(Trouble::invalid("There is no such action on dead letters.")),
    };
    let notice = told(sum, what, ids.len() as i64)?;
    lease.done();
    Ok(order.tell(&notice))
}

fn sum<T>(many: Many<T>, is_done: impl Fn(&T) -> bool) -> Sum {
    let done = many
        .done
        .iter()
        .filter(|(_, result)| is_done(result))
        .count();
    Sum {
        done: done as i64,
        before: (many.done.len() - done) as i64,
        left: many.left.len() as i64,
        failed: many.failed,
    }
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
