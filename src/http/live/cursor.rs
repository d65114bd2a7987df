//! Where a follower stands, as text: the `id` of every message.
//!
//! | follows | its cursor |
//! |---|---|
//! | sessions by name | `17.42,18.7`: session 17 up to seq 42, session 18 up to seq 7 |
//! | a whole stream | `w90210.9459;17.42`: everything of transactions below 90210, and session 17 up to seq 42 |
//!
//! The second number of a stream's cursor is the day from which a scan begins, in days since 2000-01-01. Cursors are
//! for the client to give back as they are. A single session's seq alone is a cursor, too.

use std::collections::BTreeMap;
use std::fmt;

use jiff::civil::{Date, date};
use lanekeeper_postgres::follow::Horizon;

/// The day that is day 0 of a cursor.
const EPOCH: Date = date(2000, 1, 1);
/// Sessions that a stream's cursor lists. Those beyond are left out, and what they got since the horizon comes again after a
/// resume: a double, never a gap.
pub const LISTED: usize = 64;
/// The longest cursor that is read.
const LONGEST: usize = 4_096;

/// A cursor as a client gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// Of the one session that is followed.
    Seq(i64),
    /// Session ids, and the seqs up to which each was given.
    Sessions(BTreeMap<i64, i64>),
    Stream {
        since: Horizon,
        sessions: BTreeMap<i64, i64>,
    },
}

impl Cursor {
    /// `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        if let Some(rest) = text.strip_prefix('w') {
            let (since, listed) = rest.split_once(';').unwrap_or((rest, ""));
            let (xact, day) = since.split_once('.')?;
            let day = EPOCH
                .checked_add(jiff::Span::new().try_days(number(day)?).ok()?)
                .ok()?;
            let since = Horizon {
                xact: number(xact)?,
                day,
            };
            let sessions = match listed {
                "" => BTreeMap::new(),
                listed => sessions(listed)?,
            };
            return Some(Self::Stream { since, sessions });
        }
        match number(text) {
            Some(seq) => Some(Self::Seq(seq)),
            None => sessions(text).map(Self::Sessions),
        }
    }
}

fn sessions(text: &str) -> Option<BTreeMap<i64, i64>> {
    text.split(',')
        .map(|pair| {
            let (id, seq) = pair.split_once('.')?;
            Some((number(id)?, number(seq)?))
        })
        .collect()
}

/// Digits alone: no sign, no space.
fn number(text: &str) -> Option<i64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Writes the cursor of followed sessions, or of the stream where it has a horizon.
pub struct Shown<'a> {
    pub since: Option<Horizon>,
    /// Session ids, and the seqs up to which each was given.
    pub sessions: &'a mut dyn Iterator<Item = (i64, i64)>,
}

impl Shown<'_> {
    pub fn text(self) -> String {
        use fmt::Write as _;
        let mut text = String::new();
        let most = match self.since {
            None => usize::MAX,
            Some(since) => {
                let days = (since.day - EPOCH).get_days();
                let _ = write!(text, "w{}.{}", since.xact, days.max(0));
                LISTED
            }
        };
        let mut mark = if self.since.is_some() { ";" } else { "" };
        for (id, seq) in self.sessions.take(most) {
            let _ = write!(text, "{mark}{id}.{seq}");
            mark = ",";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let listed = BTreeMap::from([(17, 42), (18, 7)]);
        let shown = |since| {
            Shown {
                since,
                sessions: &mut listed.iter().map(|(id, seq)| (*id, *seq)),
            }
            .text()
        };
        assert_eq!(shown(None), "17.42,18.7");
        assert_eq!(
            Cursor::parse("17.42,18.7"),
            Some(Cursor::Sessions(listed.clone()))
        );
        let since = Horizon {
            xact: 90_210,
            day: date(2026, 3, 1),
        };
        let text = shown(Some(since));
        assert_eq!(text, "w90210.9556;17.42,18.7");
        let sessions = listed.clone();
        assert_eq!(
            Cursor::parse(&text),
            Some(Cursor::Stream { since, sessions })
        );
        assert_eq!(Cursor::parse("42"), Some(Cursor::Seq(42)));
        let sessions = BTreeMap::new();
        assert_eq!(
            Cursor::parse("w90210.9556"),
            Some(Cursor::Stream { since, sessions })
        );
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for bad in [
            "",
            "-1",
            "+1",
            " 1",
            "1.",
            ".1",
            "1.2,",
            "1.2;3.4",
            "w",
            "w1",
            "w1.2;x",
            "w1.99999999999;",
            "w-1.2",
            "99999999999999999999",
            "1.2.3",
        ] {
            assert_eq!(Cursor::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Cursor::parse(&"1.1,".repeat(4_096)), None);
    }

    #[test]
    fn a_streams_cursor_lists_a_bounded_number_of_sessions() {
        let since = Horizon {
            xact: 1,
            day: EPOCH,
        };
        let mut many = (0..10_000).map(|id| (id, 1));
        let shown = Shown {
            since: Some(since),
            sessions: &mut many,
        };
        let text = shown.text();
        assert!(text.len() < LONGEST);
        let Some(Cursor::Stream { sessions, .. }) = Cursor::parse(&text) else {
            panic!("{text}");
        };
        assert_eq!(sessions.len(), LISTED);
    }
}
