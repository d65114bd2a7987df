//! Which of a batch's events go out, which are filtered, which are replaced by a newer one (I12).
//!
//! Critical events are never merged and never reordered. Between two of them, of the bursty events
//! of one type only the newest goes out; the others have the outcome `coalesced` with the seq that
//! went instead. Only events that are waiting together are merged: with an idle destination each
//! goes out as it comes.
//!
//! Where an adapter shows progress (G5) its word counts instead of types: of the versions of one message
//! only the newest goes out. A final, and an event that is a message of its own, goes out always and ends
//! the segment. So does the first version of another message: messages keep the order in which they first
//! appear. Of a payload that is not there yet because it is large its gist is enough; without one it counts as a
//! message of its own. A version of which the destination has a part already goes out like a final, or of long
//! ones that follow each other fast none would ever be shown to its end.

use std::collections::{HashMap, HashSet};

use lanekeeper_core::adapter::{Adapter, Role};
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::gist::Gists;

/// What may be merged.
#[derive(Clone, Copy)]
pub enum Merging<'a> {
    Nothing,
    /// Events of one type, but for these types.
    Types {
        critical: &'a [String],
    },
    /// Versions of one message, as the adapter has it; by their gists where payloads stayed behind.
    Messages {
        adapter: &'a dyn Adapter,
        gists: &'a Gists,
    },
}

/// What to do with an event of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Deliver,
    /// Outside the subscription's filter: the cursor passes it.
    Filtered,
    /// A newer event of the same type goes instead.
    Coalesced {
        replaced_by: i64,
    },
}

/// One step per event, in order.
pub fn plan(events: &[FetchedEvent], merging: Merging<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = events
        .iter()
        .map(|event| {
            if event.matched {
                Step::Deliver
            } else {
                Step::Filtered
            }
        })
        .collect();
    match merging {
        Merging::Nothing => {}
        Merging::Types { critical } => merge_types(&mut steps, events, critical),
        Merging::Messages { adapter, gists } => {
            let role = |event: &FetchedEvent| {
                let said = event.payload.as_ref().or_else(|| gists.get(&event.seq));
                match said.map_or(Role::Whole, |said| adapter.role(said)) {
                    Role::Progress { key } if adapter.has_begun(event.message_id) => {
                        Role::Final { key }
                    }
                    role => role,
                }
            };
            let roles: Vec<Option<Role>> = events
                .iter()
                .map(|event| event.matched.then(|| role(event)))
                .collect();
            merge_messages(&mut steps, events, &roles);
        }
    }
    steps
}

fn merge_types(steps: &mut [Step], events: &[FetchedEvent], critical: &[String]) {
    let mut newest: HashMap<&str, i64> = HashMap::new();
    for (step, event) in steps.iter_mut().zip(events).rev() {
        if critical.iter().any(|name| **name == *event.event_type)
            && !Mutation::CriticalEventsMerged.is_on()
        {
            // Also where the filter leaves it out: the segment ends in the session, not in the lane.
            if !Mutation::SegmentsRunOn.is_on() {
                newest.clear();
            }
        } else if *step == Step::Deliver {
            match newest.get(&*event.event_type) {
                Some(&replaced_by) => *step = Step::Coalesced { replaced_by },
                None => {
                    newest.insert(&event.event_type, event.seq);
                }
            }
        }
    }
}

/// `None` for what is filtered.
fn merge_messages(steps: &mut [Step], events: &[FetchedEvent], roles: &[Option<Role>]) {
    let mut seen = HashSet::new();
    let first: Vec<bool> = roles
        .iter()
        .map(|role| match role {
            Some(Role::Progress { key } | Role::Final { key }) => seen.insert(key.as_str()),
            Some(Role::Whole) | None => false,
        })
        .collect();
    // The newest version of each message of the segment.
    let mut newest: HashMap<&str, i64> = HashMap::new();
    for (i, event) in events.iter().enumerate().rev() {
        match &roles[i] {
            None => continue,
            Some(Role::Whole) => newest.clear(),
            Some(Role::Final { key }) => {
                newest.clear();
                newest.insert(key, event.seq);
            }
            Some(Role::Progress { key }) => match newest.get(key.as_str()) {
                Some(&replaced_by) => steps[i] = Step::Coalesced { replaced_by },
                None => {
                    newest.insert(key, event.seq);
                }
            },
        }
        if first[i] {
            // What other messages say before this is not replaced by what they say after it.
            let Some(Role::Progress { key } | Role::Final { key }) = &roles[i] else {
                continue;
            };
            newest.retain(|other, _| other == key);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::civil::date;
    use lanekeeper_core::adapter::{Delivery, Verdict};
    use uuid::Uuid;

    use super::*;

    fn events(types: &[&str]) -> Vec<FetchedEvent> {
        (1..)
            .zip(types)
            .map(|(seq, name)| FetchedEvent {
                seq,
                day: date(2026, 1, 1),
                message_id: Uuid::nil(),
                event_type: name.trim_start_matches('-').into(),
                created_at: Timestamp::UNIX_EPOCH,
                size: 2,
                matched: !name.starts_with('-'),
                payload: Some("{}".to_owned()),
                headers: None,
            })
            .collect()
    }

    fn types(batch: &[FetchedEvent]) -> Vec<Step> {
        let critical = ["prompt".to_owned(), "stop".to_owned()];
        let critical = &critical;
        plan(batch, Merging::Types { critical })
    }

    /// Takes `k1` for progress of k, `k!` for its final, `.` for a message of its own. `k1+` has begun.
    struct Speaker;

    #[async_trait::async_trait]
    impl Adapter for Speaker {
        async fn deliver(&self, _delivery: &Delivery<'_>) -> Verdict {
            Verdict::Accepted
        }

        fn has_begun(&self, message_id: Uuid) -> bool {
            !message_id.is_nil()
        }

        fn role(&self, payload: &str) -> Role {
            let (key, version) = payload.split_at(1);
            let key = key.to_owned();
            match version {
                "" => Role::Whole,
                "!" => Role::Final { key },
                _ => Role::Progress { key },
            }
        }
    }

    /// What goes out of a list, and what went instead of the rest. A payload in brackets is known by its gist
    /// only, `[]` not even by that.
    fn spoken(list: &str) -> String {
        let words: Vec<&str> = list.split(' ').collect();
        let mut batch = events(&words);
        let mut gists = Gists::new();
        for (event, word) in batch.iter_mut().zip(&words) {
            event.payload =
                (!word.starts_with('[')).then(|| word.trim_start_matches('-').to_owned());
            event.message_id = Uuid::from_u128(word.ends_with('+').into());
            let gist = word.trim_matches(['[', ']']);
            if gist.len() < word.len() && !gist.is_empty() {
                gists.insert(event.seq, gist.to_owned());
            }
        }
        let messages = Merging::Messages {
            adapter: &Speaker,
            gists: &gists,
        };
        let steps = plan(&batch, messages);
        let told = words.iter().zip(steps).map(|(word, step)| match step {
            Step::Deliver => (*word).to_owned(),
            Step::Filtered => "-".to_owned(),
            Step::Coalesced { replaced_by } => format!(">{replaced_by}"),
        });
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_a_messages_versions_the_newest_goes_out_and_its_final_always() {
        assert_eq!(spoken("a1 a2 a3"), ">3 >3 a3");
        assert_eq!(spoken("a1 a2 a! a4 a5 a!"), ">3 >3 a! >6 >6 a!");
        assert_eq!(spoken("a! a! b! . ."), "a! a! b! . .");
    }

    #[test]
    fn finals_and_messages_of_their_own_end_the_segment() {
        assert_eq!(spoken("a1 . a2"), "a1 . a2");
        assert_eq!(spoken("a1 b! a2"), "a1 b! a2");
    }

    #[test]
    fn a_version_that_has_begun_is_said_to_its_end() {
        assert_eq!(spoken("a1+ a2 a3"), "a1+ >3 a3");
        assert_eq!(spoken("a1+ b1 a2 b2 a!"), "a1+ >4 >5 b2 a!");
    }

    #[test]
    fn a_large_version_is_one_like_any_other_where_its_gist_is_known() {
        assert_eq!(spoken("[a1] a2 [a3] b1 [a!]"), ">3 >3 [a3] b1 [a!]");
        assert_eq!(spoken("a1 [] a2"), "a1 [] a2");
    }

    #[test]
    fn messages_keep_the_order_in_which_they_first_appear() {
        assert_eq!(spoken("a1 b1 a2"), "a1 b1 a2");
        assert_eq!(spoken("a1 b1 a2 b2 a3"), "a1 >4 >5 b2 a3");
        assert_eq!(spoken("a1 a2 b1 a3 b! a!"), ">2 a2 >5 a3 b! a!");
    }

    #[test]
    fn what_is_filtered_neither_replaces_nor_ends_anything() {
        assert_eq!(spoken("a1 -a2 -. a3"), ">4 - - a3");
    }

    #[test]
    fn the_newest_bursty_event_of_each_type_goes_out_in_each_segment() {
        let batch = events(&["prompt", "use", "done", "use", "done", "stop", "use", "use"]);
        assert_eq!(
            types(&batch),
            [
                Step::Deliver,
                Step::Coalesced { replaced_by: 4 },
                Step::Coalesced { replaced_by: 5 },
                Step::Deliver,
                Step::Deliver,
                Step::Deliver,
                Step::Coalesced { replaced_by: 8 },
                Step::Deliver,
            ]
        );
    }

    #[test]
    fn a_critical_event_that_the_filter_leaves_out_still_ends_the_segment() {
        let batch = events(&["use", "-prompt", "use"]);
        assert_eq!(
            types(&batch),
            [Step::Deliver, Step::Filtered, Step::Deliver]
        );
    }

    #[test]
    fn critical_events_are_never_merged() {
        let batch = events(&["stop", "stop", "prompt", "prompt"]);
        assert_eq!(types(&batch), [Step::Deliver; 4]);
    }

    #[test]
    fn without_coalescing_everything_that_matches_goes_out() {
        let batch = events(&["use", "-use", "use"]);
        assert_eq!(
            plan(&batch, Merging::Nothing),
            [Step::Deliver, Step::Filtered, Step::Deliver]
        );
    }

    #[test]
    fn a_filtered_event_replaces_nothing() {
        let batch = events(&["use", "-use"]);
        assert_eq!(types(&batch), [Step::Deliver, Step::Filtered]);
    }
}
