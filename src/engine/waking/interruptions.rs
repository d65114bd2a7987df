//! What sessions were closed or interrupted for, and which events were cancelled, while lanes of them were held.
//!
//! A close or an interrupt does not depend on this: the lane's progress gets a new version, so the holder settles nothing
//! any more. The notification makes it stop at once. It is acted on in this order: first what was left is passed, then
//! deliveries are cancelled. The other way round, the lane would be claimed again and its head delivered again.
//!
//! | reach | which events | what their holder does |
//! |---|---|---|
//! | [`Through`](Reach::Through) | up to a seq, of lanes that were claimed before: the session may be reopened | cancels the delivery; its settlement is refused |
//! | [`Behind`](Reach::Behind) | up to a seq | lets the delivery end, settles, and has the rest passed under its own lock |
//! | [`Only`](Reach::Only) | one, of lanes that were claimed before: others find its mark when they fetch it | cancels the delivery, and passes the event with its outcome |
//!
//! Workers that hear no notification read the same from `closing_lane`, at the poll floor.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long an interruption is remembered, for lanes that wait for something else when it is heard of. Longer than its row in
/// `closing_lane` is kept: what is read again is known.
const REMEMBERED: Duration = Duration::from_secs(300);
/// The same where a delivery that is under way is not cut short: events behind it may have been fetched long ago.
const REMEMBERED_LONG: Duration = Duration::from_secs(24 * 3600);
/// How many are remembered; the oldest go first.
const MOST: usize = 10_000;

/// Which events of a session, as in a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    Through,
    Behind,
    Only,
}

/// A notification's payload: a session, a seq and a reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    pub session_id: i64,
    pub seq: i64,
    pub reach: Reach,
}

/// A payload that is no interruption. A later release may send more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownInterruption;

impl FromStr for Interruption {
    type Err = UnknownInterruption;

    fn from_str(payload: &str) -> Result<Self, UnknownInterruption> {
        let mut parts = payload.split(' ');
        let mut number = || parts.next()?.parse().ok();
        let (session_id, seq) = (number(), number());
        let reach = match (parts.next(), parts.next()) {
            (Some("through"), None) => Some(Reach::Through),
            (Some("behind"), None) => Some(Reach::Behind),
            (Some("only"), None) => Some(Reach::Only),
            _ => None,
        };
        match (session_id, seq, reach) {
            (Some(session_id), Some(seq), Some(reach)) => Ok(Self {
                session_id,
                seq,
                reach,
            }),
            _ => Err(UnknownInterruption),
        }
    }
}

/// Each with when it was heard of last.
type Heard = BTreeMap<(i64, Reach, i64), Instant>;

/// The interruptions that this worker heard of.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// Whether there ever was one: deliveries ask before each event.
    any: AtomicBool,
    heard: watch::Sender<Heard>,
}

impl Interruptions {
    /// Deliveries of these events are to end, or those behind the one under way are not to begin.
    pub fn add(&self, interruption: Interruption) {
        let Interruption {
            session_id,
            seq,
            reach,
        } = interruption;
        self.heard.send_modify(|heard| {
            heard.retain(|(_, reach, _), at| {
                let remembered = match reach {
                    Reach::Through => REMEMBERED,
                    Reach::Behind | Reach::Only => REMEMBERED_LONG,
                };
                at.elapsed() < remembered
            });
            let is_known = heard.contains_key(&(session_id, reach, seq));
            if heard.len() >= MOST
                && !is_known
                && let Some(oldest) = heard.iter().min_by_key(|(_, at)| **at)
            {
                let oldest = *oldest.0;
                heard.remove(&oldest);
            }
            heard.insert((session_id, reach, seq), Instant::now());
        });
        self.any.store(true, Ordering::Release);
    }

    /// Adds what was read at the poll floor, except for what is known: lanes that were claimed since are not concerned.
    pub fn read(&self, payloads: &[String]) {
        for interruption in payloads.iter().filter_map(|payload| payload.parse().ok()) {
            let Interruption {
                session_id,
                seq,
                reach,
            } = interruption;
            let is_known = self.heard.borrow().contains_key(&(session_id, reach, seq));
            if !is_known {
                self.add(interruption);
            }
        }
    }

    /// What keeps this event of a lane from being delivered.
    pub fn ahead(&self, session_id: i64, seq: i64, claimed_at: Instant) -> Option<Reach> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let heard = self.heard.borrow();
        cut(&heard, session_id, seq, claimed_at).or_else(|| {
            heard
                .range((session_id, Reach::Behind, seq)..=(session_id, Reach::Behind, i64::MAX))
                .next()
                .map(|_| Reach::Behind)
        })
    }

    /// Returns when the delivery of this event is to be cut short, and by what.
    pub async fn wait(&self, session_id: i64, seq: i64, claimed_at: Instant) -> Reach {
        let mut reach = Reach::Through;
        let mut heard = self.heard.subscribe();
        // It fails only if the sender, which `self` owns, is gone.
        let _ = heard
            .wait_for(|heard| {
                let found = cut(heard, session_id, seq, claimed_at);
                reach = found.unwrap_or(reach);
                found.is_some()
            })
            .await;
        reach
    }
}

fn cut(heard: &Heard, session_id: i64, seq: i64, claimed_at: Instant) -> Option<Reach> {
    let through = heard
        .range((session_id, Reach::Through, seq)..=(session_id, Reach::Through, i64::MAX))
        .any(|(_, at)| *at >= claimed_at);
    if through {
        return Some(Reach::Through);
    }
    heard
        .get(&(session_id, Reach::Only, seq))
        .is_some_and(|at| *at >= claimed_at)
        .then_some(Reach::Only)
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    fn interruption(session_id: i64, seq: i64, reach: Reach) -> Interruption {
        Interruption {
            session_id,
            seq,
            reach,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_lanes_that_were_claimed_before_the_close_hear_of_it() {
        let interruptions = Interruptions::default();
        let before = Instant::now();
        assert_eq!(interruptions.ahead(1, 5, before), None);
        advance(Duration::from_secs(1)).await;
        interruptions.add(interruption(1, 5, Reach::Through));
        advance(Duration::from_secs(1)).await;
        let waits = async |session_id, seq, claimed_at| {
            let waiting = interruptions.wait(session_id, seq, claimed_at);
            timeout(Duration::from_millis(1), waiting).await.is_err()
        };
        let now = Instant::now();
        assert_eq!(interruptions.ahead(1, 5, before), Some(Reach::Through));
        assert!(!waits(1, 5, before).await && !waits(1, 4, before).await);
        assert_eq!(interruptions.ahead(1, 5, now), None, "claimed after it");
        assert!(waits(1, 5, now).await);
        assert_eq!(
            interruptions.ahead(1, 6, before),
            None,
            "the interrupt itself"
        );
        assert!(waits(1, 6, before).await);
        assert!(interruptions.ahead(2, 5, before).is_none() && waits(2, 5, before).await);
        advance(REMEMBERED).await;
        interruptions.add(interruption(2, 5, Reach::Through));
        assert_eq!(interruptions.ahead(1, 5, before), None, "forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_barrier_holds_back_what_comes_before_it_and_cuts_nothing_short() {
        let interruptions = Interruptions::default();
        let before = Instant::now();
        interruptions.add(interruption(1, 5, Reach::Behind));
        advance(REMEMBERED * 2).await;
        interruptions.add(interruption(2, 5, Reach::Behind));
        assert_eq!(interruptions.ahead(1, 5, before), Some(Reach::Behind));
        assert_eq!(interruptions.ahead(1, 6, before), None);
        let waiting = interruptions.wait(1, 4, before);
        assert!(timeout(Duration::from_secs(1), waiting).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_event_is_told_from_its_neighbours() {
        let interruptions = Interruptions::default();
        let before = Instant::now();
        interruptions.add(interruption(1, 5, Reach::Only));
        assert_eq!(interruptions.ahead(1, 5, before), Some(Reach::Only));
        assert_eq!(interruptions.wait(1, 5, before).await, Reach::Only);
        assert_eq!(interruptions.ahead(1, 4, before), None);
        assert_eq!(interruptions.ahead(1, 6, before), None);
        advance(Duration::from_secs(1)).await;
        let after = Instant::now();
        interruptions.read(&["1 5 only".to_owned(), "2 5 behind".to_owned()]);
        assert_eq!(interruptions.ahead(2, 5, before), Some(Reach::Behind));
        assert_eq!(interruptions.ahead(1, 5, after), None, "it finds the mark");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_are_remembered() {
        let interruptions = Interruptions::default();
        let before = Instant::now();
        for seq in 0..=i64::try_from(MOST).unwrap() {
            interruptions.add(interruption(1, seq, Reach::Only));
            advance(Duration::from_micros(1)).await;
        }
        assert_eq!(interruptions.heard.borrow().len(), MOST);
        assert_eq!(interruptions.ahead(1, 0, before), None, "the oldest");
        assert_eq!(interruptions.ahead(1, 1, before), Some(Reach::Only));
    }

    #[test]
    fn a_notification_that_is_not_understood_is_left_alone() {
        assert_eq!("7 9 behind".parse(), Ok(interruption(7, 9, Reach::Behind)));
        for payload in ["", "7", "7 9", "7 9 all", "7 9 only 1", "x 9 only"] {
            assert_eq!(payload.parse::<Interruption>(), Err(UnknownInterruption));
        }
    }
}
