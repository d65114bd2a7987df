//! The runs that the tests and `make model` make.

use crate::property;
use crate::scenario::{Scenario, Trust, committed, repeatable};

/// A named run.
pub struct Named {
    pub name: String,
    pub scenario: Scenario,
}

impl Named {
    /// Whether the property need not hold: where trust is broken, two may deliver at once, and what
    /// they deliver is mixed.
    pub fn excuses(&self, property: &str) -> bool {
        let mixed = [property::ONE_HOLDER, property::CONTIGUOUS].contains(&property);
        self.scenario.trust == Trust::Broken && mixed
    }
}

macro_rules! named {
    ($($name:ident),* $(,)?) => {
        vec![$(Named { name: stringify!($name).to_owned(), scenario: $name() }),*]
    };
}

/// What `make test` checks.
pub fn small() -> Vec<Named> {
    named![
        appends_to_one_session,
        appends_to_two_sessions,
        bulk_appends,
        old_snapshots,
        held_and_handed_on,
        killed,
        killed_with_two_subscriptions,
        cut,
        frozen,
        failed_over,
        exhausted_and_killed,
        exhausted_and_failed_over,
        parked_and_operated,
        requeued,
        requeued_and_killed,
        requeued_and_failed_over,
        doorbell,
        bounds,
        trust_broken,
        acknowledged,
        acknowledged_and_killed,
        closed,
        closed_and_killed,
        interrupted,
        interrupted_and_killed,
        held_back,
        acknowledged_and_interrupted,
    ]
}

/// Producers append to one session that two subscriptions deliver.
pub fn appends_to_one_session() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0, 0])]).one_session()
}

/// Two sessions, and a head that fails: its backoff must not touch the other lane.
pub fn appends_to_two_sessions() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0]), committed(&[1])])
        .with(|it| it.budget.failures = 2)
}

/// Transactions with more than one event.
pub fn bulk_appends() -> Scenario {
    Scenario::new(&[committed(&[0, 1]), committed(&[0])]).with(|it| it.budget.failures = 1)
}

/// REPEATABLE READ beside READ COMMITTED.
pub fn old_snapshots() -> Scenario {
    Scenario::new(&[repeatable(&[0]), committed(&[0]), repeatable(&[0])])
}

/// Lanes that are marked, released by a worker that stops, and yielded.
pub fn held_and_handed_on() -> Scenario {
    Scenario::new(&[committed(&[0, 0]), committed(&[1])]).with(|it| {
        it.budget.marks = 2;
        it.budget.releases = 1;
        it.budget.yields = 1;
        it.budget.failures = 1;
    })
}

/// A worker dies, its locks go one by one, a peer takes over and charges.
pub fn killed() -> Scenario {
    Scenario::new(&[committed(&[0, 0]), committed(&[1])]).with(|it| {
        it.budget.kills = 1;
        it.budget.marks = 1;
        it.rollbacks = false;
    })
}

/// The same where both lanes share the append lock.
pub fn killed_with_two_subscriptions() -> Scenario {
    Scenario::new(&[committed(&[0])]).one_session().with(|it| {
        it.budget.kills = 1;
        it.gives_up = false;
        it.rollbacks = false;
    })
}

/// A lane connection is lost, and its worker lives.
pub fn cut() -> Scenario {
    Scenario::new(&[committed(&[0, 0]), committed(&[1])]).with(|it| {
        it.budget.cuts = 1;
        it.budget.marks = 1;
        it.rollbacks = false;
    })
}

/// A worker freezes, a peer ends its connection and takes over, a request of it may still arrive.
pub fn frozen() -> Scenario {
    Scenario::new(&[committed(&[0, 0]), committed(&[1])]).with(|it| {
        it.budget.freezes = 1;
        it.budget.marks = 1;
        it.rollbacks = false;
    })
}

/// The server crashes; settlements that were not on disk are gone.
pub fn failed_over() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0])]).with(|it| {
        it.budget.failovers = 1;
        it.rollbacks = false;
    })
}

/// An event that is given up, and a death at any moment around it.
pub fn exhausted_and_killed() -> Scenario {
    Scenario::new(&[committed(&[0, 0, 0])]).with(|it| {
        it.budget.exhaustions = 1;
        it.budget.failures = 1;
        it.budget.kills = 1;
        it.rollbacks = false;
    })
}

/// An exhausted event and a server that crashes.
pub fn exhausted_and_failed_over() -> Scenario {
    Scenario::new(&[committed(&[0, 0, 0])]).with(|it| {
        it.budget.exhaustions = 1;
        it.budget.failovers = 1;
        it.rollbacks = false;
    })
}

/// A parked lane, and operators who unpark it or skip its head.
pub fn parked_and_operated() -> Scenario {
    Scenario::new(&[committed(&[0]), repeatable(&[0]), committed(&[0])]).with(|it| {
        it.budget.parks = 1;
        it.budget.failures = 1;
        it.budget.operations = 2;
        it.rollbacks = false;
    })
}

/// Dead letters that an operator has delivered again, at their place and at the end, while producers append.
pub fn requeued() -> Scenario {
    Scenario::new(&[committed(&[0, 0]), committed(&[0])]).with(|it| {
        it.budget.exhaustions = 2;
        it.budget.requeues = 2;
        it.budget.failures = 1;
        it.rollbacks = false;
    })
}

/// One, and a death at any moment around it.
pub fn requeued_and_killed() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0])]).with(|it| {
        it.budget.exhaustions = 2;
        it.budget.requeues = 1;
        it.budget.kills = 1;
        it.budget.failures = 1;
        it.rollbacks = false;
    })
}

/// One, and a server that crashes under the only worker.
pub fn requeued_and_failed_over() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0])]).with(|it| {
        it.workers = 1;
        it.budget.exhaustions = 2;
        it.budget.requeues = 1;
        it.budget.failovers = 1;
        it.gives_up = false;
        it.rollbacks = false;
    })
}

/// Idle workers sleep until something wakes them.
pub fn doorbell() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0])]).with(|it| {
        it.doorbell = true;
        it.budget.failures = 1;
    })
}

/// Scans start behind ready entries that are not committed yet.
pub fn bounds() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0]), committed(&[1])]).with(|it| it.bounds = true)
}

/// The server gives a lane to somebody else before its holder knows.
pub fn trust_broken() -> Scenario {
    Scenario::new(&[committed(&[0, 0])]).with(|it| {
        it.budget.cuts = 1;
        it.trust = Trust::Broken;
        it.rollbacks = false;
    })
}

/// Messages that are sent, acknowledged in time and late.
pub fn acknowledged() -> Scenario {
    Scenario::new(&[committed(&[0, 0]), committed(&[1])]).with(|it| {
        it.acks = true;
        it.budget.time_outs = 2;
        it.budget.yields = 1;
        it.rollbacks = false;
    })
}

/// A death between a send and its mark, and at any other moment.
pub fn acknowledged_and_killed() -> Scenario {
    Scenario::new(&[committed(&[0, 0])]).with(|it| {
        it.acks = true;
        it.budget.time_outs = 1;
        it.budget.kills = 1;
        it.rollbacks = false;
    })
}

/// A session that is closed while it is appended to and delivered.
pub fn closed() -> Scenario {
    Scenario::new(&[committed(&[0, 0]), committed(&[0])]).with(|it| {
        it.budget.closes = 1;
        it.budget.failures = 1;
        it.rollbacks = false;
    })
}

/// The same, and a death at any moment around it.
pub fn closed_and_killed() -> Scenario {
    Scenario::new(&[committed(&[0, 0])]).with(|it| {
        it.budget.closes = 1;
        it.budget.kills = 1;
        it.budget.failures = 1;
        it.rollbacks = false;
    })
}

/// An interrupt while the session is appended to and delivered.
pub fn interrupted() -> Scenario {
    Scenario::new(&[committed(&[0])]).one_session().with(|it| {
        it.budget.interrupts = 1;
        it.budget.failures = 1;
        it.rollbacks = false;
    })
}

/// The same, and a death at any moment around it.
pub fn interrupted_and_killed() -> Scenario {
    Scenario::new(&[committed(&[0, 0])]).with(|it| {
        it.budget.interrupts = 1;
        it.budget.kills = 1;
        it.budget.failures = 1;
        it.rollbacks = false;
    })
}

/// A barrier: the delivery that is under way ends by itself.
pub fn held_back() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0])]).with(|it| {
        it.budget.barriers = 1;
        it.budget.releases = 1;
        it.budget.kills = 1;
        it.rollbacks = false;
    })
}

/// An interrupt while a message waits for its acknowledgement.
pub fn acknowledged_and_interrupted() -> Scenario {
    Scenario::new(&[committed(&[0, 0])]).with(|it| {
        it.acks = true;
        it.budget.interrupts = 1;
        it.budget.time_outs = 1;
        it.rollbacks = false;
    })
}

/// What `make model` checks beside those: the same with more events, and with the statements apart
/// that a lock makes one.
pub fn large() -> Vec<Named> {
    let mut all = named![
        three_producers,
        failed_over_and_marked,
        trust_broken_over_two_lanes,
    ];
    for mut named in small() {
        named.name.push_str("_fine");
        named.scenario.fine = true;
        all.push(named);
    }
    all
}

/// One event each, to one session that two subscriptions deliver.
pub fn three_producers() -> Scenario {
    Scenario::new(&[committed(&[0]), committed(&[0]), committed(&[0])]).one_session()
}

/// A marked lane, and a server that crashes.
pub fn failed_over_and_marked() -> Scenario {
    failed_over().with(|it| it.budget.marks = 1)
}

/// A lost connection that held both lanes.
pub fn trust_broken_over_two_lanes() -> Scenario {
    trust_broken().with(|it| it.transactions = vec![committed(&[0, 0]), committed(&[1])])
}
