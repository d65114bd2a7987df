//! What a lane connection takes: claims and fetches, each checked before anything is done with it.

use std::sync::Arc;

use lanekeeper_engine::decision::{Merging, Progress, Step, Stop, plan};
use lanekeeper_postgres::claim::{self, ClaimedLane, RouteScan, ScanStart};
use lanekeeper_postgres::fetch::{self, FetchedEvent, Position};
use lanekeeper_postgres::settle::Operation;

use crate::delivering::INLINE_BYTES;
use crate::ensure;
use crate::model::Model;
use crate::model::holding::Shadow;
use crate::model::takeover::Claim;
use crate::operation::{CRITICAL, TYPES};
use crate::settling::unlock;
use crate::worker::{Batch, Holding};
use crate::world::{Check, World, told};

impl World {
    /// The worker's lanes, those included whose locks it lost without knowing.
    fn believed(&self, worker: usize) -> Vec<usize> {
        let connections = self.connections[worker * 2..worker * 2 + 2]
            .iter()
            .flatten();
        connections
            .flat_map(|connection| connection.holdings.keys().copied())
            .collect()
    }

    pub async fn claim(&mut self, at: usize, limit: i32, full: bool) -> Check {
        let walks_any = self.workers[at / 2]
            .as_ref()
            .is_some_and(|process| !process.routes.is_empty());
        if self.connections[at].is_none() || !walks_any {
            return self.unlock(at).await;
        }
        let (released, finished) = self.let_go(at);
        let believed = self.believed(at / 2);
        let mut held: Vec<i64> = believed
            .iter()
            .filter_map(|lane| self.lane_id(*lane))
            .collect();
        held.sort_unstable();
        let (Some(connection), Some(process)) = (&mut self.connections[at], &self.workers[at / 2])
        else {
            return Ok(());
        };
        let scans: Vec<RouteScan> = process
            .routes
            .values()
            .map(|route| RouteScan {
                route: route.id,
                room: limit,
                start: connection
                    .bounds
                    .get(&route.id)
                    .copied()
                    .filter(|_| !full)
                    .unwrap_or(ScanStart::START),
            })
            .collect();
        let routes = process.routes.clone();
        let claim_id = connection.next_claim();
        let physical = &connection.physical;
        let asked = claim::Claim {
            connection_id: connection.id,
            claim_id,
            scans: &scans,
            limit,
            held: &held,
            released: &released,
            finished: &finished,
        };
        let taken = claim::claim(&physical.client, &physical.claim, asked).await;
        let taken = taken.map_err(told)?;
        for state in &taken.routes {
            connection.bounds.insert(state.route, state.start);
        }
        if !taken.locked_twice.is_empty() {
            unlock(connection, &taken.locked_twice, &[]).await?;
        }
        // Its limit is one of entries.
        let walked_to_the_end =
            full && taken.lanes.len() + taken.locked_twice.len() < limit as usize;
        let connection_id = connection.id;
        let mut row = Claim {
            connection_id,
            claim_id,
            lanes: Vec::new(),
        };
        let mut seen = Vec::new();
        for lane in taken.lanes {
            let Some(&place) = self.lane_ids.get(&lane.lane_id) else {
                return Err(format!(
                    "lane {} was claimed, of which nothing is committed",
                    lane.lane_id
                ));
            };
            self.check_claimed(place, &lane)?;
            let state = &mut self.model.lanes[place];
            state.holder = Some(at);
            row.lanes.push((
                place,
                state.version,
                (state.crashes < 2).then_some(state.crashes),
            ));
            seen.push(place);
            let shadow = Shadow::of(place, state);
            let entry = lane.entry;
            let stop =
                (lane.parked || !lane.retry_in.is_zero()).then(|| Stop::new(Operation::Discard));
            let holding = Holding {
                lane_id: lane.lane_id,
                session_id: lane.session_id,
                cursor_day: lane.cursor_day,
                progress: Progress::of(&lane),
                shadow,
                entry,
                route: Arc::clone(&routes[&Model::subscription_of(place)]),
                claim_id,
                suspect_claim: None,
                batch: None,
                stop,
                marked: false,
                busy: false,
                ghost: false,
            };
            let connection = self.connections[at].as_mut().expect("it claimed");
            connection.holdings.insert(place, holding);
            *connection.claims.entry(claim_id).or_default() += 1;
        }
        if !row.lanes.is_empty() {
            self.model.claims.push(row);
        }
        if walked_to_the_end {
            self.check_complete(&seen, &believed, |place| routes.contains_key(&place))?;
        }
        Ok(())
    }

    fn check_claimed(&self, place: usize, lane: &ClaimedLane) -> Check {
        let state = &self.model.lanes[place];
        ensure!(
            state.holder.is_none(),
            "lane {place} was claimed while connection {:?} holds it",
            state.holder
        );
        let wait = state.retry_at.map_or(0, |at| (at - self.model.now).max(0));
        let (version, cursor) = (state.version, state.cursor);
        let expected = (
            version,
            cursor,
            state.attempts,
            state.crashes,
            wait,
            state.parked,
            state.requeued_after(),
        );
        let waits = lane.retry_in.as_millis() as i64;
        let found = (
            lane.version,
            lane.cursor,
            lane.attempts,
            lane.crashes,
            waits,
            lane.parked,
            lane.requeued_after,
        );
        ensure!(
            found == expected,
            "lane {place} was claimed as {found:?}, not {expected:?}"
        );
        Ok(())
    }

    /// A full scan with room to spare takes every lane that is due and free.
    fn check_complete(
        &self,
        taken: &[usize],
        believed: &[usize],
        scanned: impl Fn(usize) -> bool,
    ) -> Check {
        for (place, lane) in self.model.lanes.iter().enumerate() {
            let due = lane.due.is_some_and(|due| due <= self.model.now)
                && self.model.front(place).is_some();
            let free = lane.holder.is_none()
                && !lane.parked
                && !lane.excused
                && !believed.contains(&place);
            let wanted = due && free && scanned(Model::subscription_of(place));
            ensure!(
                !wanted || taken.contains(&place),
                "lane {place} is due and free, and a full scan left it"
            );
        }
        Ok(())
    }

    pub async fn fetch(&mut self, at: usize, rows: i64) -> Check {
        let Some(connection) = &mut self.connections[at] else {
            return Ok(());
        };
        let holdings = connection.holdings.values_mut();
        let mut wanting: Vec<&mut Holding> =
            holdings.filter(|holding| holding.wants_events()).collect();
        if wanting.is_empty() {
            return Ok(());
        }
        let positions: Vec<Position> = wanting
            .iter()
            .map(|holding| Position {
                session_id: holding.session_id,
                cursor: holding.shadow.cursor,
                cursor_day: holding.cursor_day,
                subscription_id: holding.route.id,
            })
            .collect();
        let physical = &connection.physical;
        let batches = fetch::fetch(
            &physical.client,
            &physical.fetch,
            &positions,
            rows,
            INLINE_BYTES,
        )
        .await;
        for (holding, events) in wanting.iter_mut().zip(batches.map_err(told)?) {
            check_fetched(&self.model, &holding.shadow, &events, rows)?;
            let merging = match holding.critical() {
                Some(critical) => Merging::Types { critical },
                None => Merging::Nothing,
            };
            let steps = plan(&events, merging);
            check_plan(&events, &steps, holding.critical().is_some())?;
            let was_empty = events.is_empty();
            let steps = events.into_iter().zip(steps).collect();
            holding.batch = Some(Batch { steps, was_empty });
        }
        Ok(())
    }
}

/// What is fetched is the committed log behind the cursor, each event with what the filter says.
fn check_fetched(model: &Model, shadow: &Shadow, events: &[FetchedEvent], rows: i64) -> Check {
    let log = &model.sessions[Model::session_of(shadow.lane)].log;
    let behind = log
        .iter()
        .enumerate()
        .skip(shadow.cursor as usize)
        .filter(|(_, entry)| !entry.gone);
    let expected: Vec<(i64, bool)> = behind
        .take(rows as usize)
        .map(|(at, entry)| {
            (
                at as i64 + 1,
                model.matches(Model::subscription_of(shadow.lane), entry.kind),
            )
        })
        .collect();
    let found: Vec<(i64, bool)> = events
        .iter()
        .map(|event| (event.seq, event.matched))
        .collect();
    ensure!(
        found == expected,
        "lane {} fetched {found:?}, not {expected:?}",
        shadow.lane
    );
    Ok(())
}

/// I12: what is merged is not critical, went by the newest of its type, and nothing critical came between.
fn check_plan(events: &[FetchedEvent], steps: &[Step], merges: bool) -> Check {
    for (at, (event, step)) in events.iter().zip(steps).enumerate() {
        let later = events[at + 1..].iter();
        let segment: Vec<_> = later
            .take_while(|event| *event.event_type != *CRITICAL)
            .collect();
        let newest = segment
            .iter()
            .rfind(|other| other.matched && other.event_type == event.event_type);
        let merged = newest.filter(|_| merges && event.matched && *event.event_type != *CRITICAL);
        let expected = match merged {
            _ if !event.matched => Step::Filtered,
            Some(newest) => Step::Coalesced {
                replaced_by: newest.seq,
            },
            None => Step::Deliver,
        };
        ensure!(
            *step == expected,
            "{:?} of {TYPES:?} is planned as {step:?}, not {expected:?}",
            event.seq
        );
    }
    Ok(())
}
