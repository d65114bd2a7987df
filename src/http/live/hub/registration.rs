//! The streams that this worker is registered for, and how far their followers have been told everything.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lanekeeper_postgres::follow::Horizon;

use super::super::inbox::Ready;
use super::{Hub, Work};

/// How long a stream stays registered after its last follower, for those that come back at once.
const LINGER: Duration = Duration::from_secs(30);

/// How far the registration for a stream's notifications has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    #[default]
    None,
    /// Transactions that began before may go without a notification.
    Since {
        xact: String,
        barrier: Option<String>,
    },
    Complete,
}

impl Hub {
    /// The streams that are followed, or were until a moment ago, with their registrations.
    pub fn streams(&self) -> Vec<(i32, Registration)> {
        let state = self.state();
        let streams = state.streams.iter();
        streams
            .map(|(id, stream)| (*id, stream.registration.clone()))
            .collect()
    }

    pub fn set_registration(&self, stream_id: i32, registration: Registration) {
        if let Some(stream) = self.state().streams.get_mut(&stream_id) {
            stream.registration = registration;
        }
    }

    /// The connection is gone, and all registrations with it.
    pub fn unregister_all(&self) {
        for stream in self.state().streams.values_mut() {
            stream.registration = Registration::None;
            stream.horizon = None;
        }
        self.state().fence = None;
    }

    /// Removes and returns the streams that nobody has followed for a while. Also drops what their followers left.
    pub fn take_unused(&self) -> Vec<i32> {
        let mut state = self.state();
        let state = &mut *state;
        let unused: Vec<i32> = state
            .streams
            .iter()
            .filter(|(_, stream)| stream.unused_since.is_some_and(|at| at.elapsed() > LINGER))
            .map(|(id, _)| *id)
            .collect();
        for id in &unused {
            state.streams.remove(id);
        }
        let streams = &state.streams;
        state.feeds.retain(|_, feed| {
            let is_wide = streams
                .get(&feed.stream_id)
                .is_some_and(|stream| !stream.wide.is_empty());
            feed.is_followed() || is_wide && Arc::strong_count(feed) + Arc::weak_count(feed) > 1
        });
        state.inboxes.retain(|inbox| inbox.strong_count() > 0);
        unused
    }

    /// Notifications of these streams may have been missed.
    pub fn rescan(&self, stream_id: i32) {
        let mut state = self.state();
        let Some(stream) = state.streams.get_mut(&stream_id) else {
            return;
        };
        let inboxes: Vec<_> = stream.wide.iter().filter_map(Weak::upgrade).collect();
        let waiting: Vec<_> = stream.waiting.iter().filter_map(Weak::upgrade).collect();
        // No fence counted before.
        state.wants_fence |= !inboxes.is_empty();
        drop(state);
        for inbox in inboxes {
            inbox.put(Ready::Rescan);
        }
        for inbox in waiting {
            inbox.put(Ready::Appeared);
        }
    }

    /// The notification of this fence came, so those of all transactions below its horizon came before.
    pub fn pass(&self, number: u64) {
        let mut state = self.state();
        if let Some((_, horizon)) = state.fence.take_if(|(begun, _)| *begun == number) {
            state.queue.push_back(Work::Fence(horizon));
            drop(state);
            self.work.notify_one();
        }
    }

    pub fn wants_fence(&self) -> bool {
        self.state().wants_fence
    }

    /// A fence with this horizon begins. Returns its number, with which it passes.
    pub fn fence_begins(&self, horizon: Horizon) -> u64 {
        let mut state = self.state();
        state.wants_fence = false;
        // Nobody else knows it: a foreign notification must not let a fence pass too early.
        let number = uuid::Uuid::new_v4().as_u64_pair().0;
        state.fence = Some((number, horizon));
        number
    }

    /// A fence was reached: the followers of the streams that are registered completely may go on to its horizon.
    pub fn reach(&self, horizon: Horizon) {
        let mut state = self.state();
        let mut inboxes = Vec::new();
        for stream in state.streams.values_mut() {
            if stream.registration == Registration::Complete {
                stream.horizon = Some(horizon);
                inboxes.extend(stream.wide.iter().filter_map(Weak::upgrade));
            }
        }
        drop(state);
        for inbox in inboxes {
            inbox.put(Ready::Horizon(horizon));
        }
    }

    /// The horizon up to which the stream's followers were told everything.
    pub fn horizon(&self, stream_id: i32) -> Option<Horizon> {
        self.state().streams.get(&stream_id)?.horizon
    }
}
