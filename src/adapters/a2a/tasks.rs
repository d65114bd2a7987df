//! Which tasks the messages of a session became: remembered until they end, at most 64 of a session.

use std::sync::Arc;

use lanekeeper_core::a2a::{KEY, MessageTask, PLACE};
use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::memory::{Memory, MemoryError, MessageName};
use uuid::Uuid;

/// The tasks of the session that a delivery is of.
pub(super) struct Tasks<'a> {
    memory: &'a Arc<dyn Memory>,
    delivery: &'a Delivery<'a>,
    known: Vec<MessageTask>,
}

fn unknown(error: &MemoryError) -> Verdict {
    Verdict::retry(error.to_string())
}

impl<'a> Tasks<'a> {
    pub(super) async fn recall(
        memory: &'a Arc<dyn Memory>,
        delivery: &'a Delivery<'a>,
    ) -> Result<Self, Verdict> {
        let name = name(delivery);
        let parts = memory.recall(name).await.map_err(|error| unknown(&error))?;
        let known = parts
            .into_iter()
            .filter_map(|(_, reference)| reference.parse().ok());
        Ok(Self {
            memory,
            delivery,
            known: known.collect(),
        })
    }

    /// The task of the message that is delivered.
    pub(super) fn own(&self) -> Option<&str> {
        let own = self.delivery.event.message_id;
        let task = self.known.iter().find(|task| task.message_id == own)?;
        Some(&task.task_id)
    }

    /// Tasks of other messages that were given up since: they are wanted no more.
    pub(super) async fn withdrawn(&self) -> Result<Vec<MessageTask>, Verdict> {
        let own = self.delivery.event.message_id;
        let others: Vec<&MessageTask> = self
            .known
            .iter()
            .filter(|task| task.message_id != own)
            .collect();
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let seqs: Vec<i64> = others.iter().map(|task| task.seq).collect();
        let (subscription, session) = (self.delivery.subscription, &*self.delivery.event.session);
        let gone = self.memory.given_up(subscription, session, &seqs).await;
        let gone = gone.map_err(|error| unknown(&error))?;
        Ok(others
            .into_iter()
            .filter(|task| gone.contains(&task.seq))
            .cloned()
            .collect())
    }

    pub(super) async fn remember(&self, task_id: &str) -> Result<(), Verdict> {
        let event = self.delivery.event;
        let task = MessageTask {
            seq: event.seq,
            message_id: event.message_id,
            task_id: task_id.to_owned(),
        };
        let (part, reference) = (MessageTask::part(event.seq), task.to_string());
        let remembered = self.memory.remember(name(self.delivery), part, &reference);
        remembered.await.map_err(|error| unknown(&error))
    }

    /// Forgets the task of a message, unless a later one has its place.
    pub(super) async fn forget(&self, seq: i64, message_id: Uuid) -> Result<(), Verdict> {
        let is_there = |task: &MessageTask| MessageTask::part(task.seq) == MessageTask::part(seq);
        if self
            .known
            .iter()
            .any(|task| is_there(task) && task.message_id != message_id)
        {
            return Ok(());
        }
        let forgotten = self
            .memory
            .forget(name(self.delivery), MessageTask::part(seq));
        forgotten.await.map_err(|error| unknown(&error))
    }
}

fn name<'a>(delivery: &Delivery<'a>) -> MessageName<'a> {
    MessageName {
        subscription: delivery.subscription,
        session: &delivery.event.session,
        place: PLACE,
        key: KEY,
    }
}
