//! Reads how the running workers report on the subscriptions that were applied.
//!
//! They report in rows, within a second. Only a worker knows which secrets it has and which addresses it may reach;
//! another process could come to a wrong result with its own settings.

use std::collections::BTreeMap;
use std::time::Duration;

use lanekeeper_core::subscription::{Change, ChangeKind, Target};
use lanekeeper_postgres::inspect::{self, Delivery};
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use crate::Failure;
use crate::output;

/// Workers look for changes twice a second.
const WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const SUBSCRIPTIONS: i64 = 10_000;

/// Waits until the workers that live have said what they deliver of it, and says what they do not.
pub(super) async fn warn(
    client: &Client,
    changes: &[Change],
    frozen_after: Duration,
) -> Result<(), Failure> {
    let changes: Vec<&Change> = changes
        .iter()
        .filter(|it| it.target == Target::Subscription && it.change != ChangeKind::Removed)
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    let began_at = Instant::now();
    let (live, deliveries) = loop {
        let (live, deliveries) = read(client, frozen_after).await?;
        let is_awaited = |change: &&Change| {
            change.change != ChangeKind::Unchanged
                && deliveries
                    .get(&change.name)
                    .is_some_and(|it| it.workers.unreported > 0)
        };
        if !changes.iter().any(is_awaited) || began_at.elapsed() >= WITHIN {
            break (live, deliveries);
        }
        sleep(LOOK_EVERY).await;
    };
    for change in changes {
        let name = &change.name;
        let Some(delivery) = deliveries.get(name) else {
            continue;
        };
        for reason in delivery.reasons() {
            output::note(output::plain(&format!("warning: {name}: {reason}")));
        }
        let silent = delivery.workers.unreported;
        if silent > 0 && change.change != ChangeKind::Unchanged {
            output::note(format!(
                "{name}: {silent} of {live} workers have not said yet whether they deliver it; see `lanekeeper status`"
            ));
        }
    }
    Ok(())
}

/// How many workers live, and what they say of each subscription that is not paused.
async fn read(
    client: &Client,
    frozen_after: Duration,
) -> Result<(usize, BTreeMap<String, Delivery>), Failure> {
    let subscriptions = inspect::subscriptions(client, SUBSCRIPTIONS).await?;
    let deliveries = inspect::deliveries(client, frozen_after).await?;
    let by_name = subscriptions
        .into_iter()
        .filter(|it| it.paused_at.is_none())
        .map(|it| {
            let delivery = deliveries.of(it.subscription_id, false);
            (it.subscription, delivery)
        })
        .collect();
    Ok((deliveries.live(), by_name))
}
