//! Leaves out what is too old or too much, before the head goes to the adapter. Messages that were sent and wait for
//! their acknowledgements are not dropped; one that is about to be sent again may have expired.

use lanekeeper_postgres::fetch::FetchedEvent;
use tokio::time::Instant;

use super::{Ending, Runner, UNREAD_DELAY};
use crate::delivering::progress::Stop;

impl Runner<'_> {
    /// Goes on with the head, unless it is left out.
    pub(super) async fn or_leaves_out(&mut self, head: &FetchedEvent) -> Result<(), Ending> {
        if self.route.subscription.leaves_out() && Box::pin(self.leaves_out(head)).await? {
            return Err(Ending::Passed);
        }
        Ok(())
    }

    /// Whether the head is left out, with what is to go with it. The cursor has passed it then.
    async fn leaves_out(&mut self, head: &FetchedEvent) -> Result<bool, Ending> {
        // A message of which a part is sent already is completed.
        let has_begun = || self.adapter.has_begun(head.message_id);
        if self.is_ahead || self.progress.head_is_behind() || has_begun() {
            return Ok(false);
        }
        let subscription = &self.route.subscription;
        let now = Instant::now();
        let clock = &self.context.shared.peers.clock;
        let age_s = clock.seconds_since(head.created_at, now);
        let awaiting = self.claimed.awaiting;
        let was_sent = awaiting.is_some_and(|awaiting| head.seq <= awaiting.sent);
        let question = self.surplus.question(subscription, age_s, !was_sent, now);
        let Some(question) = question else {
            return Ok(false);
        };
        let position = self.progress.position(subscription.id);
        let asked = self.ask(async |client| question.ask(client, position, subscription).await);
        match asked.await {
            Ok(found) => Ok(self.progress.leave_out(&found, subscription)),
            Err(_) => Err(Ending::Stopped(Stop::retry(UNREAD_DELAY, None))),
        }
    }
}
