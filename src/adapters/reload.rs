//! An adapter that is rebuilt when a file with one of its secrets is replaced.
//!
//! Before a delivery, but at most once a second, it checks the files. If one has changed, it builds a new adapter from
//! the same settings and uses it from then on. Deliveries that run meanwhile end with the old one. If the build fails,
//! the old adapter stays in use: the log says why, once for each reason, and the next attempt follows a second later.
//! So a file that is half written, empty or missing for a moment costs no delivery. If a file system does not answer,
//! deliveries wait one second when that is first noticed, and no longer wait until it answers again.
//!
//! A rebuilt adapter loses what the old one kept in memory, as with every change of a subscription.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Preview, Role, Server, Verdict};
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::event::Event;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::environment::Mark;
use super::{Environment, SettingsError, registry};

/// The time between two checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Builds the adapter of one subscription and reads its secrets. Secrets in files are read again when their file is
/// replaced.
///
/// `settings` is the subscription's table without the keys of the engine; durations are in milliseconds.
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

/// The input of a build, kept for the next one.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) kind: String,
    pub(super) subscription: String,
    pub(super) settings: Value,
    pub(super) environment: Environment,
}

pub(super) struct Built {
    pub(super) adapter: Arc<dyn Adapter>,
    /// The state of each file with a secret, taken before the file was read.
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
    /// The reason, as logged, why the files' present content is not used.
    trouble: Option<String>,
}

/// The result of a check.
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

    /// Checks the files if a check is due. Deliveries that begin meanwhile wait for it: after a long pause, the first
    /// deliveries must not use a secret that was replaced during the pause.
    async fn renew(&self) {
        if !self.is_due() {
            return;
        }
        let mut seen = self.seen.lock().await;
        if !self.is_due() {
            return;
        }
        let (plan, marks) = (self.plan.clone(), seen.marks.clone());
        // This ends, because a read waits at most one second for each file.
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

/// Whether no file has changed. Stops at the first file that has changed or does not answer.
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

/// An error with its causes in one line. None of them contains a secret.
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

    fn max_batch(&self) -> usize {
        self.current().max_batch()
    }

    async fn deliver_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        self.renew().await;
        self.current().deliver_batch(deliveries).await
    }

    fn server(&self) -> Option<Server> {
        self.current().server()
    }

    fn is_one_place(&self) -> bool {
        self.current().is_one_place()
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
