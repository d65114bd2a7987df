//! Adds or removes the subscription of the agent registry when a worker starts.
//!
//! Deliveries do not depend on it: if it fails, the worker logs that and continues.

use lanekeeper_core::subscription::ChangeKind;
use lanekeeper_core::subscription::built_in::REGISTRY;
use lanekeeper_postgres::subscription::{self, BuiltInError, Done};
use lanekeeper_postgres::{Database, StoreError};
use lanekeeper_streams::hooks::STREAM;
use lanekeeper_streams::hooks::registry::definition;
use tokio_postgres::Client;

/// Sessions that get a lane in one transaction, which holds an append lock on each.
const SESSIONS_AT_ONCE: i32 = 200;

/// Returns when it is done; lanes of sessions that existed before are added meanwhile.
pub async fn switch(database: Database, wanted: bool) {
    let settled = async {
        let (mut client, connection) = database.connect().await.map_err(connecting)?;
        tokio::spawn(connection);
        let done = if wanted {
            subscription::install(&mut client, REGISTRY, STREAM, definition).await?
        } else {
            subscription::remove(&mut client, REGISTRY).await?
        };
        Ok::<_, BuiltInError>((client, done))
    };
    match settled.await {
        Ok((client, done)) => tell(client, done),
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            wanted,
            "the session registry could not be switched; it stays as it is, and deliveries go on"
        ),
    }
}

fn connecting(error: tokio_postgres::Error) -> BuiltInError {
    StoreError::on("connecting for the session registry")(error).into()
}

fn tell(client: Client, done: Done) {
    match done.change {
        ChangeKind::Unchanged => {}
        ChangeKind::Changed => tracing::info!("the session registry is that of this release now"),
        ChangeKind::Removed => tracing::info!(
            "the session registry is switched off; what it knows stays (worker.registry)"
        ),
        ChangeKind::Created | ChangeKind::Revived => {
            tracing::info!("the session registry is switched on (worker.registry)");
            if let Some(id) = done.subscription_id {
                tokio::spawn(add_lanes(client, id));
            }
        }
    }
}

/// A worker that ends meanwhile leaves the rest to the next event of each session.
async fn add_lanes(client: Client, subscription_id: i32) {
    let mut after = 0;
    loop {
        match subscription::add_lanes(&client, subscription_id, after, SESSIONS_AT_ONCE).await {
            Ok(Some(last)) => after = last,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "sessions that existed before the registry enter it with their next event"
                );
                return;
            }
        }
    }
}
