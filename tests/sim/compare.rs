//! What the database shows, against the model.

use std::collections::BTreeMap;

use futures_util::try_join;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use crate::ensure;
use crate::model::Model;
use crate::operation::{LANES, SUBSCRIPTIONS, TYPES};
use crate::producing::SESSION_NAMES;
use crate::world::{Check, World};

const LOG: &str = "
    SELECT n.name, array_agg(e.seq ORDER BY e.seq), array_agg(e.event_type ORDER BY e.seq),
           array_agg(e.message_id ORDER BY e.seq), array_agg(e.day - '2040-01-01'::date ORDER BY e.seq)
    FROM lanekeeper.session AS n JOIN lanekeeper.event AS e ON e.session_id = n.session_id GROUP BY n.name";
const PROGRESS: &str = "
    SELECT n.name, s.name, l.lane_id, p.version + p.step, p.cursor, p.attempts, p.crashes,
           (extract(epoch FROM p.retry_at - '2040-01-01T22:00:00Z') * 1000)::bigint,
           p.parked_at IS NOT NULL, p.requeued_after
    FROM lanekeeper.lane AS l
    JOIN lanekeeper.session AS n ON n.session_id = l.session_id
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    JOIN lanekeeper.progress AS p ON p.lane_id = l.lane_id";
const TOKENS: &str = "
    SELECT lane_id, (extract(epoch FROM min(due_at) - '2040-01-01T22:00:00Z') * 1000)::bigint
    FROM lanekeeper.ready GROUP BY lane_id";
const OUTCOMES: &str = "SELECT lane_id, seq, kind FROM lanekeeper.outcome";
const DEAD: &str = "
    SELECT lane_id, seq, dead_id, attempts, crashes, after_seq, resolution FROM lanekeeper.dead ORDER BY dead_id";
const LOCKS: &str = "
    SELECT l.lane_id, k.pid FROM pg_locks AS k
    JOIN lanekeeper.lane AS l ON lanekeeper.lane_lock(l.lane_id) = (k.classid::bigint << 32 | k.objid::bigint)
    WHERE k.locktype = 'advisory' AND k.granted
      AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
/// A lane appears twice if a scan found two of its entries.
const CLAIMS: &str = "
    SELECT connection_id, abs(claim_id), (SELECT count(DISTINCT u) FROM unnest(lane_ids) AS u)
    FROM lanekeeper.claim ORDER BY 1, 2";
const STATES: &str = "SELECT session, subscription, seq, state FROM lanekeeper.message";

/// The statements of every comparison, prepared.
pub struct Looks {
    progress: Statement,
    log: Statement,
    entries: Statement,
    outcomes: Statement,
    dead: Statement,
    locks: Statement,
    claims: Statement,
    states: Statement,
}

impl Looks {
    pub async fn new(client: &Client) -> Self {
        let prepare = async |text| {
            client
                .prepare(text)
                .await
                .expect("a statement of the tests' own")
        };
        Self {
            progress: prepare(PROGRESS).await,
            log: prepare(LOG).await,
            entries: prepare(TOKENS).await,
            outcomes: prepare(OUTCOMES).await,
            dead: prepare(DEAD).await,
            locks: prepare(LOCKS).await,
            claims: prepare(CLAIMS).await,
            states: prepare(STATES).await,
        }
    }
}

impl World {
    /// After every operation; with `views` also what people see.
    pub async fn compare(&mut self, views: bool) -> Check {
        let (admin, looks) = (&self.ground.admin, &self.ground.looks);
        let rows = try_join!(
            admin.query(&looks.progress, &[]),
            admin.query(&looks.log, &[]),
            admin.query(&looks.entries, &[]),
            admin.query(&looks.outcomes, &[]),
            admin.query(&looks.dead, &[]),
            admin.query(&looks.locks, &[]),
            admin.query(&looks.claims, &[]),
        );
        let (progress, log, entries, outcomes, dead, locks, claims) =
            rows.map_err(|error| format!("{error:?}"))?;

        let mut lanes = 0;
        for row in &progress {
            let place = place(row.get(0), row.get(1));
            self.lane_ids.insert(row.get(2), place);
            let lane = &self.model.lanes[place];
            let found = (
                row.get(3),
                row.get(4),
                row.get(5),
                row.get(6),
                row.get(7),
                row.get(8),
                row.get(9),
            );
            let (version, cursor) = (lane.version, lane.cursor);
            let after = lane.requeued_after();
            let expected = (
                version,
                cursor,
                lane.attempts,
                lane.crashes,
                lane.retry_at,
                lane.parked,
                after,
            );
            ensure!(
                found == expected,
                "lane {place} is at {found:?}, not {expected:?}"
            );
            lanes += 1;
        }
        let expected = (0..LANES).filter(|lane| self.model.exists(*lane)).count();
        ensure!(
            lanes == expected,
            "{lanes} lanes with progress, not {expected}"
        );

        let mut logs: BTreeMap<usize, Vec<(i64, String, Uuid, i64)>> = BTreeMap::new();
        for row in &log {
            let (seqs, types): (Vec<i64>, Vec<String>) = (row.get(1), row.get(2));
            let (ids, days): (Vec<Uuid>, Vec<i32>) = (row.get(3), row.get(4));
            let events = seqs.into_iter().zip(types).zip(ids.into_iter().zip(days));
            let events = events.map(|((seq, kind), (id, day))| (seq, kind, id, i64::from(day)));
            logs.insert(session(row.get(0)), events.collect());
        }
        for (at, session) in self.model.sessions.iter().enumerate() {
            let entries = (1i64..).zip(&session.log).filter(|(_, entry)| !entry.gone);
            let expected: Vec<_> = entries
                .map(|(seq, entry)| (seq, TYPES[entry.kind].to_owned(), entry.id, entry.day))
                .collect();
            let found = logs.remove(&at).unwrap_or_default();
            ensure!(
                found == expected,
                "the log of session {at} is {found:?}, not {expected:?}"
            );
        }

        let entries: BTreeMap<usize, i64> = entries
            .iter()
            .filter_map(|row| Some((*self.lane_ids.get(&row.get(0))?, row.get(1))))
            .collect();
        for place in (0..LANES).filter(|lane| self.model.exists(*lane)) {
            self.check_token(place, entries.get(&place).copied())?;
        }

        let mut found: BTreeMap<usize, BTreeMap<i64, String>> = BTreeMap::new();
        for row in &outcomes {
            found
                .entry(self.lane_ids[&row.get(0)])
                .or_default()
                .insert(row.get(1), row.get(2));
        }
        for (place, lane) in self.model.lanes.iter().enumerate() {
            let found = found.remove(&place).unwrap_or_default();
            let same = found.len() == lane.outcomes.len()
                && found
                    .iter()
                    .zip(&lane.outcomes)
                    .all(|((seq, kind), (other, expected))| seq == other && kind == expected);
            ensure!(
                same,
                "lane {place} has the outcomes {found:?}, not {:?}",
                lane.outcomes
            );
        }

        let mut letters = 0;
        for row in &dead {
            let lane = &mut self.model.lanes[self.lane_ids[&row.get(0)]];
            let (seq, dead_id): (i64, i64) = (row.get(1), row.get(2));
            let known = lane
                .letters
                .iter_mut()
                .find(|letter| letter.seq == seq && [0, dead_id].contains(&letter.dead_id));
            let letter = known
                .ok_or_else(|| format!("dead letter {dead_id} of seq {seq} is one too many"))?;
            letter.dead_id = dead_id;
            let found = (row.get(3), row.get(4), row.get(5), row.get(6));
            let expected = (
                letter.attempts,
                letter.crashes,
                letter.after,
                letter.resolution,
            );
            ensure!(
                found == expected,
                "dead letter {dead_id} is {found:?}, not {expected:?}"
            );
            letters += 1;
        }
        let expected: usize = self.model.lanes.iter().map(|lane| lane.letters.len()).sum();
        ensure!(
            letters == expected,
            "{letters} dead letters, not {expected}"
        );

        let mut found: Vec<(usize, i32)> = locks
            .iter()
            .filter_map(|row| Some((*self.lane_ids.get(&row.get(0))?, row.get(1))))
            .collect();
        found.sort_unstable();
        ensure!(
            found.len() == locks.len(),
            "locks of lanes that nobody committed"
        );
        let pid = |at: usize| {
            self.connections[at]
                .as_ref()
                .map_or(0, |connection| connection.physical.pid)
        };
        let holders = self.model.lanes.iter().enumerate();
        let expected: Vec<(usize, i32)> = holders
            .filter_map(|(place, lane)| lane.holder.map(|holder| (place, pid(holder))))
            .collect();
        ensure!(
            found == expected,
            "held by backends: {found:?}, not {expected:?}"
        );

        let found: Vec<(i64, i64, usize)> = claims
            .iter()
            .map(|row| {
                (
                    row.get(0),
                    row.get(1),
                    usize::try_from(row.get::<_, i64>(2)).unwrap_or(0),
                )
            })
            .collect();
        let rows = self.model.claims.iter();
        let mut expected: Vec<_> = rows
            .map(|row| (row.connection_id, row.claim_id.abs(), row.lanes.len()))
            .collect();
        expected.sort_unstable();
        ensure!(
            found == expected,
            "claims on record: {found:?}, not {expected:?}"
        );
        if views {
            self.compare_states().await
        } else {
            Ok(())
        }
    }

    /// I13: a lane with something to deliver that is not parked has an entry, in time, or a holder.
    fn check_token(&self, place: usize, entry: Option<i64>) -> Check {
        let lane = &self.model.lanes[place];
        if self.model.front(place).is_none() || lane.parked || lane.excused || lane.holder.is_some()
        {
            return Ok(());
        }
        let due = lane
            .due
            .ok_or_else(|| format!("the model has lane {place} idle with work to do"))?;
        let due = due.max(self.model.now);
        ensure!(
            entry.is_some_and(|entry| entry <= due),
            "lane {place} has work, nobody holds it, and its first entry is due at {entry:?}, not by {due}"
        );
        Ok(())
    }

    async fn compare_states(&self) -> Check {
        let rows = self
            .ground
            .admin
            .query(&self.ground.looks.states, &[])
            .await
            .map_err(|error| format!("{error:?}"))?;
        for row in rows {
            let (session, subscription, seq): (&str, Option<&str>, i64) =
                (row.get(0), row.get(1), row.get(2));
            let place = place(session, subscription.unwrap_or_default());
            let (found, expected): (&str, &str) = (row.get(3), self.model.state(place, seq));
            ensure!(
                found == expected,
                "event {seq} of lane {place} is shown as {found}, not {expected}"
            );
        }
        Ok(())
    }

    /// At the end: all of the log was delivered, or it says why not; and nothing is left over.
    pub async fn compare_end(&mut self) -> Check {
        self.compare(true).await?;
        let left = "SELECT (SELECT count(*) FROM lanekeeper.ready), (SELECT count(*) FROM lanekeeper.claim),
                           (SELECT count(*) FROM lanekeeper.lane_connection)";
        let row = self
            .ground
            .admin
            .query_one(left, &[])
            .await
            .map_err(|error| format!("{error:?}"))?;
        let left: (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let open = self.connections.iter().flatten().count() as i64;
        ensure!(
            left == (0, 0, open),
            "entries, claims and connections that are left: {left:?}, not (0, 0, {open})"
        );
        for (place, lane) in self.model.lanes.iter().enumerate() {
            let log = &self.model.sessions[Model::session_of(place)].log;
            for (seq, entry) in (1i64..).zip(log).filter(|(_, entry)| !entry.gone) {
                let accounted = lane.accepted.contains(&seq)
                    || lane.redelivered.contains(&seq)
                    || lane.outcomes.contains_key(&seq)
                    || lane.filtered.contains(&seq)
                    || seq > lane.cursor
                        && !self
                            .model
                            .matches(Model::subscription_of(place), entry.kind);
                ensure!(
                    accounted,
                    "event {seq} of lane {place} is passed, and nothing says why"
                );
            }
        }
        Ok(())
    }
}

fn session(name: &str) -> usize {
    SESSION_NAMES
        .iter()
        .position(|other| *other == name)
        .expect("a session of the lists")
}

fn place(session_name: &str, subscription: &str) -> usize {
    let subscription = SUBSCRIPTIONS.iter().position(|name| *name == subscription);
    session(session_name) * SUBSCRIPTIONS.len() + subscription.expect("a subscription of the lists")
}
