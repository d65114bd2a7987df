//! What is measured, how often and at which sizes.

use lanekeeper_engine::WorkerSettings;

/// Runs whose median is reported, unless it is said how many.
const RUNS: usize = 3;

#[derive(Clone, Debug)]
pub struct Options {
    /// The median of this many is reported. `None`: of three, and of one where a run takes minutes.
    pub runs: Option<usize>,
    /// How long one run of what has no end of its own takes. `None`: as the workload has it.
    pub seconds: Option<f64>,
    /// Sessions and events per session of the drains, instead of their own cases.
    pub drain: Option<Backlog>,
    /// Lanes delivered at once, as the subscription says.
    pub concurrency: u32,
    /// The blocked lanes and what each holds, case by case.
    pub blocked: Vec<Backlog>,
    /// Lanes that have nothing to do.
    pub resting: usize,
    /// Daily partitions before today's.
    pub days: usize,
    /// What each of them holds.
    pub events_per_day: usize,
    /// Events per second of the steady loads. `None`: as the workload has it.
    pub rate: Option<f64>,
    /// Sessions of the steady loads.
    pub paced_sessions: usize,
    /// Past events that are replayed, and sessions that are replayed at once.
    pub replayed: usize,
    pub replay_concurrency: i32,
    /// Sessions of each producer beside busy workers.
    pub busy_sessions: usize,
    /// Worker processes, case by case.
    pub replicas: Vec<usize>,
    /// Sessions, case by case, that hold `spread_events` together.
    pub session_counts: Vec<usize>,
    pub spread_events: usize,
    /// Events in all, case by case.
    pub backlogs: Vec<usize>,
    /// What the worker process drains while its memory is watched.
    pub memory: Backlog,
    /// Events of the latency measurement.
    pub samples: usize,
    pub worker: WorkerSettings,
}

impl Options {
    pub(super) fn runs(&self) -> usize {
        self.runs.unwrap_or(RUNS)
    }

    /// Where a run takes minutes.
    pub(super) fn long_runs(&self) -> usize {
        self.runs.unwrap_or(1)
    }
}

/// Sessions, and the events that each of them holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub sessions: usize,
    pub events: usize,
}

impl Backlog {
    pub fn total(self) -> usize {
        self.sessions * self.events
    }
}

impl std::fmt::Display for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}", self.sessions, self.events)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Ordered delivery of a backlog, against a row queue without order
    Drain,
    /// The same over ever more sessions that hold as many events together
    Sessions,
    /// The same over ever deeper backlogs
    Backlog,
    /// One event per transaction and in bulk, against the bare INSERT; and beside ten busy workers,
    /// against none
    Enqueue,
    /// Acknowledged deliveries, against deliveries without acknowledgements; and idling beside lanes that wait
    Acks,
    /// Documents with their events, against an UPDATE and an INSERT by hand
    Documents,
    /// The state of an aggregate at any seq, and a command, with snapshots and without
    Aggregates,
    /// A read model that a function in SQL keeps, against calls of the function alone
    Projections,
    /// From an enqueue to the start of its delivery by an idle worker
    Latency,
    /// The same under a steady load
    Steady,
    /// The same for as long as a transaction keeps its snapshot, against the same load without it
    HeldSnapshot,
    /// A drain beside many blocked lanes, against one without them
    BlockedBacklog,
    /// A drain beside many lanes with nothing to do, against one without them
    Resting,
    /// A drain and single enqueues on a log of many daily partitions, against one partition
    Partitions,
    /// A drain by several worker processes, against one
    Replicas,
    /// A replay of past events beside live traffic, against their first delivery beside the same traffic
    Replay,
    /// The most memory that a worker process takes while it drains
    Memory,
}

impl Workload {
    pub const ALL: [Self; 17] = [
        Self::Drain,
        Self::Sessions,
        Self::Backlog,
        Self::Enqueue,
        Self::Acks,
        Self::Documents,
        Self::Aggregates,
        Self::Projections,
        Self::Latency,
        Self::Steady,
        Self::HeldSnapshot,
        Self::BlockedBacklog,
        Self::Resting,
        Self::Partitions,
        Self::Replicas,
        Self::Replay,
        Self::Memory,
    ];
}

#[cfg(test)]
pub(super) mod tests {
    use clap::ValueEnum as _;

    use super::*;

    pub fn tiny() -> Options {
        let one = Backlog {
            sessions: 2,
            events: 2,
        };
        Options {
            runs: Some(1),
            seconds: Some(0.1),
            drain: Some(one),
            concurrency: 8,
            blocked: vec![one],
            resting: 2,
            days: 2,
            events_per_day: 2,
            rate: Some(10.0),
            paced_sessions: 2,
            busy_sessions: 2,
            replayed: 4,
            replay_concurrency: 2,
            replicas: vec![1],
            session_counts: vec![1],
            spread_events: 2,
            backlogs: vec![2],
            memory: one,
            samples: 1,
            worker: WorkerSettings::default(),
        }
    }

    #[test]
    fn all_workloads_are_in_the_script_that_runs_them_all() {
        let script = include_str!("../../scripts/bench.sh");
        let (_, list) = script
            .split_once("WORKLOADS:-")
            .expect("the list begins so");
        let (list, _) = list.split_once('}').expect("the list ends so");
        let names: Vec<&str> = list
            .split([' ', '\n', '\\'])
            .filter(|name| !name.is_empty())
            .collect();
        let all =
            Workload::ALL.map(|workload| workload.to_possible_value().expect("none is hidden"));
        assert_eq!(
            names,
            all.iter().map(|value| value.get_name()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_takes_minutes_runs_once_unless_it_is_asked_to() {
        let mut options = tiny();
        options.runs = None;
        assert_eq!((options.runs(), options.long_runs()), (3, 1));
        options.runs = Some(5);
        assert_eq!((options.runs(), options.long_runs()), (5, 5));
    }
}
