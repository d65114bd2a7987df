//! Decides when a send may go: the generic cell rate algorithm with a queue of waiters.
//!
//! A bucket is three instants. `due`: the instant at which the sends so far are within the steady rate. A send may go
//! if `due` is no further ahead than the tolerance, and moves it by one interval. `line`: the end of the queue, the
//! first instant for which no waiter has a slot. `silent`: the end of a pause that the destination asked for.
//!
//! ```text
//! ask ─┬─ free now, queue empty ─────► go: due moves
//!      ├─ free within the horizon ───► wait: line moves; ask again at the slot ─┬─► go
//!      └─ later ─────────────────────► nothing moves                            ├─► wait: woke early, or a little late
//!                                                                               └─► wait: a pause came, or much too
//! late:
//!                                                                                   a new slot at the end of the queue
//! ```
//!
//! A slot is a position in the queue, not a permission. When the waiter asks again, only `due` and `silent` decide. So
//! the rate holds whatever happens to waiters, and a pause that began meanwhile is kept. If a waiter never asks again,
//! only its slot is lost.
//!
//! A send that needs several buckets takes from all of them or from none. A bucket that becomes free much earlier than
//! the others gets no waiter: a full bucket must not hold back sends that do not need it.
//!
//! This module decides for one process without Redis. `take.lua` decides in the same way for all processes at Redis,
//! and a test compares the two.

/// Microseconds since an origin that the caller chooses.
pub(super) type Micros = i64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    pub due: Micros,
    pub line: Micros,
    pub silent: Micros,
}

/// The rate of a bucket at this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub interval: Micros,
    pub tolerance: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Go,
    /// Ask again at that instant, with that slot.
    Wait {
        slot: Micros,
    },
    /// No slot was given. `bucket` is the one that becomes free last.
    Later {
        at: Micros,
        bucket: usize,
    },
}

pub(super) fn ask(
    meters: &mut [(Meter, Pace)],
    now: Micros,
    slot: Option<Micros>,
    horizon: Micros,
) -> Outcome {
    let (mut free, mut line, mut spacing, mut binding) = (0, 0, 0, 0);
    for (i, (meter, pace)) in meters.iter().enumerate() {
        let from = meter.free(*pace);
        if from.max(meter.line) > free.max(line) {
            binding = i;
        }
        if from > free {
            free = from;
            spacing = pace.interval;
        }
        line = line.max(meter.line);
    }
    let mut at = free.max(line);
    let mut place = true;
    if let Some(slot) = slot {
        if slot > now && slot >= free {
            return Outcome::Wait { slot };
        }
        // The bucket is free only after at least one more interval. By then it is another waiter's turn, so this waiter
        // gets a new slot at the end of the queue.
        place = free - now >= spacing;
        if !place {
            at = free;
        }
    }
    if at <= now {
        for (meter, pace) in meters {
            meter.due = meter.due.max(now) + pace.interval;
        }
        return Outcome::Go;
    }
    if at - now > horizon {
        return Outcome::Later {
            at,
            bucket: binding,
        };
    }
    if place {
        for (meter, pace) in meters {
            if at <= meter.free(*pace).max(meter.line).max(now) + pace.interval {
                meter.line = at + pace.interval;
            }
        }
    }
    Outcome::Wait { slot: at }
}

impl Meter {
    fn free(&self, pace: Pace) -> Micros {
        (self.due - pace.tolerance).max(self.silent)
    }
}

#[cfg(test)]
mod tests;
