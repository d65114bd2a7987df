//! Which of a batch's events go out, which are filtered, which are replaced by a newer one (I12).
//!
//! Critical events are never merged and never reordered. Between two of them, of the bursty events
//! of one type only the newest goes out; the others have the outcome `coalesced` with the seq that
//! went instead. Only events that are waiting together are merged: with an idle destination each
//! goes out as it comes.

use std::collections::HashMap;

use crate::mutation::Mutation;
use crate::store::fetch::FetchedEvent;

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

/// One step per event, in order. `critical` is `None` where nothing may be merged.
pub fn plan(events: &[FetchedEvent], critical: Option<&[String]>) -> Vec<Step> {
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
    let Some(critical) = critical else {
        return steps;
    };
    let mut newest: HashMap<&str, i64> = HashMap::new();
    for (step, event) in steps.iter_mut().zip(events).rev() {
        if critical.contains(&event.event_type) && !Mutation::CriticalEventsMerged.is_on() {
            // Also where the filter leaves it out: the segment ends in the session, not in the lane.
            if !Mutation::SegmentsRunOn.is_on() {
                newest.clear();
            }
        } else if *step == Step::Deliver {
            match newest.get(event.event_type.as_str()) {
                Some(&replaced_by) => *step = Step::Coalesced { replaced_by },
                None => {
                    newest.insert(&event.event_type, event.seq);
                }
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::civil::date;
    use uuid::Uuid;

    use super::*;

    fn events(types: &[&str]) -> Vec<FetchedEvent> {
        (1..)
            .zip(types)
            .map(|(seq, name)| FetchedEvent {
                seq,
                day: date(2026, 1, 1),
                message_id: Uuid::nil(),
                event_type: name.trim_start_matches('-').to_owned(),
                created_at: Timestamp::UNIX_EPOCH,
                size: 2,
                matched: !name.starts_with('-'),
                payload: Some("{}".to_owned()),
                headers: None,
            })
            .collect()
    }

    fn critical() -> Vec<String> {
        vec!["prompt".to_owned(), "stop".to_owned()]
    }

    #[test]
    fn the_newest_bursty_event_of_each_type_goes_out_in_each_segment() {
        let batch = events(&["prompt", "use", "done", "use", "done", "stop", "use", "use"]);
        assert_eq!(
            plan(&batch, Some(&critical())),
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
            plan(&batch, Some(&critical())),
            [Step::Deliver, Step::Filtered, Step::Deliver]
        );
    }

    #[test]
    fn critical_events_are_never_merged() {
        let batch = events(&["stop", "stop", "prompt", "prompt"]);
        assert_eq!(plan(&batch, Some(&critical())), [Step::Deliver; 4]);
    }

    #[test]
    fn without_coalescing_everything_that_matches_goes_out() {
        let batch = events(&["use", "-use", "use"]);
        assert_eq!(
            plan(&batch, None),
            [Step::Deliver, Step::Filtered, Step::Deliver]
        );
    }

    #[test]
    fn a_filtered_event_replaces_nothing() {
        let batch = events(&["use", "-use"]);
        assert_eq!(
            plan(&batch, Some(&critical())),
            [Step::Deliver, Step::Filtered]
        );
    }
}
