//! Compares the script with the Rust model: both decide alike for any request, however late, and for any pause. The
//! test sets the script's clock.

use std::cell::RefCell;

use proptest::test_runner::{Config, TestRunner};

use super::link::{BREAKER, CIRCUITS, REPORT, TAKE};
use super::meter::{self, Meter, Micros, Outcome, Pace};

#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the integration tests"
)]
#[path = "../../tests/support/redis.rs"]
mod server;

/// How far ahead slots are asked for: one lane asks for less than another.
const HORIZON: Micros = 1_000_000;
const FAR: Micros = 5_000_000;
/// The shortest interval below: past horizon and interval a line's length is not told.
const NEAREST: Micros = 100_000;
const SECOND: Micros = 1_000_000;
/// How long a circuit stays open, and a probe is waited for.
const OPEN: Micros = 30 * SECOND;
const PROBED: Micros = 5 * SECOND;
/// An instant of this century.
const START: Micros = 1_700_000_000_000_000;

/// The script with `TIME` replaced by its last argument.
fn at_given_time(script: &str) -> redis::Script {
    let clock = "redis.call('TIME')";
    assert!(script.contains(clock));
    let given = "{tonumber(string.sub(ARGV[#ARGV], 1, -7)), tonumber(string.sub(ARGV[#ARGV], -6))}";
    redis::Script::new(&script.replace(clock, given))
}

/// One asker's next step.
#[derive(Clone, Debug)]
struct Step {
    after: Micros,
    /// With the slot that was given last, if there is one.
    returns: bool,
    buckets: usize,
    silence: Option<Micros>,
    far: bool,
}

struct Redis {
    connection: redis::Connection,
    breaker: redis::Script,
    circuits: redis::Script,
    take: redis::Script,
    report: redis::Script,
    paces: Vec<Pace>,
}

impl Redis {
    fn on(server: &server::RedisServer) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        Self {
            connection: client.get_connection().unwrap(),
            take: at_given_time(TAKE),
            report: at_given_time(REPORT),
            breaker: at_given_time(BREAKER),
            circuits: at_given_time(CIRCUITS),
            paces: vec![
                Pace {
                    interval: 100_000,
                    tolerance: 130_000,
                },
                Pace {
                    interval: 700_000,
                    tolerance: 210_000,
                },
            ],
        }
    }

    /// Whether a circuit opened or its probe is granted, and for how long it is shut yet.
    fn circuit(&mut self, now: Micros, what: &str, lane: i64) -> [i64; 2] {
        let mut call = self.breaker.prepare_invoke();
        call.key("circuits").key("circuit d").key("failed d");
        call.arg(what).arg("d").arg(lane).arg(0);
        call.arg(2).arg(OPEN).arg(60 * SECOND).arg(PROBED).arg(now);
        call.invoke(&mut self.connection).unwrap()
    }

    /// For how long the one circuit is open yet.
    fn listed(&mut self, now: Micros) -> i64 {
        let mut call = self.circuits.prepare_invoke();
        call.key("circuits").arg("circuit ").arg("failed ").arg(now);
        let listed: Vec<(String, i64, i64)> = call.invoke(&mut self.connection).unwrap();
        listed[0].1
    }

    fn ask(
        &mut self,
        now: Micros,
        slot: Option<Micros>,
        buckets: usize,
        horizon: Micros,
    ) -> Vec<i64> {
        let mut call = self.take.prepare_invoke();
        call.key("present").key("server");
        call.arg(1)
            .arg("run")
            .arg(1)
            .arg(now + 1)
            .arg(1_000_000)
            .arg(horizon)
            .arg(slot.unwrap_or(0));
        for (i, pace) in self.paces[..buckets].iter().enumerate() {
            call.key(format!("bucket {i}"));
            call.arg(pace.interval)
                .arg(pace.tolerance)
                .arg(1)
                .arg(1)
                .arg(1)
                .arg(1);
        }
        call.arg(now);
        call.invoke(&mut self.connection).unwrap()
    }

    fn silence(&mut self, now: Micros, pause: Micros) {
        let mut call = self.report.prepare_invoke();
        call.key("bucket 0")
            .arg(0)
            .arg(0)
            .arg(-1)
            .arg(pause)
            .arg(now);
        call.invoke::<i64>(&mut self.connection).unwrap();
    }
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let silence = proptest::option::weighted(0.05, 1..2_000_000_i64);
    let step = (
        0..200_000_i64,
        any::<bool>(),
        1..3_usize,
        silence,
        any::<bool>(),
    );
    let step = step.prop_map(|(after, returns, buckets, silence, far)| Step {
        after,
        returns,
        buckets,
        silence,
        far,
    });
    proptest::collection::vec(step, 1..80)
}

#[test]
fn the_script_decides_as_the_model_does() {
    let server = server::RedisServer::start();
    let redis = RefCell::new(Redis::on(&server));
    let mut runner = TestRunner::new(Config::with_cases(200));
    let result = runner.run(&steps(), |steps| {
        let mut redis = redis.borrow_mut();
        redis::cmd("FLUSHALL").exec(&mut redis.connection).unwrap();
        // Known for long: nothing of it was lost a moment ago.
        redis.ask(START - 10_000_000, None, 0, HORIZON);
        let mut meters = [Meter::default(); 2];
        let (mut now, mut slot) = (START, None::<(Micros, Micros)>);
        for step in steps {
            now += step.after;
            if let Some(pause) = step.silence {
                redis.silence(now, pause);
                meters[0].silent = meters[0].silent.max(now + pause);
            }
            let near_or_far = if step.far { FAR } else { HORIZON };
            let returning = slot.filter(|_| step.returns);
            let asked = returning.map(|(slot, _)| slot);
            let horizon = returning.map_or(near_or_far, |(_, horizon)| horizon);
            let mut model: Vec<_> = meters[..step.buckets]
                .iter()
                .copied()
                .zip(redis.paces.iter().copied())
                .collect();
            let outcome = meter::ask(&mut model, now, asked, horizon);
            for (meter, (changed, _)) in meters.iter_mut().zip(model) {
                *meter = changed;
            }
            let answer = redis.ask(now, asked, step.buckets, horizon);
            let expected = match outcome {
                Outcome::Go => [0, now, 0, 0],
                Outcome::Wait { slot } => [1, now, slot - now, slot],
                Outcome::Later { at, .. } => [2, now, at - now, 0],
            };
            match outcome {
                // Whose horizon is near does not see how long the line is that others wait in.
                Outcome::Later { at, .. } if at - now > horizon + NEAREST => {
                    proptest::prop_assert_eq!(answer[0], 2);
                }
                Outcome::Later { bucket, .. } => {
                    proptest::prop_assert_eq!(&answer[..4], &expected[..]);
                    proptest::prop_assert_eq!(answer[4], bucket as i64);
                }
                _ => proptest::prop_assert_eq!(&answer[..4], &expected[..]),
            }
            slot = match outcome {
                Outcome::Wait { slot } => Some((slot, horizon)),
                _ => None,
            };
        }
        Ok(())
    });
    result.unwrap();
}

/// How far the clock is set back below.
const BACK: Micros = 3_600 * SECOND;

#[test]
fn a_clock_that_is_set_back_prolongs_no_wait_for_a_turn() {
    let server = server::RedisServer::start();
    let mut redis = Redis::on(&server);
    redis.ask(START - 10 * SECOND, None, 0, HORIZON);
    let mut slots = Vec::new();
    while let [1, _, _, slot, ..] | [0, _, _, slot, ..] = redis.ask(START, None, 1, HORIZON)[..] {
        slots.push(slot);
    }
    let slot = slots.pop().unwrap();
    assert!(slot > START + 500_000, "a line of waiters: {slots:?}");
    let now = START - BACK;
    // Whoever returns with a slot of the old time gets another one.
    let answer = redis.ask(now, Some(slot), 1, HORIZON);
    assert_eq!(answer[0], 2, "the line is as long as before: {answer:?}");
    let after = now + answer[2];
    assert!(answer[2] <= HORIZON + NEAREST, "{answer:?}");
    assert_eq!(redis.ask(after, None, 1, HORIZON)[0], 0, "then it goes");
}

#[test]
fn a_clock_that_is_set_back_prolongs_no_pause_and_no_memory_of_what_was_lost() {
    let server = server::RedisServer::start();
    let mut redis = Redis::on(&server);
    // The server is new, and the destination wants two seconds of silence.
    assert_ne!(redis.ask(START, None, 1, HORIZON)[0], 0);
    redis.silence(START, 2 * SECOND);
    let now = START - BACK;
    let answer = redis.ask(now, None, 1, FAR);
    assert_eq!(answer[..3], [1, now, 2 * SECOND], "what was left is left");
    let then = now + 2 * SECOND;
    assert_eq!(redis.ask(then, Some(answer[3]), 1, FAR)[0], 0);
    // A pause that is told first after the clock was set back.
    redis.silence(then - BACK, SECOND);
    let answer = redis.ask(then - BACK, None, 1, FAR);
    assert!(answer[2] <= SECOND, "{answer:?}");
}

#[test]
fn a_clock_that_is_set_back_prolongs_no_open_circuit() {
    let server = server::RedisServer::start();
    let mut redis = Redis::on(&server);
    redis.circuit(START, "failed", 1);
    assert_eq!(redis.circuit(START, "failed", 2), [1, OPEN]);
    let now = START - BACK;
    assert_eq!(redis.listed(now), OPEN);
    assert_eq!(redis.circuit(now, "probe", 1), [0, OPEN]);
    assert_eq!(redis.listed(now + OPEN), 0);
    assert_eq!(redis.circuit(now + OPEN, "probe", 1), [1, 0]);
    // While somebody probes, again: the probe is not waited for any longer than before.
    let then = now + OPEN - BACK;
    assert_eq!(redis.circuit(then, "probe", 2), [0, PROBED]);
    assert_eq!(redis.circuit(then + PROBED, "probe", 2), [1, 0]);
}
