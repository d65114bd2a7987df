//! Fetches what people send with their messages, beside the questions to the platform and the transactions of the holder.
//!
//! A file takes seconds; a holder must give signs of life, and people of other sessions must not wait. So a message whose
//! file is under way is kept back like one whose session is locked: the offset stays before it, later messages of its
//! session wait behind it, and the others are taken. When the file is there, or is not to be had, the message is asked for
//! again at once and enqueued with the path, or with the reason. No transaction is open meanwhile. Another holder finds
//! what this one fetched, or fetches it itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lanekeeper_adapters::{Attachments, TelegramBot};
use lanekeeper_core::source::chat::Message;
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::AbortOnDropHandle;

/// Files at a time.
const MOST_AT_A_TIME: usize = 4;
/// For one file, after it got a place.
const WITHIN: Duration = Duration::from_secs(60);

/// The path of a file, or why there is none.
type Fetched = Result<String, String>;

/// The files of one source's newest updates, by update.
pub(super) struct Downloads {
    /// `None`: the source has none fetched.
    wanted: Option<Wanted>,
    source: String,
    under_way: HashMap<i64, AbortOnDropHandle<()>>,
    shared: Arc<Shared>,
}

/// Where files go, and how large they may be.
pub(super) struct Wanted {
    pub(super) bot: Arc<TelegramBot>,
    pub(super) attachments: Attachments,
    pub(super) most: u32,
}

struct Shared {
    done: Mutex<HashMap<i64, Fetched>>,
    places: Semaphore,
    arrived: Notify,
}

impl Shared {
    fn done(&self) -> MutexGuard<'_, HashMap<i64, Fetched>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Downloads {
    pub(super) fn new(source: &str, wanted: Option<Wanted>) -> Self {
        Self {
            wanted,
            source: source.to_owned(),
            under_way: HashMap::new(),
            shared: Arc::new(Shared {
                done: Mutex::default(),
                places: Semaphore::new(MOST_AT_A_TIME),
                arrived: Notify::new(),
            }),
        }
    }

    /// Of a platform whose files are not fetched.
    pub(super) fn none() -> Self {
        Self::new("", None)
    }

    /// Forgets what the newest answer does not have.
    pub(super) fn keep(&mut self, ids: &HashSet<i64>) {
        self.under_way.retain(|id, _| ids.contains(id));
        self.shared.done().retain(|id, _| ids.contains(id));
    }

    /// Begins to fetch what came with a message, unless that was begun before.
    pub(super) fn begin(&mut self, update_id: i64, message: &Message) {
        let Some(wanted) = &self.wanted else { return };
        let Some(attachment) = message.attachment() else {
            return;
        };
        if self.under_way.contains_key(&update_id) {
            return;
        }
        let (attachments, most) = (wanted.attachments.clone(), wanted.most);
        let (bot, shared) = (Arc::clone(&wanted.bot), Arc::clone(&self.shared));
        let (source, message_id) = (self.source.clone(), message.id.clone());
        let task = tokio::spawn(async move {
            let place = shared.places.acquire().await;
            let names = (source.as_str(), message_id.as_str());
            let fetching = attachments.fetch(&*bot, names, &attachment, most, WITHIN);
            let fetched = fetching.await;
            drop(place);
            if let Err(error) = &fetched {
                tracing::warn!(
                    source,
                    message = message_id,
                    error = error as &dyn std::error::Error,
                    "an attachment was not fetched; its message goes without it"
                );
            }
            let fetched = fetched.map_err(|error| error.to_string());
            shared.done().insert(update_id, fetched);
            shared.arrived.notify_one();
        });
        self.under_way
            .insert(update_id, AbortOnDropHandle::new(task));
    }

    /// Enters into a message what became of its file. `false`: that is not known yet.
    pub(super) fn settle(&self, update_id: i64, message: &mut Message) -> bool {
        if !self.under_way.contains_key(&update_id) {
            return true;
        }
        let done = self.shared.done();
        let Some(fetched) = done.get(&update_id) else {
            return false;
        };
        message.attach(fetched.as_deref().map_err(String::as_str));
        true
    }

    /// Waits until another file has come, or cannot be had.
    pub(super) fn arrived(&self) -> impl Future<Output = ()> + use<> {
        let shared = Arc::clone(&self.shared);
        async move { shared.arrived.notified().await }
    }
}
