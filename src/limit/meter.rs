//! When a send may go: the generic cell rate algorithm with a line of waiters.
//!
//! A bucket is three instants. `due`: when its sends so far are paid for at the steady pace; a send may
//! go while that is no further ahead than the tolerance, and moves it by one interval. `line`: the
//! first instant for which no waiter has a slot. `silent`: until when the destination wants nothing.
//!
//! ```text
//! ask ─┬─ free now, nobody in line ──► go: due moves
//!      ├─ free within the horizon ───► wait: line moves; ask again at the slot ─┬─► go
//!      └─ later ─────────────────────► nothing moves                            ├─► wait: woke early, or a little late
//!                                                                               └─► wait: silence came, or much too late:
//!                                                                                   a new slot at the end of the line
//! ```
//!
//! A slot is a place in the line and no permission: only `due` decides, when the waiter asks again. So
//! whatever happens to waiters, no more go than may, and a silence that came meanwhile is seen. A
//! waiter that never asks again leaves its slot unused and costs nobody more than that.
//!
//! Of several buckets none moves unless all are free. A bucket that would be free long before the others
//! keeps no place: a full bucket must not hold back those who do not need it.
//!
//! Decided here for one process on its own; `take.lua` is the same for all processes at Redis, and a
//! test holds one against the other.

/// Microseconds since an origin of the caller's.
pub(super) type Micros = i64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    pub due: Micros,
    pub line: Micros,
    pub silent: Micros,
}

/// How fast a bucket may be drawn on at this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub interval: Micros,
    pub tolerance: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Go,
    /// Ask again then, with that slot.
    Wait {
        slot: Micros,
    },
    /// No slot was given; the bucket that is furthest from free is this one.
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
        // Too late by so much that others have their turn by then: to the end of the line.
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
