//! Whether the projections of a file can work: their functions, tables and roles, asked before anything is changed.

use lanekeeper_adapters::projection;
use lanekeeper_core::subscription::{FileError, Problem};
use lanekeeper_postgres::projection::check as judge;
use lanekeeper_subscription::SubscriptionFile;
use tokio_postgres::Client;

use crate::Failure;

pub(super) async fn check(client: &Client, file: &SubscriptionFile) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for section in &file.subscriptions {
        if section.adapter != projection::KIND {
            continue;
        }
        // The file was judged when it was read.
        let settings = projection::read(&section.settings).map_err(Failure::usage)?;
        let unfit = judge(
            client,
            &settings.schema,
            &settings.function,
            &settings.role,
            &settings.tables,
        )
        .await?;
        problems.extend(unfit.into_iter().map(|unfit| Problem {
            position: section.position,
            key: format!("subscription.{}.{}", section.name, unfit.key),
            reason: unfit.reason,
        }));
    }
    if problems.is_empty() {
        return Ok(());
    }
    let origin = file.origin.clone();
    Err(Failure::usage(FileError { origin, problems }))
}
