//! Deliveries: one event of a held lane at a time, judged by the engine and by the model.

use std::sync::Arc;

use lanekeeper_engine::decision::{Judgement, Step, Stop};
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::requeued;
use lanekeeper_postgres::settle::{self, Operation};

use crate::ensure;
use crate::model::Model;
use crate::model::holding::{Judged, MAX_CRASHES};
use crate::model::takeover::Claim;
use crate::operation::{Answer, How, LANES};
use crate::worker::verdict;
use crate::world::{Check, World, told};

pub const INLINE_BYTES: i32 = 4096;

impl World {
    /// Everything that a connection does with what is due, with one answer to all deliveries.
    pub async fn work(&mut self, at: usize, answer: Answer) -> Check {
        self.claim(at, 8, true).await?;
        // What is exhausted is settled before the next is delivered.
        for _ in 0..3 {
            self.fetch(at, 3).await?;
            for lane in 0..LANES {
                for _ in 0..3 {
                    self.deliver(at, lane, answer).await?;
                }
            }
            self.settle(at, How::Natural).await?;
        }
        self.unlock(at).await
    }

    /// One event of a held lane, or the requeued dead letter that comes before it.
    pub async fn deliver(&mut self, at: usize, place: usize, answer: Answer) -> Check {
        let Some(connection) = &mut self.connections[at] else {
            return Ok(());
        };
        let client = &connection.physical.client;
        let Some(holding) = connection.holdings.get_mut(&place) else {
            return Ok(());
        };
        if !holding.can_deliver() {
            return Ok(());
        }
        let before = holding.letters_before();
        if holding.progress.is_requeued_before(before) {
            let next = requeued::next(client, holding.lane_id, INLINE_BYTES)
                .await
                .map_err(told)?;
            holding
                .progress
                .set_requeued_after(next.as_ref().map(|letter| letter.after_seq));
            let expected = self.model.lanes[place].next_letter();
            let (found, expected) = (
                next.as_ref().map(|next| next.dead_id),
                expected.map(|letter| letter.dead_id),
            );
            ensure!(
                found == expected,
                "the next dead letter of lane {place} is {found:?}, not {expected:?}"
            );
            if let Some(letter) = next.filter(|letter| letter.after_seq < before) {
                holding.progress.begin_dead_letter(letter.dead_id);
                *self.met.entry("dead letters delivered again").or_default() += 1;
                holding.shadow.letter = Some(letter.dead_id);
                return self.attempt(at, place, letter.event, answer).await;
            }
        }
        let batch = holding.batch.as_mut().expect("looked at above");
        let Some((event, step)) = batch.steps.pop_front() else {
            return Ok(());
        };
        match step {
            Step::Filtered => {
                holding.progress.pass(event.seq, event.day);
                holding.shadow.leave_out(event.seq);
                Ok(())
            }
            Step::Coalesced { replaced_by } => {
                holding.progress.coalesce(event.seq, event.day, replaced_by);
                holding.shadow.coalesce(event.seq);
                *self.met.entry("events coalesced").or_default() += 1;
                Ok(())
            }
            Step::Cancelled => Err("the simulation cancels nothing".into()),
            Step::Deliver => self.attempt(at, place, event, answer).await,
        }
    }

    async fn attempt(
        &mut self,
        at: usize,
        place: usize,
        event: FetchedEvent,
        answer: Answer,
    ) -> Check {
        let process = self.workers[at / 2]
            .as_ref()
            .expect("its connection is open");
        let connection = self.connections[at].as_mut().expect("it delivers");
        let claim_id = connection.next_claim();
        let (connection_id, client) = (connection.id, &connection.physical.client);
        let holding = connection
            .holdings
            .get_mut(&place)
            .expect("the caller has it");
        let subscription = Model::subscription_of(place);
        let replaced = process
            .routes
            .get(&subscription)
            .is_none_or(|route| !Arc::ptr_eq(route, &holding.route));
        if replaced {
            holding.stop = Some(Stop::new(Operation::Yield));
            holding.shadow.letter = None;
            return Ok(());
        }
        let policy = holding.policy();
        let (seq, day, is_letter) = (event.seq, event.day, holding.progress.head_is_dead_letter());
        let (judgement, judged) = if holding.shadow.crashes >= MAX_CRASHES {
            let error = "too many workers died of it".to_owned();
            *self.met.entry("exhausted by crashes").or_default() += 1;
            let judgement = holding.progress.exhaust(seq, day, error, &holding.route);
            (judgement, holding.shadow.exhaust(seq, policy))
        } else {
            ensure!(
                holding.progress.is_suspected_poison() == (holding.shadow.crashes >= 2),
                "lane {place}: suspect with {} crashes?",
                holding.shadow.crashes
            );
            if holding.progress.is_suspected_poison() {
                *self.met.entry("suspects").or_default() += 1;
                let (version, crashes) = (holding.progress.version, holding.progress.crashes);
                let lane = (holding.lane_id, version, crashes);
                settle::record_suspected_poison(client, connection_id, claim_id, lane)
                    .await
                    .map_err(told)?;
                let before = holding.suspect_claim.replace(claim_id);
                connection.finished_claims.extend(before);
                let lanes = vec![(place, version, Some(crashes))];
                self.model.claims.push(Claim {
                    connection_id,
                    claim_id,
                    lanes,
                });
            }
            if answer == Answer::Accepted {
                let again = self.model.lanes[place].repeatable.contains(&seq);
                *self.met.entry("repeated with a cause").or_default() += usize::from(again);
                self.model.accepted(place, seq, is_letter)?;
            }
            let judgement =
                holding
                    .progress
                    .judge(seq, day, verdict(answer), &holding.route, || 0.0);
            (
                judgement,
                holding.shadow.judge(seq, answer, subscription, policy),
            )
        };
        holding.stop = match (judgement, judged) {
            (Judgement::Passed, Judged::Passed) => None,
            (Judgement::Stopped(stop), Judged::Parked) if stop.operation == Operation::Park => {
                Some(stop)
            }
            (
                Judgement::Stopped(stop),
                Judged::Retry {
                    delay_ms,
                    pauses: false,
                },
            ) if stop.operation == Operation::Retry
                && stop.delay.as_millis() as i64 == delay_ms =>
            {
                Some(stop)
            }
            (Judgement::Gone { stop, .. }, Judged::Retry { pauses: true, .. }) => {
                holding.stop = Some(stop);
                if !self.model.subscriptions[subscription].paused {
                    self.pause(subscription, true).await?;
                }
                return Ok(());
            }
            (judgement, judged) => {
                return Err(format!(
                    "{answer:?} was judged {judgement:?}, not {judged:?}"
                ));
            }
        };
        Ok(())
    }
}
