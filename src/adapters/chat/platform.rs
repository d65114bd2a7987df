//! The interface of a chat platform: one request for each method. It hides what an adapter knows about its platform.

use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Server, Verdict};
use lanekeeper_core::bucket::Bucket;

use super::message::Target;

/// The result of one request.
#[derive(Debug)]
pub enum Outcome {
    /// A message was sent; this is what the platform calls it.
    Sent {
        reference: String,
    },
    /// Done, or there was nothing to do.
    Done,
    /// The message that was to be changed is not there any more, or may not be changed.
    Missing,
    Failed(Verdict),
}

#[async_trait]
pub trait Platform: Send + Sync + 'static {
    /// UTF-16 units that a message may have.
    fn longest(&self) -> usize;

    /// What a request about this target draws on, which may be an edit.
    fn buckets(&self, target: &Target, may_edit: bool) -> Vec<Bucket>;

    /// Sends a message. Only the first part of a text answers another message.
    async fn send(&self, target: &Target, text: &str, first: bool) -> Outcome;

    async fn edit(&self, target: &Target, reference: &str, text: &str) -> Outcome;

    async fn delete(&self, target: &Target, reference: &str) -> Outcome;

    /// Whether the platform can show a typing indicator there.
    fn can_type(&self, target: &Target) -> bool;

    /// Shows the typing indicator. The result is ignored.
    async fn show_typing(&self, target: &Target);

    /// What it speaks to, for spans.
    fn server(&self) -> Option<Server>;

    /// What it said of its limits since it was last asked.
    fn learned(&self) -> Vec<(Bucket, Duration)> {
        Vec::new()
    }
}
