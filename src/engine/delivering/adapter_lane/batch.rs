//! Several consecutive events of a lane in one request (C7).
//!
//! A batch is what waits together: it is never waited for. What the filter leaves out and what a newer event replaces is
//! passed over inside it, in its place. The destination's answer says how far it came: those events are settled, the
//! first that failed is charged an attempt, and the rest is fetched again. So a batch changes how many requests are made,
//! and nothing else.
//!
//! | case | what happens |
//! |---|---|
//! | the request as a whole failed, for now | the head is charged an attempt. From the second on, and where that was its last, as many events as a batch has go one at a time: an event that the destination cannot take is charged itself and not its predecessors |
//! | the request as a whole was refused for good | no attempt is charged; its events go one at a time, and only the refused one is exhausted |
//! | a worker died while it held the lane | the same, and each is settled before the next: a further crash is charged to the event that caused it |
//! | a large payload finds no room in memory | the batch ends before it. Only the first event of a batch waits for room, so that no lane waits while it keeps others from what they wait for (I11) |
//! | a limit | a batch is one send |

use jiff::civil::Date;
use lanekeeper_core::adapter::{BatchVerdict, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::sent;
use rustc_hash::FxHashSet;
use uuid::Uuid;

use super::upcoming::Upcoming;
use super::{Ending, Runner, UNREAD_DELAY};
use crate::delivering::budget::PayloadReservation;
use crate::delivering::coalesce::Step;
use crate::delivering::progress::Stop;
use crate::waking::interruptions::Reach;

/// Payloads in one request, unless the first alone is larger.
const BATCH_BYTES: usize = 1 << 20;

/// Where an event stands.
#[derive(Clone, Copy)]
struct Place {
    seq: i64,
    day: Date,
    message_id: Uuid,
}

impl Place {
    fn of(event: &FetchedEvent) -> Self {
        Self {
            seq: event.seq,
            day: event.day,
            message_id: event.message_id,
        }
    }
}

/// What is not delivered, and why.
type PassedOver = (Step, i64, Date);

/// The events of one request.
struct Gathered {
    /// Each with what is passed over right before it.
    places: Vec<(Vec<PassedOver>, Place)>,
    events: Vec<Event>,
    /// What is passed over behind the last.
    trailing: Vec<PassedOver>,
    _reservations: Vec<PayloadReservation>,
}

impl Runner<'_> {
    /// Whether the next event goes by itself: something failed, and it is to be found out what.
    fn goes_alone(&mut self) -> bool {
        if self.progress.attempts > 1 || self.progress.crashes > 0 {
            self.singly = self.route.batch;
        }
        let alone = self.singly > 0;
        self.singly = self.singly.saturating_sub(1);
        alone
    }

    /// Delivers the head, and with it those of the next events that fit into one request.
    pub(super) async fn attempt_batch(
        &mut self,
        first: FetchedEvent,
        upcoming: &mut Upcoming,
    ) -> Ending {
        if self.goes_alone() {
            let ending = self.attempt(first).await;
            if self.claimed.crashes > 0
                && matches!(ending, Ending::Passed)
                && let Err(ending) = self.settle_and_keep().await
            {
                return ending;
            }
            return ending;
        }
        // Nothing to go with: an event by itself is an ordinary delivery.
        if upcoming.peek().is_none() {
            return self.attempt(first).await;
        }
        if let Err(ending) = self.or_leaves_out(&first).await {
            return ending;
        }
        let most = self.route.batch;
        let sent = async {
            let gathered = self.gather(first, upcoming, most, |_| true).await?;
            let day = gathered.places[0].1.day;
            let verdict = self.send_gathered(&gathered.events, day).await?;
            Ok((gathered, verdict))
        };
        match sent.await {
            Ok((gathered, verdict)) => self.judge_batch(gathered, verdict, upcoming).await,
            Err(ending) => {
                // What was gathered is fetched again: only the head may have been passed.
                upcoming.clear();
                ending
            }
        }
    }

    /// Reads the head, and what goes with it: at most so many events, up to the first that does not fit.
    async fn gather(
        &mut self,
        first: FetchedEvent,
        upcoming: &mut Upcoming,
        most: usize,
        fits: impl Fn(&FetchedEvent) -> bool,
    ) -> Result<Gathered, Ending> {
        self.may_go_on()?;
        let place = Place::of(&first);
        let mut bytes = size(&first);
        if !self.is_ahead {
            self.progress.begin_head(place.message_id);
        }
        let mut reservations = Vec::new();
        if first.payload.is_none() {
            reservations.push(self.reserve_payload(&first).await?);
        }
        let event = match self.event(first).await {
            Ok(event) => event,
            Err(unread) => return Err(self.unread(place.seq, place.day, unread).await),
        };
        let mut gathered = Gathered {
            places: vec![(Vec::new(), place)],
            events: vec![event],
            trailing: Vec::new(),
            _reservations: Vec::new(),
        };
        while gathered.events.len() < most
            && let Some((next, step)) = upcoming.peek()
        {
            let is_held_up =
                self.progress.is_requeued_before(next.seq) || self.ahead(next.seq).is_some();
            if is_held_up || !fits(next) {
                break;
            }
            if step == Step::Deliver {
                bytes = bytes.saturating_add(size(next));
                if bytes > BATCH_BYTES {
                    break;
                }
                if next.payload.is_none() {
                    let allowance = &self.context.shared.delivering.allowance;
                    match allowance.try_take(size(next)) {
                        Some(reservation) => reservations.push(reservation),
                        None => break,
                    }
                }
            }
            let Some((next, step)) = upcoming.next() else {
                break;
            };
            let place = Place::of(&next);
            if step != Step::Deliver {
                gathered.trailing.push((step, place.seq, place.day));
                continue;
            }
            let Ok(event) = self.event(next).await else {
                // It is fetched again, and is the head by then.
                upcoming.clear();
                break;
            };
            let before = std::mem::take(&mut gathered.trailing);
            gathered.places.push((before, place));
            gathered.events.push(event);
        }
        gathered._reservations = reservations;
        Ok(gathered)
    }

    /// Waits for the limits, sends, and reports the result to those who share the limits and the destination.
    /// `day`: of the first event.
    async fn send_gathered(&mut self, events: &[Event], day: Date) -> Result<BatchVerdict, Ending> {
        // An adapter that gets batches has no buckets of its own.
        let buckets = self.route.buckets.clone();
        let probe = self.pass_limits(&buckets).await?;
        // The wait may have been long. What was cancelled meanwhile is found when the rest is fetched again; a probe is sent
        // all the same, since the circuit waits for it.
        let is_cancelled = |event: &Event| self.ahead(event.seq) == Some(Reach::Only);
        if !probe && events.iter().skip(1).any(is_cancelled) {
            return Err(Ending::Passed);
        }
        let verdict = match events {
            [event] => BatchVerdict::Whole(self.send(event, day).await?),
            events => self.send_batch(events, day).await?,
        };
        self.report_verdict(&shared_verdict(&verdict), &buckets, probe)
            .await;
        Ok(verdict)
    }

    /// Whether a batch failed as a whole, and the head would be exhausted for it. Then its events go one at a time, and
    /// none is charged for the others.
    fn is_taken_apart(&mut self, verdict: &BatchVerdict, events: usize) -> bool {
        let most = self.route.subscription.max_attempts;
        let apart = events > 1
            && match verdict {
                BatchVerdict::Whole(Verdict::Rejected { .. }) => true,
                BatchVerdict::Whole(Verdict::Retry { .. }) => {
                    most > 0 && self.progress.attempt() >= most
                }
                _ => false,
            };
        if apart {
            self.singly = events;
        }
        apart
    }

    /// What the verdict says of the event at this position.
    fn verdict_at(&self, verdict: &BatchVerdict, position: usize) -> Option<Verdict> {
        if Mutation::BatchPassedWhole.is_on() {
            return Some(Verdict::Accepted);
        }
        let verdict = match verdict.of(position) {
            Some(verdict) => verdict.clone(),
            None if position == 0 => Verdict::retry("the destination answered for no event"),
            None => return None,
        };
        let ack = self.route.subscription.ack;
        Some(ack.of_answer(verdict, self.adapter.acknowledges()))
    }

    /// Passes what was accepted, and applies the first other verdict. What is behind it is fetched again.
    async fn judge_batch(
        &mut self,
        gathered: Gathered,
        verdict: BatchVerdict,
        upcoming: &mut Upcoming,
    ) -> Ending {
        let mut passed = 0;
        let whole = gathered.places.len();
        let mut ending = Ending::Passed;
        let apart = self.is_taken_apart(&verdict, whole);
        for (position, (before, place)) in gathered.places.into_iter().enumerate() {
            let verdict = self.verdict_at(&verdict, position).filter(|_| !apart);
            let Some(verdict) = verdict else {
                break;
            };
            self.pass_over(&before);
            self.progress.begin_head(place.message_id);
            let is_taken = matches!(verdict, Verdict::Accepted | Verdict::Sent);
            self.tell_attempt(place.seq, place.message_id, &verdict);
            let is_new = !self.progress.head_is_replayed();
            self.accepted += u64::from(verdict == Verdict::Accepted && is_new);
            ending = self.judge(place.seq, place.day, verdict).await;
            if !is_taken || !matches!(ending, Ending::Passed) {
                break;
            }
            passed += 1;
        }
        // The caller counts one.
        self.delivered += usize::saturating_sub(passed, 1);
        if passed == whole {
            self.pass_over(&gathered.trailing);
        } else {
            upcoming.clear();
        }
        ending
    }

    fn pass_over(&mut self, events: &[PassedOver]) {
        for &(step, seq, day) in events {
            self.pass_by(step, seq, day);
            self.delivered += 1;
        }
    }

    /// For lanes that require acknowledgements: sends an event, and with it those that follow and fit into the window and
    /// into one request. `waiting`: events that wait for their acknowledgements already. Returns how many wait then.
    ///
    /// # Errors
    /// How the lane goes on where it sends nothing more now.
    pub(super) async fn send_ahead_in_batch(
        &mut self,
        first: FetchedEvent,
        upcoming: &mut Upcoming,
        acked: &FxHashSet<i64>,
        waiting: u32,
    ) -> Result<u32, Ending> {
        let room = self.route.subscription.ack_window.saturating_sub(waiting);
        let most = self
            .route
            .batch
            .min(usize::try_from(room).unwrap_or(usize::MAX));
        self.is_ahead = waiting > 0;
        let sending = self.send_into_window(first, upcoming, acked, waiting, most);
        let sent = sending.await;
        self.is_ahead = false;
        if sent.is_err() {
            // As above.
            upcoming.clear();
        }
        sent
    }

    async fn send_into_window(
        &mut self,
        first: FetchedEvent,
        upcoming: &mut Upcoming,
        acked: &FxHashSet<i64>,
        waiting: u32,
        most: usize,
    ) -> Result<u32, Ending> {
        self.or_leaves_out(&first).await?;
        let gathered = self.gather(first, upcoming, most, |event| {
            event.matched && !event.is_cancelled() && !acked.contains(&event.seq)
        });
        let gathered = gathered.await;
        let Gathered {
            places,
            mut events,
            _reservations,
            ..
        } = gathered?;
        let places: Vec<Place> = places.into_iter().map(|(_, place)| place).collect();
        let lane_id = self.claimed.lane_id;
        let messages: Vec<(i64, Uuid)> = places
            .iter()
            .map(|place| (place.seq, place.message_id))
            .collect();
        let entered = self.ask(async |client| sent::enter_many(client, lane_id, &messages).await);
        let Ok(acked) = entered.await else {
            return Err(Ending::Stopped(Stop::retry(UNREAD_DELAY, None)));
        };
        // Acknowledged since they were read.
        events.retain(|event| !acked.contains(&event.seq));
        let first = events.first().map(|event| event.seq);
        let first = places.iter().find(|place| Some(place.seq) == first);
        let verdict = match first {
            Some(first) => self.send_gathered(&events, first.day).await?,
            None => BatchVerdict::Each(Vec::new()),
        };
        if self.is_taken_apart(&verdict, events.len()) {
            upcoming.clear();
            return Ok(waiting);
        }
        self.judge_ahead(&places, &acked, &verdict, upcoming, waiting)
            .await
    }

    async fn judge_ahead(
        &mut self,
        places: &[Place],
        acked: &[i64],
        verdict: &BatchVerdict,
        upcoming: &mut Upcoming,
        mut waiting: u32,
    ) -> Result<u32, Ending> {
        let mut position = 0;
        for place in places {
            let verdict = if acked.contains(&place.seq) {
                Verdict::Accepted
            } else {
                let Some(verdict) = self.verdict_at(verdict, position) else {
                    upcoming.clear();
                    return Ok(waiting);
                };
                position += 1;
                verdict
            };
            let is_taken = matches!(verdict, Verdict::Accepted | Verdict::Sent);
            self.is_ahead = waiting > 0;
            if !acked.contains(&place.seq) {
                self.tell_attempt(place.seq, place.message_id, &verdict);
            } else if waiting == 0 {
                self.tell_acked(place.seq, place.message_id);
            }
            if waiting > 0 {
                match self.sent_ahead(place.seq, place.message_id, verdict).await {
                    Ending::Sent => waiting += 1,
                    // It is sent again when it is the head, and what is behind it no earlier.
                    _ => {
                        upcoming.clear();
                        return Ok(waiting);
                    }
                }
                continue;
            }
            self.progress.begin_head(place.message_id);
            self.accepted += u64::from(verdict == Verdict::Accepted);
            match self.judge(place.seq, place.day, verdict).await {
                Ending::Sent => waiting += 1,
                Ending::Passed => {
                    self.delivered += 1;
                    if !is_taken {
                        upcoming.clear();
                        return Ok(waiting);
                    }
                }
                ending => return Err(ending),
            }
        }
        Ok(waiting)
    }

    /// Whether a lane that requires acknowledgements sends its next event by itself.
    pub(super) fn sends_alone(&mut self) -> bool {
        self.route.batch == 1 || self.goes_alone()
    }
}

fn size(event: &FetchedEvent) -> usize {
    usize::try_from(event.size).unwrap_or(0)
}

/// What of a batch's verdict concerns those who share its destination: a request for a pause; otherwise that of its
/// first event, since a destination that accepts some works.
fn shared_verdict(verdict: &BatchVerdict) -> Verdict {
    let pause = match verdict {
        BatchVerdict::Whole(_) => None,
        BatchVerdict::Each(verdicts) => verdicts
            .iter()
            .find(|verdict| matches!(verdict, Verdict::Throttled { .. })),
    };
    let said = pause.or_else(|| verdict.of(0)).cloned();
    said.unwrap_or_else(|| Verdict::retry("the destination answered for no event"))
}
