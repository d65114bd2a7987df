//! What became of each event of a load.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use tokio_postgres::Client;

use super::super::measure::{per_second, percentile_ms};
use super::*;

/// An event by its session's number and its seq.
pub type Key = (usize, i64);

#[derive(Default)]
pub struct Journal {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Events of which one end is not known yet.
    open: HashMap<Key, Open>,
    /// The last seq that was delivered, by session.
    cursors: Vec<i64>,
    /// Deliveries that did not follow the one before them.
    disordered: u64,
    repeated: u64,
    appended: u64,
    delivered: u64,
    opened_at: Option<Instant>,
    window: Duration,
    windows: Vec<Latencies>,
}

#[derive(Clone, Copy, Default)]
struct Open {
    called_and_answered: Option<(Instant, Instant)>,
    started_at: Option<Instant>,
}

/// Of the events of a window, by when they were called for.
#[derive(Clone, Default)]
pub struct Latencies {
    /// From the answer to the start of the delivery; nothing where that was before it.
    pub from_answer: Vec<Duration>,
    pub from_call: Vec<Duration>,
    /// Deliveries that started in the window, whenever they were called for.
    started: usize,
}

impl Journal {
    pub fn new(sessions: usize) -> Self {
        let state = State {
            cursors: vec![0; sessions],
            // One event each was loaded.
            appended: sessions as u64,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on samples are taken.
    pub fn begin(&self, opened_at: Instant, window: Duration, windows: usize) {
        let mut state = self.state();
        state.opened_at = Some(opened_at);
        state.window = window;
        state.windows = vec![Latencies::default(); windows];
    }

    /// Forgets the samples; from now on others are taken, in one window without an end.
    pub fn begin_anew(&self) {
        self.begin(Instant::now(), Duration::MAX, 1);
    }

    pub fn answered(&self, key: Key, called_at: Instant, answered_at: Instant) {
        let mut state = self.state();
        state.appended += 1;
        let open = state.open.entry(key).or_default();
        open.called_and_answered = Some((called_at, answered_at));
        state.close(key);
    }

    fn started(&self, key: Key, started_at: Instant) {
        let mut state = self.state();
        let (session, seq) = key;
        let Some(cursor) = state.cursors.get(session).copied() else {
            return;
        };
        if seq <= cursor {
            state.repeated += 1;
            return;
        }
        if seq != cursor + 1 {
            state.disordered += 1;
        }
        state.cursors[session] = seq;
        state.delivered += 1;
        if let Some(window) = state.window_of(started_at) {
            window.started += 1;
        }
        // The first event of each session was loaded: nobody waits for an answer to it.
        if seq > 1 {
            state.open.entry(key).or_default().started_at = Some(started_at);
            state.close(key);
        }
    }

    pub fn appended(&self) -> u64 {
        self.state().appended
    }

    pub fn started_in(&self, window: usize) -> usize {
        self.state().windows[window].started
    }

    /// Waits until so many events were delivered.
    pub async fn delivered(&self, expected: u64, patience: Duration) -> Result<(), BenchError> {
        let mut last = (0, Instant::now());
        loop {
            let delivered = self.state().delivered;
            if delivered >= expected {
                return Ok(());
            }
            if delivered > last.0 {
                last = (delivered, Instant::now());
            } else if last.1.elapsed() > patience {
                return Err(BenchError::Stalled {
                    delivered,
                    expected,
                    silent: patience,
                });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Proves that every event arrived, in order.
    pub async fn judge(&self, client: &Client) -> Result<(), BenchError> {
        let (delivered, appended, disordered) = {
            let state = self.state();
            (state.delivered, state.appended, state.disordered)
        };
        if disordered > 0 {
            return Err(BenchError::Disordered(disordered));
        }
        backlog::check_drained(client, delivered, appended as usize).await
    }

    pub fn all(&self) -> Latencies {
        let state = self.state();
        let mut all = Latencies::default();
        for window in &state.windows {
            all.from_answer.extend_from_slice(&window.from_answer);
            all.from_call.extend_from_slice(&window.from_call);
            all.started += window.started;
        }
        all
    }

    /// Writes the figures of a window.
    pub fn fill(&self, number: usize, filled: &mut Window) {
        let mut state = self.state();
        let length = state.window;
        let window = &mut state.windows[number];
        let from_s = length.as_secs_f64() * number as f64;
        let [p50_ms, p99_ms, max_ms] =
            [0.5, 0.99, 1.0].map(|f| percentile_ms(&mut window.from_answer, f));
        let [call_p50_ms, call_p99_ms] =
            [0.5, 0.99].map(|f| percentile_ms(&mut window.from_call, f));
        *filled = Window {
            from_s,
            to_s: from_s + length.as_secs_f64(),
            delivered_per_second: per_second(window.started, length),
            p50_ms,
            p99_ms,
            max_ms,
            call_p50_ms,
            call_p99_ms,
            cost: filled.cost,
            tables: std::mem::take(&mut filled.tables),
        };
    }
}

impl State {
    fn window_of(&mut self, at: Instant) -> Option<&mut Latencies> {
        let since = at.checked_duration_since(self.opened_at?)?;
        let number = since.as_secs_f64() / self.window.as_secs_f64();
        self.windows.get_mut(number as usize)
    }

    /// Takes the sample of an event of which both ends are known.
    fn close(&mut self, key: Key) {
        let Some(Open {
            called_and_answered: Some((called_at, answered_at)),
            started_at: Some(started_at),
        }) = self.open.get(&key).copied()
        else {
            return;
        };
        self.open.remove(&key);
        if let Some(window) = self.window_of(called_at) {
            let since = |at: Instant| started_at.saturating_duration_since(at);
            window.from_call.push(since(called_at));
            window.from_answer.push(since(answered_at));
        }
    }
}

/// The destination of the load.
pub struct Watched(pub Arc<Journal>);

#[async_trait]
impl Adapter for Watched {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let started_at = Instant::now();
        let event = &delivery.event;
        let number = event
            .session
            .strip_prefix(PREFIX)
            .and_then(|n| n.parse().ok());
        if let Some(session) = number {
            self.0.started((session, event.seq), started_at);
        }
        Verdict::Accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(opened_at: Instant) -> Journal {
        let journal = Journal::new(2);
        journal.begin(opened_at, Duration::from_secs(1), 2);
        journal
    }

    #[test]
    fn a_sample_is_taken_when_both_ends_are_known_whichever_is_first() {
        let t = Instant::now();
        let ms = Duration::from_millis;
        let journal = journal(t);
        for session in 0..2 {
            journal.started((session, 1), t);
        }
        journal.answered((0, 2), t + ms(10), t + ms(12));
        journal.started((0, 2), t + ms(15));
        // It started before its producer had read the answer.
        journal.started((1, 2), t + ms(1_003));
        journal.answered((1, 2), t + ms(1_001), t + ms(1_004));
        let windows = &journal.state().windows;
        assert_eq!(windows[0].from_answer, [ms(3)]);
        assert_eq!(windows[0].from_call, [ms(5)]);
        assert_eq!(windows[1].from_answer, [ms(0)]);
        assert_eq!(windows[1].from_call, [ms(2)]);
        assert_eq!((windows[0].started, windows[1].started), (3, 1));
    }

    #[test]
    fn a_repeated_delivery_counts_once_and_a_gap_is_noticed() {
        let t = Instant::now();
        let journal = journal(t);
        for seq in [1, 1, 3] {
            journal.started((0, seq), t);
        }
        let state = journal.state();
        assert_eq!(
            (state.delivered, state.repeated, state.disordered),
            (2, 1, 1)
        );
    }

    #[test]
    fn the_warm_up_is_not_measured() {
        let t = Instant::now();
        let journal = journal(t + Duration::from_secs(5));
        journal.started((0, 1), t);
        journal.answered((0, 2), t, t);
        journal.started((0, 2), t);
        assert!(journal.all().from_call.is_empty());
        assert_eq!(journal.appended(), 3);
    }
}
