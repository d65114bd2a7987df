//! An adapter that is built anew when a file that its secrets were read from is replaced.
//!
//! Before a delivery, once a second at the most, the files are looked at; where one is another than it was, the
//! whole adapter is built as when the subscription came, and takes the place of the old one. Deliveries that are
//! under way end with what they began with. A build that fails changes nothing: the log says why, once for each
//! reason, and it is tried again a second later. So a file that is half written, empty or away for a moment costs
//! no delivery. One whose file system does not answer holds up deliveries for a second when that is first noticed,
//! and none after that until it answers.
//!
//! What an adapter keeps in its own memory goes with it, as with every change of a subscription.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Preview, Role, Server, Verdict};
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::event::Event;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::environment::Mark;
use super::{Environment, SettingsError, registry};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Builds the adapter of one subscription, reading its secrets; those that stand in files are read again when
/// the files were replaced.
///
/// `settings` is the subscription's table without what belongs to the engine; durations are in
/// milliseconds.
pub fn build(
    kind: &str,
    subscription: &str,
    settings: &Value,
    environment: &Environment,
) -> Result<Arc<dyn Adapter>, SettingsError> {
    let plan = Plan {
        kind: kind.to_owned(),
        subscription: subscription.to_owned(),
        settings: settings.clone(),
        environment: environment.clone(),
    };
    let built = plan.build()?;
    Ok(match built.marks.is_empty() {
        true => built.adapter,
        false => Arc::new(Reloading::new(plan, built)),
    })
}

/// What an adapter is built from.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) kind: String,
    pub(super) subscription: String,
    pub(super) settings: Value,
    pub(super) environment: Environment,
}

pub(super) struct Built {
    pub(super) adapter: Arc<dyn Adapter>,
    /// The files that it has secrets of, as they were before they were read.
    pub(super) marks: Vec<Mark>,
}

impl Plan {
    pub(super) fn build(&self) -> Result<Built, SettingsError> {
        let environment = self.environment.recording();
        let adapter =
            registry::build_once(&self.kind, &self.subscription, &self.settings, &environment)?;
        Ok(Built {
            adapter,
            marks: environment.marks(),
        })
    }
}

pub(super) struct Reloading {
    plan: Plan,
    current: RwLock<Arc<dyn Adapter>>,
    looked_at: Mutex<Instant>,
    seen: tokio::sync::Mutex<Seen>,
}

struct Seen {
    marks: Vec<Mark>,
    /// Why what the files hold now is not used, as it was said.
    trouble: Option<String>,
}

/// What came of a look.
enum Found {
    Unchanged,
    Renewed(Built),
    Unusable(String),
}

impl Reloading {
    pub(super) fn new(plan: Plan, built: Built) -> Self {
        Self {
            plan,
            current: RwLock::new(built.adapter),
            looked_at: Mutex::new(Instant::now()),
            seen: tokio::sync::Mutex::new(Seen {
                marks: built.marks,
                trouble: None,
            }),
        }
    }

    fn current(&self) -> Arc<dyn Adapter> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_due(&self) -> bool {
        let looked_at = self
            .looked_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        looked_at.elapsed() >= LOOK_EVERY
    }

    /// Looks at the files where that is due. Who comes meanwhile waits: after a long silence the first
    /// deliveries must not go out with what was replaced during it.
    async fn renew(&self) {
        if !self.is_due() {
            return;
        }
        let mut seen = self.seen.lock().await;
        if !self.is_due() {
            return;
        }
        let (plan, marks) = (self.plan.clone(), seen.marks.clone());
        // It ends: what asks for files waits a second for each at the most.
        let found = tokio::task::spawn_blocking(move || look(&plan, &marks)).await;
        let subscription = &*self.plan.subscription;
        match found {
            Ok(Found::Unchanged) => seen.trouble = None,
            Ok(Found::Renewed(built)) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = built.adapter;
                seen.marks = built.marks;
                seen.trouble = None;
                tracing::info!(
                    subscription,
                    "a secret was replaced in its file, and is used from now on"
                );
            }
            Ok(Found::Unusable(reason)) => seen.tell(subscription, reason),
            Err(_) => seen.tell(subscription, "building the adapter panicked".to_owned()),
        }
        *self
            .looked_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Seen {
    fn tell(&mut self, subscription: &str, reason: String) {
        if self.trouble.as_ref() == Some(&reason) {
            return;
        }
        tracing::warn!(
            subscription,
            reason,
            "the file of a secret cannot be used: what it held before stays in use. Mend the file"
        );
        self.trouble = Some(reason);
    }
}

/// Asks for no file behind one that was replaced or does not answer.
fn all_stand(marks: &[Mark]) -> std::io::Result<bool> {
    marks
        .iter()
        .try_fold(true, |all, mark| Ok(all && mark.stands()?))
}

fn look(plan: &Plan, marks: &[Mark]) -> Found {
    match all_stand(marks) {
        Ok(true) => return Found::Unchanged,
        Ok(false) => {}
        Err(silent) => return Found::Unusable(silent.to_string()),
    }
    match plan.build() {
        Ok(built) => Found::Renewed(built),
        Err(error) => Found::Unusable(causes(&error)),
    }
}

/// An error in one line; none of these repeats a secret.
fn causes(error: &SettingsError) -> String {
    let chain = std::iter::successors(error.source(), |cause| (*cause).source());
    chain.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}

#[async_trait]
impl Adapter for Reloading {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        self.renew().await;
        self.current().deliver(delivery).await
    }

    fn server(&self) -> Option<Server> {
        self.current().server()
    }

    fn acknowledges(&self) -> bool {
        self.current().acknowledges()
    }

    fn buckets(&self, event: &Event) -> Vec<Bucket> {
        self.current().buckets(event)
    }

    fn is_paced(&self) -> bool {
        self.current().is_paced()
    }

    fn learned(&self) -> Vec<(Bucket, Duration)> {
        self.current().learned()
    }

    fn shows_progress(&self) -> bool {
        self.current().shows_progress()
    }

    fn preview(&self) -> Option<Preview> {
        self.current().preview()
    }

    fn has_begun(&self, message_id: Uuid) -> bool {
        self.current().has_begun(message_id)
    }

    fn role(&self, payload: &str) -> Role {
        self.current().role(payload)
    }
}
