//! A destination for tests: it records deliveries, gives the answers that the test sets, and can wait.
//!
//! It passes the conformance suite of adapters, so tests of the engine can rely on it. It is in the library for the
//! tests of programs that embed the engine. No subscription can name it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Verdict};
use lanekeeper_core::event::Event;
use tokio::sync::watch;
use tokio::time::timeout;

/// One attempt, as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub event: Event,
    pub subscription: String,
    pub attempt: u32,
    pub requeued: bool,
    pub replayed: bool,
    /// `None` while the delivery runs, and for good if it was dropped.
    pub verdict: Option<Verdict>,
}

/// What the fake has seen so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Attempts in the order of their arrival.
    pub deliveries: Vec<Recorded>,
    /// The seqs of each batch, in the order of their arrival.
    pub batches: Vec<Vec<i64>>,
    /// Deliveries under way at this moment.
    pub running: usize,
}

impl Seen {
    /// (session, seq) of the accepted deliveries, in the order of their arrival.
    pub fn accepted(&self) -> Vec<(Arc<str>, i64)> {
        let accepted = |recorded: &&Recorded| recorded.verdict == Some(Verdict::Accepted);
        let place = |recorded: &Recorded| (recorded.event.session.clone(), recorded.event.seq);
        self.deliveries.iter().filter(accepted).map(place).collect()
    }
}

#[derive(Default)]
struct State {
    seen: Seen,
    script: HashMap<(String, i64), VecDeque<Verdict>>,
    /// Verdicts on the next batches as a whole.
    wholes: VecDeque<Verdict>,
    held: HashSet<String>,
    all_held: bool,
}

type Answer = dyn Fn(&Delivery<'_>) -> Verdict + Send + Sync;

/// Clones share everything.
#[derive(Clone)]
pub struct Fake {
    state: watch::Sender<State>,
    answer: Arc<Answer>,
    timeout: Duration,
    batch: usize,
}

impl Fake {
    /// Accepts everything.
    pub fn new() -> Self {
        Self::answering(|_| Verdict::Accepted)
    }

    /// Answers with `answer` where no scripted verdict is left.
    pub fn answering(answer: impl Fn(&Delivery<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        Self {
            state: watch::Sender::new(State::default()),
            answer: Arc::new(answer),
            timeout: Duration::from_secs(60),
            batch: 1,
        }
    }

    /// How long a held delivery waits before it ends in `Retry`; 60 s otherwise.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Takes so many events in one request.
    #[must_use]
    pub fn with_batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// The verdicts on the next batches as a whole, one each. Other batches get the verdict of each event.
    pub fn script_batches(&self, verdicts: impl IntoIterator<Item = Verdict>) {
        self.state
            .send_modify(|state| state.wholes.extend(verdicts));
    }

    /// The verdicts of the next attempts on this event, one each.
    pub fn script(&self, session: &str, seq: i64, verdicts: impl IntoIterator<Item = Verdict>) {
        let place = (session.to_owned(), seq);
        self.state
            .send_modify(|state| state.script.entry(place).or_default().extend(verdicts));
    }

    /// Makes deliveries of this session wait, those under way excepted that were answered already.
    pub fn hold(&self, session: &str) {
        self.state.send_modify(|state| {
            state.held.insert(session.to_owned());
        });
    }

    /// Makes all deliveries wait.
    pub fn hold_all(&self) {
        self.state.send_modify(|state| state.all_held = true);
    }

    /// Lets the deliveries of this session go on, unless all are held.
    pub fn release(&self, session: &str) {
        self.state.send_modify(|state| {
            state.held.remove(session);
        });
    }

    /// Lets every delivery go on.
    pub fn release_all(&self) {
        self.state.send_modify(|state| {
            state.held.clear();
            state.all_held = false;
        });
    }

    /// What has been seen so far.
    pub fn seen(&self) -> Seen {
        self.state.borrow().seen.clone()
    }

    /// Waits until `n` attempts have arrived. Unbounded: the test bounds its own time.
    pub async fn wait_for(&self, n: usize) -> Seen {
        self.wait_until(|seen| seen.deliveries.len() >= n).await
    }

    /// Waits until what has been seen satisfies `condition`. Unbounded, as above.
    pub async fn wait_until(&self, mut condition: impl FnMut(&Seen) -> bool) -> Seen {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| condition(&state.seen)).await;
        state.expect("this fake holds the sender").seen.clone()
    }

    async fn released(&self, session: &str) {
        let mut state = self.state.subscribe();
        let released = state.wait_for(|state| !state.all_held && !state.held.contains(session));
        released.await.expect("this fake holds the sender");
    }

    fn decide(&self, delivery: &Delivery<'_>) -> Verdict {
        let place = (delivery.event.session.to_string(), delivery.event.seq);
        let mut scripted = None;
        self.state.send_modify(|state| {
            scripted = state.script.get_mut(&place).and_then(VecDeque::pop_front);
        });
        scripted.unwrap_or_else(|| (self.answer)(delivery))
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Adapter for Fake {
    fn acknowledges(&self) -> bool {
        true
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let mut running = Running::enter(&self.state, delivery);
        let verdict = match timeout(self.timeout, self.released(&delivery.event.session)).await {
            Ok(()) => self.decide(delivery),
            Err(_) => Verdict::retry(format!("held for longer than {:?}", self.timeout)),
        };
        running.verdict = Some(verdict.clone());
        verdict
    }

    fn max_batch(&self) -> usize {
        self.batch
    }

    async fn deliver_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        let seqs = deliveries.iter().map(|one| one.event.seq).collect();
        self.state
            .send_modify(|state| state.seen.batches.push(seqs));
        let mut running: Vec<_> = deliveries
            .iter()
            .map(|delivery| Running::enter(&self.state, delivery))
            .collect();
        let session = &deliveries[0].event.session;
        if timeout(self.timeout, self.released(session)).await.is_err() {
            let error = format!("held for longer than {:?}", self.timeout);
            return BatchVerdict::Whole(Verdict::retry(error));
        }
        let mut whole = None;
        self.state
            .send_modify(|state| whole = state.wholes.pop_front());
        let verdict = match whole {
            Some(verdict) => BatchVerdict::Whole(verdict),
            None => {
                let mut verdicts = Vec::new();
                for delivery in deliveries {
                    let verdict = self.decide(delivery);
                    let is_taken = matches!(verdict, Verdict::Accepted | Verdict::Sent);
                    verdicts.push(verdict);
                    if !is_taken {
                        break;
                    }
                }
                BatchVerdict::Each(verdicts)
            }
        };
        for (position, one) in running.iter_mut().enumerate() {
            one.verdict = verdict.of(position).cloned();
        }
        verdict
    }
}

/// Counts a delivery as running until it is finished or dropped.
struct Running<'a> {
    state: &'a watch::Sender<State>,
    position: usize,
    verdict: Option<Verdict>,
}

impl<'a> Running<'a> {
    fn enter(state: &'a watch::Sender<State>, delivery: &Delivery<'_>) -> Self {
        let recorded = Recorded {
            event: delivery.event.clone(),
            subscription: delivery.subscription.to_owned(),
            attempt: delivery.attempt,
            requeued: delivery.requeued,
            replayed: delivery.replay_id.is_some(),
            verdict: None,
        };
        let mut position = 0;
        state.send_modify(|state| {
            position = state.seen.deliveries.len();
            state.seen.deliveries.push(recorded);
            state.seen.running += 1;
        });
        Self {
            state,
            position,
            verdict: None,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let verdict = self.verdict.take();
        self.state.send_modify(|state| {
            state.seen.deliveries[self.position].verdict = verdict;
            state.seen.running -= 1;
        });
    }
}
