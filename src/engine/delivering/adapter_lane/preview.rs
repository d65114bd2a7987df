//! Reads the previews of large payloads of a batch in one statement beside the fetch, over the pool (G5). So long
//! progress output is coalesced like short output, and only what is delivered is read whole (I11).
//!
//! If the read fails, each large event counts as a message of its own: all of them are delivered.

use std::time::Duration;

use lanekeeper_core::adapter::Preview;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::preview::{self, Previews};
use tokio::time::timeout;

use super::Runner;
use super::read::{READ_BYTES_PER_S, READ_WITHIN};

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Runner<'_> {
    /// The previews of those payloads of a batch that were not fetched, if the route merges messages.
    pub(super) async fn previews(&self, events: &[FetchedEvent]) -> Previews {
        let Some(adapter) = self.route.merges_messages() else {
            return Previews::new();
        };
        let large = |event: &FetchedEvent| event.matched && event.payload.is_none();
        // A single event has nothing to be merged with.
        if !events.iter().any(large) || events.iter().filter(|event| event.matched).count() < 2 {
            return Previews::new();
        }
        let Some(preview) = adapter.preview() else {
            return Previews::new();
        };
        let read = tokio::select! {
            biased;
            // A worker that stops sends nothing more.
            () = self.context.stopping() => return Previews::new(),
            // Boxed: few lanes read previews, and the others should not reserve memory for it.
            read = Box::pin(self.read_previews(&preview, events.iter().filter(|event| large(event)))) => read,
        };
        read.unwrap_or_else(|error| {
            tracing::warn!(
                lane_id = self.claimed.lane_id,
                error = &*error,
                "the previews of large payloads could not be read; each of these events is delivered"
            );
            Previews::new()
        })
    }

    async fn read_previews(
        &self,
        preview: &Preview,
        large: impl Iterator<Item = &FetchedEvent> + Clone,
    ) -> Result<Previews, Failure> {
        let sizes = large
            .clone()
            .map(|event| u64::try_from(event.size).unwrap_or(0));
        let within = READ_WITHIN + Duration::from_secs(sizes.sum::<u64>() / READ_BYTES_PER_S);
        let events: Vec<_> = large.map(|event| (event.seq, event.day)).collect();
        let reading = async {
            let client = self.context.shared.pool.get().await?;
            let session_id = self.claimed.session_id;
            let (pointers, longest) = (&preview.pointers, preview.longest);
            Ok(preview::read(&**client, session_id, &events, pointers, longest).await?)
        };
        timeout(within, reading).await?
    }
}
