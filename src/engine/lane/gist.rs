//! What payloads that stayed behind say of their messages (G5), in one statement beside the fetch, through the
//! pool: so long progress output is coalesced like short, and only what goes out is read whole (I11).
//!
//! Where that fails they count as messages of their own: each goes out, and nothing is lost.

use std::time::Duration;

use lanekeeper_core::adapter::Gist;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::gist::{self, Gists};
use tokio::time::timeout;

use super::Runner;
use super::read::{READ_BYTES_PER_S, READ_WITHIN};

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Runner<'_> {
    /// The gists of those payloads of a batch that are not there, where it matters what they say.
    pub(super) async fn gists(&self, events: &[FetchedEvent]) -> Gists {
        let Some(adapter) = self.route.merges_messages() else {
            return Gists::new();
        };
        let large = |event: &FetchedEvent| event.matched && event.payload.is_none();
        // One alone has nothing to be merged with.
        if !events.iter().any(large) || events.iter().filter(|event| event.matched).count() < 2 {
            return Gists::new();
        }
        let Some(gist) = adapter.gist() else {
            return Gists::new();
        };
        let read = tokio::select! {
            biased;
            // Nothing more is sent then.
            () = self.context.stopping.cancelled() => return Gists::new(),
            // Few lanes come here: the others are not to carry what it takes.
            read = Box::pin(self.read_gists(&gist, events.iter().filter(|event| large(event)))) => read,
        };
        read.unwrap_or_else(|error| {
            tracing::warn!(
                lane_id = self.claimed.lane_id,
                error = &*error,
                "what large payloads say of their messages was not read; each of them goes out"
            );
            Gists::new()
        })
    }

    async fn read_gists(
        &self,
        gist: &Gist,
        large: impl Iterator<Item = &FetchedEvent> + Clone,
    ) -> Result<Gists, Failure> {
        let sizes = large
            .clone()
            .map(|event| u64::try_from(event.size).unwrap_or(0));
        let within = READ_WITHIN + Duration::from_secs(sizes.sum::<u64>() / READ_BYTES_PER_S);
        let events: Vec<_> = large.map(|event| (event.seq, event.day)).collect();
        let reading = async {
            let client = self.context.pool.get().await?;
            let session_id = self.claimed.session_id;
            let (pointers, longest) = (&gist.pointers, gist.longest);
            Ok(gist::read(&**client, session_id, &events, pointers, longest).await?)
        };
        timeout(within, reading).await?
    }
}
