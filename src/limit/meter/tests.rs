//! What must hold however late waiters wake and whatever destinations say.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const HORIZON: Micros = 1_000_000;

fn pace(interval: Micros, burst: Micros) -> Pace {
    Pace {
        interval,
        tolerance: interval * (burst - 1) + interval * 3 / 10,
    }
}

/// One decision over these buckets.
fn decide(meters: &mut [(&mut Meter, Pace)], now: Micros, slot: Option<Micros>) -> Outcome {
    let mut copies: Vec<_> = meters
        .iter()
        .map(|(meter, pace)| (**meter, *pace))
        .collect();
    let outcome = ask(&mut copies, now, slot, HORIZON);
    for ((meter, _), (copy, _)) in meters.iter_mut().zip(copies) {
        **meter = copy;
    }
    outcome
}

/// Lanes that each want to send all the time, and wake late by what `late` says.
struct Run {
    meter: Meter,
    sent: Vec<Micros>,
    asked: usize,
}

impl Run {
    fn of(pace: Pace, lanes: usize, until: Micros, mut late: impl FnMut() -> Micros) -> Self {
        let mut run = Self {
            meter: Meter::default(),
            sent: Vec::new(),
            asked: 0,
        };
        let start = 10 * HORIZON;
        let mut queue: BTreeMap<(Micros, usize), Option<Micros>> =
            (0..lanes).map(|lane| ((start, lane), None)).collect();
        while let Some(((now, lane), slot)) = queue.pop_first() {
            if now > start + until {
                break;
            }
            run.asked += 1;
            let (again, slot) = match decide(&mut [(&mut run.meter, pace)], now, slot) {
                Outcome::Go => {
                    run.sent.push(now);
                    (now + 2_000, None)
                }
                Outcome::Wait { slot } => (slot.max(now), Some(slot)),
                Outcome::Later { at, .. } => (at - HORIZON / 2, None),
            };
            let again = again.max(now) + late();
            queue.insert((again, lane), slot);
        }
        run
    }

    /// The most sends in any window of this length, both its ends included.
    fn most_in(&self, window: Micros) -> usize {
        let sent = &self.sent;
        let after = |from: &Micros| {
            sent.iter()
                .filter(|at| (*from..=from + window).contains(at))
                .count()
        };
        sent.iter().map(after).max().unwrap_or(0)
    }
}

proptest! {
    #[test]
    fn no_window_has_more_sends_than_the_rate_and_the_burst(
        rate in 1..200_i64, burst in 1..20_i64, lanes in 1..40_usize, window in 1..5_i64,
        late in prop::collection::vec(0..300_000_i64, 1..50),
    ) {
        let mut late = late.into_iter().cycle();
        let run = Run::of(pace(1_000_000 / rate, burst), lanes, 4_000_000, || late.next().unwrap_or(0));
        // An interval that was rounded down makes room for a little more than the rate.
        let rounding = 1_000_000 % rate * rate / 1_000_000 + 1;
        let allowed = rate * window + burst + rounding * i64::from(1_000_000 % rate != 0);
        prop_assert!(run.most_in(window * 1_000_000) as i64 <= allowed);
    }
}

#[test]
fn waiters_that_wake_on_time_use_all_of_it_and_ask_twice() {
    let run = Run::of(pace(33_333, 1), 16, 10_000_000, || 1_000);
    assert!(run.sent.len() >= 300, "{}", run.sent.len());
    assert!(run.asked <= run.sent.len() * 2 + 64, "{}", run.asked);
}

#[test]
fn one_long_stall_costs_its_own_time_and_nothing_after_it() {
    let mut wakes = 0;
    let run = Run::of(pace(33_333, 1), 16, 10_000_000, || {
        wakes += 1;
        if (100..116).contains(&wakes) {
            500_000
        } else {
            1_000
        }
    });
    assert!(run.sent.len() >= 300 - 20, "{}", run.sent.len());
    assert!(run.asked <= run.sent.len() * 3, "{}", run.asked);
}

#[test]
fn a_waiter_sees_a_silence_that_came_while_it_waited() {
    let pace = pace(100_000, 1);
    let mut meter = Meter::default();
    let mut at = |now, slot, silent| {
        meter.silent = meter.silent.max(silent);
        decide(&mut [(&mut meter, pace)], now, slot)
    };
    let start = 5_000_000;
    assert_eq!(at(start, None, 0), Outcome::Go);
    let Outcome::Wait { slot } = at(start, None, 0) else {
        panic!("the second one waits")
    };
    let silent = start + 800_000;
    assert_eq!(at(slot, Some(slot), silent), Outcome::Wait { slot: silent });
    // Each who waited gets a slot of its own after it.
    assert_eq!(
        at(slot, Some(slot), 0),
        Outcome::Wait {
            slot: silent + 100_000
        }
    );
    assert_eq!(at(silent, Some(silent), 0), Outcome::Go);
    let late = start + 5_000_000;
    assert_eq!(
        at(slot, Some(slot), late),
        Outcome::Later {
            at: late,
            bucket: 0
        }
    );
}

#[test]
fn who_waits_for_a_slow_bucket_keeps_its_place_when_it_is_late_by_an_interval_of_a_fast_one() {
    let paces = [pace(10_000, 1), pace(500_000, 1)];
    let mut meters = [Meter::default(); 2];
    let mut at = |now, slot| {
        let [fast, slow] = &mut meters;
        decide(&mut [(fast, paces[0]), (slow, paces[1])], now, slot)
    };
    let start = 5_000_000;
    assert_eq!(at(start, None), Outcome::Go);
    let [first, second] = [350_000, 850_000].map(|after| start + after);
    assert_eq!(at(start, None), Outcome::Wait { slot: first });
    assert_eq!(at(start, None), Outcome::Wait { slot: second });
    // The first wakes late, and moves what comes after it a little.
    assert_eq!(at(first + 200_000, Some(first)), Outcome::Go);
    let free = second + 50_000;
    assert_eq!(at(second, Some(second)), Outcome::Wait { slot: free });
    assert_eq!(at(free, Some(free)), Outcome::Go);
}

#[test]
fn of_several_buckets_none_moves_unless_all_are_free() {
    let (fast, slow) = (pace(10_000, 1), pace(3_000_000, 1));
    let (mut bot, mut group, mut other) = (Meter::default(), Meter::default(), Meter::default());
    let start = 5_000_000;
    let go = decide(&mut [(&mut bot, fast), (&mut group, slow)], start, None);
    assert_eq!(go, Outcome::Go);
    let before = bot;
    let later = decide(
        &mut [(&mut bot, fast), (&mut group, slow)],
        start + 20_000,
        None,
    );
    assert!(
        matches!(later, Outcome::Later { bucket: 1, .. }),
        "{later:?}"
    );
    assert_eq!(bot, before);
    // Who waits for its group keeps nobody else of the bot waiting.
    let near = start + 2_000_000;
    let wait = decide(&mut [(&mut bot, fast), (&mut group, slow)], near, None);
    assert!(matches!(wait, Outcome::Wait { .. }), "{wait:?}");
    let go = decide(&mut [(&mut bot, fast), (&mut other, slow)], near, None);
    assert_eq!(go, Outcome::Go);
}
