//! Which events of a batch are delivered, which are filtered, and which are replaced by a newer one (I12).
//!
//! Critical events are never merged and never reordered. Between two of them, only the newest of the bursty events
//! of one type is delivered; the others get the outcome `coalesced` with the seq of the event that replaced them.
//! Only events that wait together are merged: with an idle destination each one is delivered as it arrives.
//!
//! If the adapter shows progress (G5), versions of a message count instead of types: only the newest version of a
//! message is delivered. A final version, and an event that is a message of its own, is always delivered and ends
//! the segment. So does the first version of another message: messages keep the order in which they first appear.
//! Of a large payload that was not fetched, its preview is enough; without one the event counts as a message of its
//! own.
//!
//! Of events that wait together, the rule of the stream or adapter decides which go out. For chats, `Adapter::role`
//! says what an event is among the versions of its message. Only adapters that edit are asked, and only their
//! payloads are parsed for it.
//!
//! Payloads that stayed behind because they are large are not read for that. `Adapter::preview` names
//! the places in a payload by which versions are told apart, and one statement beside the fetch makes Postgres
//! extract them (`lanekeeper_postgres::preview`). It runs only if two events wait together. If it fails, every large
//! event goes out.
//!
//! A version of which some messages are sent already (`Adapter::has_begun`) is completed before a newer one gets
//! its turn. Otherwise, of long versions that arrive faster than their parts can be sent, only the first part would
//! ever be shown.

use std::collections::{HashMap, HashSet};

use lanekeeper_core::adapter::{Adapter, Role};
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::preview::Previews;

/// What may be merged.
#[derive(Clone, Copy)]
pub enum Merging<'a> {
    Nothing,
    /// Events of one type, except for the critical types.
    Types {
        critical: &'a [String],
    },
    /// Versions of one message, told apart by the adapter; by their previews if the payloads were not fetched.
    Messages {
        adapter: &'a dyn Adapter,
        previews: &'a Previews,
    },
}

/// What to do with an event of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Deliver,
    /// The subscription's filter leaves it out: the cursor passes it.
    Filtered,
    /// It was cancelled: the cursor passes it.
    Cancelled,
    /// A newer event is delivered instead.
    Coalesced {
        replaced_by: i64,
    },
}

/// One step per event, in order.
pub fn plan(events: &[FetchedEvent], merging: Merging<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = events
        .iter()
        .map(|event| {
            if !event.matched {
                Step::Filtered
            } else if event.is_cancelled() {
                Step::Cancelled
            } else {
                Step::Deliver
            }
        })
        .collect();
    match merging {
        Merging::Nothing => {}
        Merging::Types { critical } => merge_types(&mut steps, events, critical),
        Merging::Messages { adapter, previews } => {
            let role = |event: &FetchedEvent| {
                let said = event.payload.as_ref().or_else(|| previews.get(&event.seq));
                match said.map_or(Role::Whole, |said| adapter.role(said)) {
                    Role::Progress { key } if adapter.has_begun(event.message_id) => {
                        Role::Final { key }
                    }
                    role => role,
                }
            };
            let roles: Vec<Option<Role>> = events
                .iter()
                .zip(&steps)
                .map(|(event, step)| (*step == Step::Deliver).then(|| role(event)))
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
            // Even if the filter leaves it out: the segment ends in the session, not in the lane.
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

/// A role is `None` for filtered events.
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
            // A version before another message's first version is not replaced by one after it.
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

    /// Reads `k1` as progress of message k, `k!` as its final version, `.` as a message of its own. `k1+` has begun.
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

    /// Which events of a list are delivered, and which replaced the others. Of a payload in brackets only its preview
    /// is known, of `[]` not even that.
    fn spoken(list: &str) -> String {
        let words: Vec<&str> = list.split(' ').collect();
        let mut batch = events(&words);
        let mut previews = Previews::new();
        for (event, word) in batch.iter_mut().zip(&words) {
            event.payload =
                (!word.starts_with('[')).then(|| word.trim_start_matches('-').to_owned());
            event.message_id = Uuid::from_u128(word.ends_with('+').into());
            let preview = word.trim_matches(['[', ']']);
            if preview.len() < word.len() && !preview.is_empty() {
                previews.insert(event.seq, preview.to_owned());
            }
        }
        let messages = Merging::Messages {
            adapter: &Speaker,
            previews: &previews,
        };
        let steps = plan(&batch, messages);
        let told = words.iter().zip(steps).map(|(word, step)| match step {
            Step::Deliver => (*word).to_owned(),
            Step::Filtered => "-".to_owned(),
            Step::Cancelled => "x".to_owned(),
            Step::Coalesced { replaced_by } => format!(">{replaced_by}"),
        });
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_newest_version_of_a_message_is_delivered_and_its_final_version_always() {
        assert_eq!(spoken("a1 a2 a3"), ">3 >3 a3");
        assert_eq!(spoken("a1 a2 a! a4 a5 a!"), ">3 >3 a! >6 >6 a!");
        assert_eq!(spoken("a! a! b! . ."), "a! a! b! . .");
    }

    #[test]
    fn final_versions_and_whole_messages_end_the_segment() {
        assert_eq!(spoken("a1 . a2"), "a1 . a2");
        assert_eq!(spoken("a1 b! a2"), "a1 b! a2");
    }

    #[test]
    fn a_version_of_which_a_part_is_sent_is_completed() {
        assert_eq!(spoken("a1+ a2 a3"), "a1+ >3 a3");
        assert_eq!(spoken("a1+ b1 a2 b2 a!"), "a1+ >4 >5 b2 a!");
    }

    #[test]
    fn a_large_version_with_a_preview_is_merged_like_any_other() {
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
    fn a_filtered_version_neither_replaces_another_nor_ends_a_segment() {
        assert_eq!(spoken("a1 -a2 -. a3"), ">4 - - a3");
    }

    #[test]
    fn the_newest_bursty_event_of_each_type_is_delivered_in_each_segment() {
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
    fn without_coalescing_every_matching_event_is_delivered() {
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
