//! One of the producers of a load.

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio_postgres::types::Json;
use tokio_postgres::{Client, Statement};

use super::super::backlog::STREAM;
use super::super::prepare;
use super::*;

const ENQUEUE: &str = "SELECT seq FROM lanekeeper.enqueue($1, $2, 'message', $3)";

/// Which sessions one producer appends to, and how often.
#[derive(Clone, Debug)]
pub struct Mix {
    hot: Vec<usize>,
    cold: Vec<usize>,
    /// Between the schedule's begin and this producer's first event.
    offset: Duration,
    every: Duration,
}

impl Mix {
    /// Of producer `number`: every session belongs to one.
    pub fn new(load: Load, number: usize, producers: usize) -> Self {
        let own = |sessions: std::ops::Range<usize>| {
            sessions.filter(|s| s % producers == number).collect()
        };
        let between = Duration::from_secs_f64(1.0 / load.per_second);
        Self {
            hot: own(0..load.hot),
            cold: own(load.hot..load.sessions),
            offset: between * number as u32,
            every: between * producers as u32,
        }
    }

    /// Of the producer's event of this number: hot and cold in turn.
    fn session(&self, event: usize) -> usize {
        let (list, turn) = match (self.hot.is_empty(), self.cold.is_empty()) {
            (false, false) if event.is_multiple_of(2) => (&self.hot, event / 2),
            (false, false) => (&self.cold, event / 2),
            (false, true) => (&self.hot, event),
            (true, _) => (&self.cold, event),
        };
        list[turn % list.len()]
    }
}

/// When a producer works.
pub struct Schedule {
    begin: Instant,
    until: Option<Instant>,
    stopped: Option<watch::Receiver<bool>>,
}

impl Schedule {
    pub fn between(begin: Instant, until: Instant) -> Self {
        Self {
            begin,
            until: Some(until),
            stopped: None,
        }
    }

    pub fn until_stopped(begin: Instant, stopped: watch::Receiver<bool>) -> Self {
        Self {
            begin,
            until: None,
            stopped: Some(stopped),
        }
    }

    /// Whether what is due at that instant is still to be done.
    fn has(&self, due_at: Instant) -> bool {
        let in_time = |until: Instant| due_at < until && Instant::now() < until;
        let stopped = self
            .stopped
            .as_ref()
            .is_some_and(|stopped| *stopped.borrow());
        self.until.is_none_or(in_time) && !stopped
    }
}

pub struct Producer {
    client: Client,
    enqueue: Statement,
    journal: Arc<Journal>,
    mix: Mix,
    payload: Box<RawValue>,
}

impl Producer {
    pub async fn new(
        scratch: &Scratch,
        journal: Arc<Journal>,
        mix: Mix,
    ) -> Result<Self, BenchError> {
        let client = scratch.connect().await?;
        Ok(Self {
            enqueue: prepare(&client, ENQUEUE).await?,
            client,
            journal,
            mix,
            payload: backlog::payload(),
        })
    }

    pub async fn run(self, schedule: Schedule) -> Result<(), BenchError> {
        let mut due_at = schedule.begin + self.mix.offset;
        let mut event = 0;
        // What is overdue at the end stays undone: it is missing in the rate.
        while schedule.has(due_at) {
            sleep_until(due_at.into()).await;
            let session = self.mix.session(event);
            let called_at = Instant::now();
            let seq = self.append(session).await?;
            self.journal
                .answered((session, seq), called_at, Instant::now());
            event += 1;
            due_at += self.mix.every;
        }
        Ok(())
    }

    async fn append(&self, session: usize) -> Result<i64, BenchError> {
        let name = format!("{PREFIX}{session}");
        self.client
            .query_one(&self.enqueue, &[&STREAM, &name, &Json(&*self.payload)])
            .await
            .map(|row| row.get(0))
            .map_err(BenchError::on("enqueuing an event"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(hot: usize) -> Load {
        Load {
            per_second: 1_000.0,
            hot,
            sessions: 20,
            time: Duration::from_secs(1),
        }
    }

    #[test]
    fn every_session_has_one_producer_and_half_of_the_events_are_hot() {
        let mut seen = vec![0; 20];
        for number in 0..4 {
            let mix = Mix::new(load(4), number, 4);
            let sessions: Vec<usize> = (0..80).map(|event| mix.session(event)).collect();
            assert_eq!(sessions.iter().filter(|s| **s < 4).count(), 40);
            assert!(sessions.iter().all(|s| s % 4 == number));
            sessions.iter().for_each(|s| seen[*s] += 1);
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }

    #[test]
    fn all_share_alike_where_none_is_hot() {
        let mix = Mix::new(load(0), 1, 4);
        let sessions: Vec<usize> = (0..10).map(|event| mix.session(event)).collect();
        assert_eq!(sessions, [1, 5, 9, 13, 17, 1, 5, 9, 13, 17]);
        assert_eq!(mix.every, Duration::from_millis(4));
        assert_eq!(mix.offset, Duration::from_millis(1));
    }
}
