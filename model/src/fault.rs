//! What goes wrong, and what mends it: deaths, cut connections, frozen processes, failover (I2, I5).
//!
//! Sources: `migrations/functions/takeover/terminate_frozen.sql`, `src/engine/peers/control.rs`,
//! `src/engine/peers/lock_validity.rs`, `src/postgres/lane_connection.rs`.
//!
//! Bound: a worker loses no second connection before the first was taken over.

use crate::lane::has_session;
use crate::producer;
use crate::scenario::{Scenario, Trust};
use crate::state::{
    Bell, CURRENT, Connection, Hold, LANES, LOST, Locks, Phase, Process, Producer, Stage, State,
    WORKERS, Wish, Worker, bit,
};
use crate::step::{Step, Verdict};
use crate::takeover;

pub fn steps(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    let budget = &state.budget;
    let mut may_fail_over = budget.failovers > 0;
    for w in 0..scenario.workers {
        let worker = &state.workers[w];
        let lost = &state.database.connections[w][LOST];
        let ending = state.locks[w][LOST];
        let loses = has_session(state, w) && is_clear(scenario, state, w);
        may_fail_over &= is_clear(scenario, state, w);
        if worker.process == Process::Running {
            if loses && worker.connected {
                for (left, step) in [
                    (budget.kills, Step::Kill(w)),
                    (budget.cuts, Step::Cut(w)),
                    (budget.freezes, Step::Freeze(w)),
                ] {
                    if left > 0 {
                        steps.push(step);
                    }
                }
            }
            if worker.connected && !has_session(state, w) {
                steps.push(Step::Notice(w));
            }
            if worker.unseen {
                steps.push(Step::Control(w));
            }
            if !worker.connected && worker.holds.iter().all(|hold| hold.phase == Phase::None) {
                steps.push(Step::Open(w));
            }
        }
        if worker.process == Process::Dead {
            steps.push(Step::Restart(w));
        }
        if worker.process == Process::Frozen {
            frozen_steps(scenario, state, w, loses, steps);
        }
        for lane in (0..LANES).filter(|lane| ending.lanes & bit(*lane) != 0) {
            steps.push(Step::EndLaneLock(w, lane));
        }
        if ending.own {
            steps.push(Step::EndOwnLock(w));
        }
        if lost.registered && !ending.own {
            for by in (0..scenario.workers).filter(|by| is_in_control(state, *by)) {
                // A living worker takes care of its own; a dead or frozen one is taken over, and one
                // whose liveness lock is free counts as dead.
                let gone = lost.of_dead || worker.unseen || worker.process == Process::Frozen;
                if gone || by == w {
                    steps.push(Step::TakeOver { by, of: w });
                }
            }
        }
    }
    if may_fail_over {
        steps.push(Step::FailOver);
    }
    if scenario.has_failovers() && state.durable != producer::on_disk(state) {
        steps.push(Step::WriteOut);
    }
    if budget.operations > 0 {
        takeover::operations(scenario, state, steps);
    }
}

fn is_in_control(state: &State, w: usize) -> bool {
    state.workers[w].process == Process::Running && !state.workers[w].unseen
}

/// Whether the worker's last lost connection is history.
fn is_clear(scenario: &Scenario, state: &State, w: usize) -> bool {
    let on_disk = scenario.has_failovers() && state.durable.connections[w][LOST].registered;
    let ending = state.locks[w][LOST] != Locks::default();
    !state.database.connections[w][LOST].registered && !ending && !on_disk
}

fn frozen_steps(scenario: &Scenario, state: &State, w: usize, loses: bool, steps: &mut Vec<Step>) {
    steps.push(Step::Thaw(w));
    for lane in 0..LANES {
        if state.workers[w].holds[lane].late {
            steps.push(Step::Late(w, lane));
        }
    }
    for by in (0..scenario.workers).filter(|by| *by != w && is_in_control(state, *by)) {
        if loses {
            steps.push(Step::Terminate { by, frozen: w });
        }
    }
}

/// The server sees the connection go. Its locks follow one by one.
fn lose_connection(state: &mut State, w: usize, dead: bool) {
    state.locks[w][LOST] = std::mem::take(&mut state.locks[w][CURRENT]);
    for database in [&mut state.database, &mut state.durable] {
        let [current, lost] = &mut database.connections[w];
        if current.registered {
            *lost = std::mem::take(current);
            lost.of_dead = dead;
        }
    }
}

/// The worker gives up what it held over the connection.
fn drop_holds(state: &mut State, w: usize) {
    let worker = &mut state.workers[w];
    worker.holds = [Hold::default(); LANES];
    worker.connected = false;
    worker.asleep = false;
    worker.timer = false;
}

/// A frozen worker's trust has passed; what was under way still is.
fn end_trust(state: &mut State, w: usize) {
    let holds = state.workers[w].holds.map(|hold| {
        let under_way = hold.phase == Phase::Running
            && hold.wish == Wish::None
            && hold.outcomes == 0
            && !crate::letter::is_faced(&hold)
            && hold.cursor < hold.fetched;
        if under_way {
            Hold {
                late: true,
                phase: Phase::Running,
                cursor: hold.cursor,
                fetched: hold.fetched,
                token: crate::state::GONE,
                ..Hold::default()
            }
        } else {
            Hold::default()
        }
    });
    drop_holds(state, w);
    state.workers[w].holds = holds;
}

pub fn kill(state: &mut State, w: usize) {
    state.budget.kills -= 1;
    state.happened.fault = true;
    state.happened.kills += 1;
    lose_connection(state, w, true);
    state.workers[w] = Worker {
        process: Process::Dead,
        ..Worker::default()
    };
}

pub fn cut(scenario: &Scenario, state: &mut State, w: usize) {
    state.budget.cuts -= 1;
    state.happened.fault = true;
    lose_connection(state, w, false);
    if scenario.trust == Trust::Kept {
        drop_holds(state, w);
    }
}

pub fn notice(state: &mut State, w: usize) {
    drop_holds(state, w);
}

pub fn freeze(state: &mut State, w: usize) {
    state.budget.freezes -= 1;
    state.happened.fault = true;
    state.workers[w].process = Process::Frozen;
}

pub fn terminate(state: &mut State, frozen: usize) {
    lose_connection(state, frozen, false);
    end_trust(state, frozen);
}

pub fn late(state: &mut State, w: usize, lane: usize) {
    let seq = state.workers[w].holds[lane].cursor + 1;
    state.workers[w].holds[lane] = Hold::default();
    crate::lane::arrive(state, lane, seq, Verdict::Accept, true);
}

pub fn thaw(state: &mut State, w: usize) {
    state.workers[w].process = Process::Running;
    if !has_session(state, w) {
        drop_holds(state, w);
    }
}

pub fn restart(state: &mut State, w: usize) {
    state.workers[w] = Worker::default();
}

pub fn open(state: &mut State, w: usize) {
    state.workers[w].connected = true;
    state.locks[w][CURRENT].own = true;
    state.database.connections[w][CURRENT] = Connection {
        registered: true,
        ..Connection::default()
    };
}

pub fn fail_over(scenario: &Scenario, state: &mut State) {
    state.budget.failovers -= 1;
    state.happened.fault = true;
    for w in 0..WORKERS {
        let believes = state.workers[w].connected;
        lose_connection(state, w, false);
        match state.workers[w].process {
            Process::Frozen if believes => end_trust(state, w),
            Process::Running if scenario.trust == Trust::Broken => {}
            Process::Running => drop_holds(state, w),
            Process::Frozen | Process::Dead => {}
        }
        state.workers[w].bell = Bell::Away;
        state.workers[w].unseen = state.workers[w].process != Process::Dead;
    }
    for lane in 0..LANES {
        let before = state.database.lanes[lane].outcomes;
        state.broken.outcome_lost |= before & !state.durable.lanes[lane].outcomes != 0;
    }
    state.database = state.durable;
    state.locks = Default::default();
    for connection in state.database.connections.iter_mut().flatten() {
        connection.of_old_epoch = connection.registered;
    }
    state.durable = state.database;
    for p in 0..state.producers.len() {
        match state.producers[p].stage {
            Stage::Flushed => producer::end(state, p, Stage::Committed),
            Stage::Open | Stage::Locked | Stage::Ringing => {
                state.producers[p] = Producer::default()
            }
            Stage::Begun => state.producers[p].snapshot = None,
            Stage::Committed | Stage::RolledBack => {}
        }
    }
}
