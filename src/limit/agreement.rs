//! The script and the model decide alike: whatever is asked, however late, and however long the
//! destination wants silence. The script's clock is the test's.

use std::cell::RefCell;

use proptest::test_runner::{Config, TestRunner};

use super::meter::{self, Meter, Micros, Outcome, Pace};

#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the integration tests"
)]
#[path = "../../tests/support/redis.rs"]
mod server;

const TAKE: &str = include_str!("take.lua");
const REPORT: &str = include_str!("report.lua");
/// How far ahead slots are asked for: one lane asks for less than another.
const HORIZON: Micros = 1_000_000;
const FAR: Micros = 5_000_000;
/// The shortest interval below: past horizon and interval a line's length is not told.
const NEAREST: Micros = 100_000;
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
    take: redis::Script,
    report: redis::Script,
    paces: Vec<Pace>,
}

impl Redis {
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
    let client = redis::Client::open(server.url()).unwrap();
    let redis = RefCell::new(Redis {
        connection: client.get_connection().unwrap(),
        take: at_given_time(TAKE),
        report: at_given_time(REPORT),
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
    });
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
