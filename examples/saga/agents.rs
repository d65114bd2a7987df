//! The agents: outside of the database, so they are told at least once. What one reports has a key that follows from the
//! event which told it, so it is in the log once.

use std::time::Duration;

use async_trait::async_trait;
use lanekeeper::append::{NewEvent, enqueue};
use lanekeeper::{Adapter, Delivery, Verdict};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::run::REPORTED;
use crate::steps::STREAM;

pub struct Agents {
    pub database_url: String,
}

#[async_trait]
impl Adapter for Agents {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let event = delivery.event;
        let told: Value = serde_json::from_str(&event.payload).unwrap_or_default();
        let deadline = Duration::from_millis(told["deadline_ms"].as_u64().unwrap_or(30_000));
        let tests = match told["agent"].as_str() {
            Some("good") => "pass",
            Some("bad") => "fail",
            Some("late") => {
                tokio::time::sleep(deadline * 2).await;
                "pass"
            }
            // It says nothing, ever.
            _ => return Verdict::Accepted,
        };
        match self
            .report(&event.session, &event.message_id.to_string(), tests)
            .await
        {
            Ok(()) => Verdict::Accepted,
            Err(error) => Verdict::retry(error.to_string()),
        }
    }
}

impl Agents {
    async fn report(
        &self,
        run: &str,
        task: &str,
        tests: &str,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (client, connection) = tokio_postgres::connect(&self.database_url, NoTls).await?;
        let connection = tokio::spawn(connection);
        let key = format!("result of {task}");
        let payload = json!({"tests": tests}).to_string();
        let event = NewEvent {
            dedupe_key: Some(&key),
            ..NewEvent::new(run, REPORTED, &payload)
        };
        enqueue(&client, STREAM, &event).await?;
        drop(client);
        connection.await??;
        Ok(())
    }
}
