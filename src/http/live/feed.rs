//! One followed session of a worker: its newest events in memory, shared by all followers.
//!
//! ```text
//! log:      1 2 3 … 40 | 41 42 43 | 44 …
//!           in Postgres  the ring   not read yet; 44 is `next`
//! ```
//!
//! A follower reads by its next seq: from the ring where that has it, from Postgres where it is older. So no event is
//! queued for anybody, and a slow client costs no memory. There can be neither a gap nor a double where a follower goes
//! over from Postgres to the ring: both are asked for the same next seq.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use axum::body::Bytes;
use jiff::Timestamp;
use jiff::civil::{Date, date};
use lanekeeper_postgres::follow::{Closed, Next, Read};
use lanekeeper_postgres::log::LineView;

use super::inbox::{Inbox, Ready};

/// Events that one session keeps in memory.
const MOST_EVENTS: usize = 512;
const BEGINNING: Date = date(2000, 1, 1);

/// An event as followers get it.
#[derive(Debug)]
pub struct Event {
    pub seq: i64,
    pub event_type: Box<str>,
    pub created_at: Timestamp,
    pub xact: i64,
    /// The event as JSON in one line.
    pub json: Bytes,
}

impl Event {
    /// `None`: its payload was left out.
    pub fn new(stream: &str, session: &str, read: Read) -> Option<Self> {
        let view = LineView::new(stream, session, read.event.as_ref()?);
        let mut json = serde_json::to_vec(&view).expect("what came out of Postgres is JSON");
        // White space between the parts of a payload; inside of strings there is no such character.
        for byte in &mut json {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        Some(Self {
            seq: read.seq,
            event_type: read.event_type.into(),
            created_at: read.created_at,
            xact: read.xact,
            json: json.into(),
        })
    }

    pub fn bytes(&self) -> usize {
        self.json.len() + 128
    }
}

/// What a feed has from a seq on.
#[derive(Debug)]
pub enum Taken {
    /// The ring begins later: read Postgres.
    Behind,
    Events(Vec<Arc<Event>>),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    Ended(Closed),
}

pub struct Feed {
    pub stream_id: i32,
    pub session_id: i64,
    pub name: Arc<str>,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    /// Without gaps; the last one is `next` - 1.
    events: VecDeque<Arc<Event>>,
    /// What the reader reads next. `None`: not known yet.
    next: Option<(i64, Date)>,
    /// The horizon at which a stream's followers opened it, and the first seq above it.
    opened: Option<(i64, i64)>,
    closed: Option<Closed>,
    followers: Vec<Weak<Inbox>>,
}

impl Ring {
    fn start(&self) -> Option<i64> {
        match self.events.front() {
            Some(event) => Some(event.seq),
            None => self.next.map(|(seq, _)| seq),
        }
    }
}

impl Feed {
    pub fn new(stream_id: i32, session_id: i64, name: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            stream_id,
            session_id,
            name,
            ring: Mutex::default(),
        })
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, inbox: &Arc<Inbox>) {
        self.ring().followers.push(Arc::downgrade(inbox));
    }

    /// Forgets followers that left. Whether any is there.
    pub fn is_followed(&self) -> bool {
        let mut ring = self.ring();
        ring.followers.retain(|inbox| inbox.strong_count() > 0);
        !ring.followers.is_empty()
    }

    /// Where reading begins, if that is not known yet.
    pub fn begin(&self, next: i64, closed: Option<Closed>) {
        let mut ring = self.ring();
        if ring.next.is_none() {
            ring.next = Some((next, BEGINNING));
            ring.closed = closed;
        }
    }

    /// As [`Self::begin`], behind a horizon.
    pub fn open(&self, xact: i64, first: i64) {
        self.begin(first, None);
        let mut ring = self.ring();
        if ring.start() == Some(first) {
            ring.opened = Some((xact, first));
        }
    }

    /// What the reader is to read.
    pub fn next(&self) -> Option<Next> {
        let (seq, day) = self.ring().next?;
        Some(Next {
            session_id: self.session_id,
            seq,
            day,
        })
    }

    /// Adds what was read. `None`: an event that is too large for the ring.
    pub fn push(&self, seq: i64, day: Date, event: Option<Arc<Event>>) {
        let mut ring = self.ring();
        let Some((next, _)) = ring.next else {
            return;
        };
        if seq < next {
            return;
        }
        if seq > next {
            // What lies between is gone from the log.
            ring.events.clear();
        }
        ring.next = Some((seq + 1, day));
        match event {
            Some(event) => ring.events.push_back(event),
            None => ring.events.clear(),
        }
        if ring.events.len() > MOST_EVENTS {
            ring.events.pop_front();
        }
    }

    /// Drops the event with this seq and those before it. Returns the bytes that they took.
    pub fn drop_up_to(&self, seq: i64) {
        let mut ring = self.ring();
        while ring.events.front().is_some_and(|event| event.seq <= seq) {
            ring.events.pop_front();
        }
    }

    pub fn set_closed(&self, closed: Option<Closed>) {
        self.ring().closed = closed;
    }

    /// Tells the session's followers, and those of `wide`, to look.
    pub fn tell(self: &Arc<Self>, wide: &[Weak<Inbox>]) {
        let followers = self.ring().followers.clone();
        for inbox in followers.iter().chain(wide) {
            if let Some(inbox) = inbox.upgrade() {
                inbox.put(Ready::Feed(Arc::clone(self)));
            }
        }
    }

    /// How many events there are from a seq on, as far as they were read.
    pub fn distance(&self, seq: i64) -> i64 {
        self.ring().next.map_or(0, |(next, _)| next - seq)
    }

    /// The events from `seq` on, as many as fit.
    pub fn take(&self, seq: i64, most: usize, most_bytes: usize) -> Taken {
        let ring = self.ring();
        let Some(start) = ring.start() else {
            return Taken::Nothing;
        };
        if seq < start {
            return Taken::Behind;
        }
        let skip = usize::try_from(seq - start).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let taken: Vec<Arc<Event>> = ring
            .events
            .iter()
            .skip(skip)
            .take(most)
            .take_while(|event| {
                let fits = bytes < most_bytes;
                bytes += event.bytes();
                fits
            })
            .cloned()
            .collect();
        match &ring.closed {
            _ if !taken.is_empty() => Taken::Events(taken),
            Some(closed) if seq > closed.seq => Taken::Ended(closed.clone()),
            _ => Taken::Nothing,
        }
    }

    /// The first seq that a cursor at this horizon lacks, where the ring tells.
    pub fn first_since(&self, xact: i64) -> Option<i64> {
        let ring = self.ring();
        if let Some(event) = ring.events.iter().rev().find(|event| event.xact < xact) {
            return Some(event.seq + 1);
        }
        let start = ring.start()?;
        if start == 1 {
            return Some(1);
        }
        let (opened, first) = ring.opened?;
        (first == start && opened <= xact).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: i64, xact: i64) -> Arc<Event> {
        Arc::new(Event {
            seq,
            event_type: "step".into(),
            created_at: Timestamp::UNIX_EPOCH,
            xact,
            json: Bytes::from_static(b"{}"),
        })
    }

    fn feed(events: std::ops::Range<i64>) -> Arc<Feed> {
        let feed = Feed::new(1, 1, "s".into());
        feed.begin(events.start, None);
        for seq in events {
            feed.push(seq, BEGINNING, Some(event(seq, 100 + seq)));
        }
        feed
    }

    fn seqs(taken: Taken) -> Vec<i64> {
        match taken {
            Taken::Events(events) => events.iter().map(|event| event.seq).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_follower_gets_what_the_ring_has_from_its_seq_on_and_is_sent_to_the_log_for_older_events() {
        let feed = feed(5..9);
        assert!(matches!(feed.take(4, 10, 10_000), Taken::Behind));
        assert_eq!(seqs(feed.take(5, 10, 10_000)), [5, 6, 7, 8]);
        assert_eq!(seqs(feed.take(7, 1, 10_000)), [7]);
        assert_eq!(seqs(feed.take(5, 10, 1)), [5], "one at the least");
        assert!(matches!(feed.take(9, 10, 10_000), Taken::Nothing));
        feed.drop_up_to(6);
        assert!(matches!(feed.take(6, 10, 10_000), Taken::Behind));
        assert_eq!(seqs(feed.take(7, 10, 10_000)), [7, 8]);
    }

    #[test]
    fn an_event_that_is_too_large_and_a_gap_in_the_log_send_followers_to_the_log() {
        let feed = feed(1..4);
        feed.push(4, BEGINNING, None);
        assert!(matches!(feed.take(3, 10, 10_000), Taken::Behind));
        assert!(matches!(feed.take(5, 10, 10_000), Taken::Nothing));
        feed.push(9, BEGINNING, Some(event(9, 1)));
        assert!(matches!(feed.take(5, 10, 10_000), Taken::Behind));
        assert_eq!(seqs(feed.take(9, 10, 10_000)), [9]);
    }

    #[test]
    fn what_was_read_twice_is_there_once() {
        let feed = feed(1..4);
        feed.push(3, BEGINNING, Some(event(3, 1)));
        assert_eq!(seqs(feed.take(1, 10, 10_000)), [1, 2, 3]);
    }

    #[test]
    fn the_end_comes_after_the_last_event_only() {
        let feed = feed(1..4);
        let closed = Closed {
            seq: 4,
            reason: None,
        };
        feed.set_closed(Some(closed));
        assert!(matches!(feed.take(4, 10, 10_000), Taken::Nothing));
        feed.push(4, BEGINNING, Some(event(4, 1)));
        assert_eq!(seqs(feed.take(4, 10, 10_000)), [4]);
        assert!(matches!(feed.take(5, 10, 10_000), Taken::Ended(_)));
    }

    #[test]
    fn a_horizon_is_found_in_the_ring_or_not_at_all() {
        // Numbers 105 to 108.
        let recent = feed(5..9);
        assert_eq!(recent.first_since(107), Some(7));
        assert_eq!(recent.first_since(200), Some(9));
        assert_eq!(
            recent.first_since(105),
            None,
            "an older event may be above it"
        );
        assert_eq!(feed(1..3).first_since(1), Some(1));
        let opened = Feed::new(1, 1, "s".into());
        opened.open(90, 5);
        assert_eq!(opened.first_since(90), Some(5));
        assert_eq!(opened.first_since(89), None);
    }
}
