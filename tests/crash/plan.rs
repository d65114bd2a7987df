//! What a seed decides: the workers, the load, and which faults strike when.

use std::time::Duration;

use crate::support::Dice;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// SIGKILL; another worker takes its place a little later.
    KillWorker,
    /// SIGSTOP past every time-out, then SIGCONT.
    FreezeWorker,
    /// SIGTERM under load.
    StopWorker,
    /// `pg_terminate_backend` on any of the workers' connections.
    TerminateBackend,
    /// Postgres goes down without a shutdown and comes up again.
    RestartServer,
    /// Postgres dies for good, and its standby is promoted.
    FailOver,
    /// Postgres has no connection left, and lane connections are ended.
    ExhaustConnections,
    /// Every connection of a worker is reset.
    CutWorker,
    CutProducers,
    DelayWorker,
    ThrottleWorker,
    /// Nothing of what a worker and Postgres say passes, not even the end of a connection.
    SilenceWorker,
    /// The answer to a producer's commit never arrives.
    CutAfterCommit,
    /// The answer to a worker's settlement never arrives.
    CutAfterSettlement,
    /// The answer to a worker's claim never arrives.
    CutAfterClaim,
    SlowReceiver,
    /// Connections to the receiver are reset, and refused for a moment, again and again.
    FlapReceiver,
    /// Of the receiver's answers only the beginning arrives.
    HalveAnswers,
    KillReceiver,
    /// A worker's clock jumps by minutes.
    JumpClock,
    /// Redis is killed and comes back without a memory.
    KillRedis,
    /// Redis stands still, and goes on where it stood.
    FreezeRedis,
    /// A worker's connections to Redis are reset, and it gets no new ones for a while. Others reach it.
    CutRedis,
    /// What one worker and Redis say takes longer, up to more than either waits for.
    DelayRedis,
    /// Nothing of what one worker and Redis say passes.
    SilenceRedis,
}

use Fault::*;

/// How often each is drawn.
const WEIGHTS: [(Fault, u64); 25] = [
    (KillWorker, 14),
    (FreezeWorker, 5),
    (StopWorker, 6),
    (TerminateBackend, 9),
    (RestartServer, 5),
    (FailOver, 2),
    (ExhaustConnections, 2),
    (CutWorker, 7),
    (CutProducers, 3),
    (DelayWorker, 3),
    (ThrottleWorker, 3),
    (SilenceWorker, 5),
    (CutAfterCommit, 7),
    (CutAfterSettlement, 8),
    (CutAfterClaim, 6),
    (SlowReceiver, 3),
    (FlapReceiver, 5),
    (HalveAnswers, 5),
    (KillReceiver, 5),
    (JumpClock, 3),
    (KillRedis, 4),
    (FreezeRedis, 3),
    (CutRedis, 3),
    (DelayRedis, 2),
    (SilenceRedis, 3),
];

impl Fault {
    fn draw(dice: &Dice) -> Self {
        let mut left = dice.roll(WEIGHTS.iter().map(|(_, weight)| weight).sum());
        for (fault, weight) in WEIGHTS {
            if left < weight {
                return fault;
            }
            left -= weight;
        }
        unreachable!("the roll is below the sum")
    }

    /// Whether it is about what one worker holds.
    pub fn strikes_a_worker(self) -> bool {
        matches!(
            self,
            KillWorker
                | FreezeWorker
                | StopWorker
                | CutWorker
                | SilenceWorker
                | CutAfterSettlement
                | CutAfterClaim
        )
    }

    /// Whether it may make events come once more. Those that do not are held to it.
    pub fn costs_repeats(self) -> bool {
        !matches!(
            self,
            StopWorker
                | CutProducers
                | CutAfterCommit
                | SlowReceiver
                | JumpClock
                | DelayWorker
                | ThrottleWorker
        ) && !self.strikes_redis()
    }

    /// Whether it is about the limits that are shared.
    pub fn strikes_redis(self) -> bool {
        matches!(
            self,
            KillRedis | FreezeRedis | CutRedis | DelayRedis | SilenceRedis
        )
    }

    /// Whether requests may arrive much later than they were let go.
    pub fn bunches_arrivals(self) -> bool {
        matches!(
            self,
            FreezeWorker | SlowReceiver | FlapReceiver | HalveAnswers | KillReceiver
        )
    }

    /// Whether it needs a server of its own.
    pub fn takes_the_server(self) -> bool {
        matches!(self, RestartServer | FailOver | ExhaustConnections)
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub workers: usize,
    /// Time-outs of a tenth, so that a frozen worker is replaced within seconds.
    pub soon: bool,
    /// Since the load began.
    pub schedule: Vec<(Duration, Fault)>,
    /// Between two transactions of a producer, at the most.
    pub pause_ms: u64,
    /// To the receiver, and as long back.
    pub delivery_ms: u64,
    /// Whether one subscription has a limit, shared over a Redis of the run's own.
    pub limited: bool,
    /// Whether the receiver refuses some events for good, and an operator has the dead letters delivered again.
    pub requeued: bool,
    /// Whether the messages of one subscription are acknowledged by a consumer, and sent again where they are not.
    pub acknowledged: bool,
}

impl Plan {
    /// One in twenty has no fault, one in four kills only, one in a hundred freezes a worker with the
    /// default time-outs; the others draw what they combine.
    pub fn of(seed: u64) -> Self {
        let dice = Dice::new(seed);
        if dice.roll(100) == 0 {
            let plan = Self::with(seed, &dice, &[FreezeWorker]);
            return Self {
                soon: false,
                pause_ms: 100,
                ..plan
            };
        }
        let faults: Vec<Fault> = match dice.roll(20) {
            0 => Vec::new(),
            1..6 => vec![KillWorker; 1 + dice.roll(2) as usize],
            _ => (0..=dice.roll(4)).map(|_| Fault::draw(&dice)).collect(),
        };
        Self::with(seed, &dice, &faults)
    }

    /// With these faults, in this order.
    pub fn only(seed: u64, faults: &[Fault]) -> Self {
        let plan = Self::with(seed, &Dice::new(seed), faults);
        Self {
            requeued: false,
            acknowledged: false,
            ..plan
        }
    }

    /// With these faults and a consumer who acknowledges what comes to one subscription.
    pub fn acknowledging(seed: u64, faults: &[Fault]) -> Self {
        Self {
            acknowledged: true,
            // A run without faults is short.
            pause_ms: 12,
            ..Self::only(seed, faults)
        }
    }

    /// With these faults and an operator who has dead letters delivered again.
    pub fn requeueing(seed: u64, faults: &[Fault]) -> Self {
        Self {
            requeued: true,
            ..Self::only(seed, faults)
        }
    }

    fn with(seed: u64, dice: &Dice, faults: &[Fault]) -> Self {
        let mut at = 300 + dice.roll(500);
        let schedule = faults.iter().map(|fault| {
            let now = at;
            at += 100 + dice.roll(900);
            (Duration::from_millis(now), *fault)
        });
        Self {
            seed,
            schedule: schedule.collect(),
            workers: 2 + dice.roll(2) as usize,
            soon: faults
                .iter()
                .any(|fault| matches!(fault, FreezeWorker | SilenceWorker)),
            pause_ms: [12, 30, 60][dice.roll(3) as usize],
            delivery_ms: [2, 5, 10][dice.roll(3) as usize],
            limited: dice.roll(8) == 0 || faults.iter().any(|fault| fault.strikes_redis()),
            requeued: dice.roll(3) == 0,
            acknowledged: dice.roll(3) == 0,
        }
    }

    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        self.schedule.iter().map(|(_, fault)| *fault)
    }

    /// After which a frozen worker has been replaced, whatever else is going on.
    pub fn frozen_for(&self) -> Duration {
        Duration::from_millis(if self.soon { 5_500 } else { 37_000 })
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults().any(|one| one == fault)
    }
}
