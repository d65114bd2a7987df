//! The events of a fetch that a lane has not come to yet, with what is done with each.

use std::vec::IntoIter;

use lanekeeper_postgres::fetch::FetchedEvent;

use crate::delivering::coalesce::Step;

pub(super) struct Upcoming {
    events: IntoIter<FetchedEvent>,
    steps: IntoIter<Step>,
}

impl Upcoming {
    /// `steps`: one for each event, or none where the filter alone decides.
    pub(super) fn new(events: Vec<FetchedEvent>, steps: Vec<Step>) -> Self {
        Self {
            events: events.into_iter(),
            steps: steps.into_iter(),
        }
    }

    pub(super) fn next(&mut self) -> Option<(FetchedEvent, Step)> {
        let event = self.events.next()?;
        let step = self.steps.next().unwrap_or_else(|| by_filter(&event));
        Some((event, step))
    }

    pub(super) fn peek(&self) -> Option<(&FetchedEvent, Step)> {
        let event = self.events.as_slice().first()?;
        let step = self.steps.as_slice().first().copied();
        Some((event, step.unwrap_or_else(|| by_filter(event))))
    }

    /// Forgets what is left: it is fetched again from the cursor on.
    pub(super) fn clear(&mut self) {
        *self = Self::new(Vec::new(), Vec::new());
    }
}

fn by_filter(event: &FetchedEvent) -> Step {
    match event.matched {
        false => Step::Filtered,
        true if event.is_cancelled() => Step::Cancelled,
        true => Step::Deliver,
    }
}
