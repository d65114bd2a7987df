//! A subscription whose messages are acknowledged: what was acknowledged comes no more, but for what was in flight; and no
//! cursor passes what nobody acknowledged.

use std::collections::{BTreeSet, HashMap, HashSet};

use uuid::Uuid;

use super::{Arrival, LaneName, Violation};

/// From the decision that a message goes until it is on record: the network, the proxies, a busy machine. Less than the time
/// after which a message is sent again.
const IN_FLIGHT_MS: i64 = 1_500;

/// What a consumer asked for and was told.
#[derive(Debug, Default)]
pub struct Acks {
    /// Messages whose acknowledgement was asked for, whatever came of it.
    pub asked: HashSet<Uuid>,
    /// When it was told that they are acknowledged.
    pub acked_ms: HashMap<Uuid, i64>,
    /// Session and seq of what a cursor had passed, without an outcome, before it was asked for.
    pub unasked: BTreeSet<(String, i64)>,
}

impl Acks {
    /// Each cause may send a message once more that was acknowledged meanwhile.
    pub fn judge(
        &self,
        subscription: &str,
        arrivals: &[Arrival],
        causes: usize,
        found: &mut BTreeSet<Violation>,
    ) {
        let lane = |session: &String| -> LaneName { (subscription.to_owned(), session.clone()) };
        for (session, seq) in &self.unasked {
            let (lane, seq) = (lane(session), *seq);
            found.insert(Violation::SettledUnacknowledged { lane, seq });
        }
        let mut late: HashMap<Uuid, usize> = HashMap::new();
        for arrival in arrivals
            .iter()
            .filter(|one| one.subscription == subscription)
        {
            let acked = self.acked_ms.get(&arrival.id);
            if acked.is_none_or(|acked_ms| arrival.at_ms <= acked_ms + IN_FLIGHT_MS) {
                continue;
            }
            let times = late.entry(arrival.id).or_default();
            *times += 1;
            if *times > causes {
                found.insert(Violation::SentAfterItsAcknowledgement {
                    lane: lane(&arrival.session),
                    seq: arrival.seq,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(at_ms: i64) -> Arrival {
        Arrival {
            at_ms,
            subscription: "some".to_owned(),
            session: "s".to_owned(),
            seq: 1,
            id: Uuid::nil(),
            attempt: 1,
            sender: 0,
            requeued: false,
            refused: false,
        }
    }

    fn wrong(acks: &Acks, arrivals: &[Arrival], causes: usize) -> usize {
        let mut found = BTreeSet::new();
        acks.judge("some", arrivals, causes, &mut found);
        found.len()
    }

    #[test]
    fn what_comes_long_after_its_acknowledgement_is_wrong_unless_something_was_cut() {
        let acks = Acks {
            acked_ms: [(Uuid::nil(), 1_000)].into(),
            ..Acks::default()
        };
        let arrivals = [arrival(500), arrival(1_000 + IN_FLIGHT_MS)];
        assert_eq!(wrong(&acks, &arrivals, 0), 0);
        let arrivals = [arrival(500), arrival(1_001 + IN_FLIGHT_MS)];
        assert_eq!(wrong(&acks, &arrivals, 0), 1);
        assert_eq!(wrong(&acks, &arrivals, 1), 0);
        assert_eq!(
            wrong(&Acks::default(), &arrivals, 0),
            0,
            "never acknowledged"
        );
    }

    #[test]
    fn what_a_cursor_passed_before_anybody_acknowledged_it_is_wrong() {
        let acks = Acks {
            unasked: [("s".to_owned(), 1)].into(),
            ..Acks::default()
        };
        assert_eq!(wrong(&acks, &[], 9), 1);
    }
}
