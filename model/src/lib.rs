//! An exhaustive model of the protocol: two workers, two lanes, three events, every interleaving.
//!
//! It says nothing about Postgres or Rust; it says whether the protocol keeps I1 to I5 and I13 if the
//! code does what [`step::Step`] says that it does. The tests hold both directions: the protocol keeps
//! them (`tests/holds.rs`), and without any of its protecting details the checker finds the way to
//! break them (`tests/mutations.rs`).
//!
//! What Postgres does is taken as documented for READ COMMITTED: a statement sees what was committed
//! when it began; a commit becomes visible before its locks are released; an advisory lock that is
//! tried in shared mode fails where somebody holds it exclusively or waits for it so; sessions that end
//! lose their locks one by one; a server that crashes keeps a prefix of what was committed, and all
//! that a flushed commit promised.

pub mod ack;
mod canonical;
pub mod claim;
pub mod closing;
pub mod fault;
pub mod lane;
pub mod letter;
pub mod producer;
pub mod property;
pub mod recovery;
pub mod scenario;
pub mod scenarios;
pub mod settle;
pub mod state;
pub mod step;
pub mod takeover;
pub mod waking;

use stateright::{Model, Property};

use scenario::Scenario;
use state::{CURRENT, Connection, Due, Locks, State};
use step::Step;

impl Model for Scenario {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            budget: self.budget,
            ..State::default()
        };
        for w in 0..self.workers {
            state.workers[w].connected = true;
            state.locks[w][CURRENT] = Locks {
                own: true,
                lanes: 0,
            };
            state.database.connections[w][CURRENT] = Connection {
                registered: true,
                ..Connection::default()
            };
        }
        if self.has_failovers() {
            state.durable = state.database;
        }
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        producer::steps(self, state, steps);
        lane::steps(self, state, steps);
        waking::steps(self, state, steps);
        fault::steps(self, state, steps);
        letter::steps(self, state, steps);
        ack::steps(self, state, steps);
        closing::steps(self, state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        apply(self, &mut next, step);
        canonical::form(self, &mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}

fn apply(scenario: &Scenario, state: &mut State, step: Step) {
    match step {
        Step::Snapshot(p) => producer::snapshot(scenario, state, p),
        Step::AppendLock(p) => producer::append_lock(scenario, state, p),
        Step::Append(p) => producer::append(scenario, state, p),
        Step::Ring(p) => producer::ring(state, p),
        Step::Flush(p) => producer::flush(state, p),
        Step::Commit(p) => producer::commit(scenario, state, p),
        Step::RollBack(p) => producer::end(state, p, state::Stage::RolledBack),
        Step::WalkSnapshot(w) => claim::walk_snapshot(state, w),
        Step::Claim(w, lanes) => claim::claim(scenario, state, w, lanes),
        Step::Read(w) => claim::read(scenario, state, w),
        Step::Fetch(w, lane) => claim::fetch(scenario, state, w, lane),
        Step::WalkPast(w) => waking::walk_past(state, w),
        Step::FullWalk(w) => waking::full_walk(state, w),
        Step::Deliver(w, lane, verdict) => lane::deliver(scenario, state, w, lane, verdict),
        Step::Release(w, lane) => {
            state.budget.releases -= 1;
            state.workers[w].holds[lane].wish = state::Wish::Release;
        }
        Step::GiveUp(w, lane) => {
            state.workers[w].holds[lane].busy = false;
            state.workers[w].holds[lane].wish = state::Wish::Retry;
        }
        Step::Keep(w, lane) => settle::keep(scenario, state, w, lane),
        Step::Finish(w, lane) => settle::finish(scenario, state, w, lane),
        Step::Look(w, lane) => settle::look(scenario, state, w, lane),
        Step::Decide(w, lane) => settle::decide(scenario, state, w, lane),
        Step::Yield(w, lane) => settle::yield_lane(scenario, state, w, lane),
        Step::Settle(w, lane) => settle::settle(scenario, state, w, lane),
        Step::Unlock(w, lane) => settle::unlock(scenario, state, w, lane),
        Step::Forget(w, lane) => settle::forget(state, w, lane),
        Step::Mark(w, lane) => settle::mark(state, w, lane),
        Step::RetryDue(lane) => waking::becomes_due(state, lane, Due::Retry),
        Step::TimeOutDue(lane) => waking::becomes_due(state, lane, Due::TimeOut),
        Step::Doze(w) => waking::doze(state, w),
        Step::Poll(w) => state.workers[w].asleep = false,
        Step::QueueForBell(w) => state.workers[w].bell = state::Bell::Queued,
        Step::GrantBell(w) => waking::grant_bell(scenario, state, w),
        Step::GiveBell(w) => state.workers[w].bell = state::Bell::Away,
        Step::Kill(w) => fault::kill(state, w),
        Step::Restart(w) => fault::restart(state, w),
        Step::Cut(w) => fault::cut(scenario, state, w),
        Step::Notice(w) => fault::notice(state, w),
        Step::Freeze(w) => fault::freeze(state, w),
        Step::Terminate { frozen, .. } => fault::terminate(state, frozen),
        Step::Late(w, lane) => fault::late(state, w, lane),
        Step::Thaw(w) => fault::thaw(state, w),
        Step::EndLaneLock(w, lane) => state.locks[w][state::LOST].lanes &= !state::bit(lane),
        Step::EndOwnLock(w) => state.locks[w][state::LOST].own = false,
        Step::Open(w) => fault::open(state, w),
        Step::TakeOver { by, of } => takeover::take_over(scenario, state, by, of),
        Step::Control(w) => state.workers[w].unseen = false,
        Step::WriteOut => state.durable = producer::on_disk(state),
        Step::FailOver => fault::fail_over(scenario, state),
        Step::Operate(lane, action) => takeover::operate(scenario, state, lane, action),
        Step::Requeue(lane, place) => letter::requeue(scenario, state, lane, place),
        Step::Close(session) => closing::close(scenario, state, session),
        Step::Interrupt(session) => closing::interrupt(scenario, state, session, true),
        Step::Barrier(session) => closing::interrupt(scenario, state, session, false),
        Step::FinishClosing(lane) => closing::finish(scenario, state, lane),
        Step::Cancel(w, lane) => closing::cancel(state, w, lane),
        Step::LetGo(w, lane) => closing::let_go(scenario, state, w, lane),
        Step::Send(w, lane) => ack::send(scenario, state, w, lane),
        Step::PassAcked(w, lane) => ack::pass_acked(state, w, lane),
        Step::SendAgain(w, lane) => ack::send_again(state, w, lane),
        Step::Await(w, lane) => state.workers[w].holds[lane].wish = state::Wish::Await,
        Step::Acknowledge(lane) => ack::acknowledge(scenario, state, lane),
        Step::WaitOver(lane) => ack::wait_over(state, lane),
    }
    if !scenario.has_failovers() {
        state.durable = state::Database::default();
    }
}
