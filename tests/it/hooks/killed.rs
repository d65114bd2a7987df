//! Agents may end their hooks at any time: a call that was read is not lost, repeated or reordered.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;

use super::{Machine, log, numbered, prompts};
use crate::support::{Dice, TestDb};

/// For what must come soon, on a loaded test machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Calls that each signal ends.
const CALLS: usize = 25;

/// When a call is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Its input is read.
    Read,
    /// Its record is seen in the spool.
    Spooled,
}

impl Machine {
    /// Starts a call and gives it its input.
    fn call(&self, payload: &[u8]) -> Child {
        use std::io::Write as _;

        let mut child = self.command(&["hook", "--cli", "codex"]).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(payload).unwrap();
        until(LIMIT, "the input is read", || {
            rustix::io::ioctl_fionread(&stdin).unwrap() == 0
        });
        child
    }

    fn spooled_bytes(&self, session: &str) -> u64 {
        let file = self.spool().file_of(session);
        std::fs::metadata(file).map_or(0, |meta| meta.len())
    }
}

fn until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::yield_now();
    }
}

fn end(child: &mut Child, signal: Signal) -> ExitStatus {
    if let Some(status) = child.try_wait().unwrap() {
        return status;
    }
    // Until it is waited for, the id is its own.
    kill_process(Pid::from_child(child), signal).unwrap();
    child.wait().unwrap()
}

/// Calls of one session, one after the other, each ended at a random moment of its life. Returns
/// those whose record was seen before it was ended, and those that ended by themselves.
fn calls(machine: &Machine, session: &str, signal: Signal, from: From, dice: &Dice) -> Vec<u64> {
    let started = Instant::now();
    let status = machine.call(&numbered(session, 0)).wait().unwrap();
    assert!(status.success());
    let life = u64::try_from(started.elapsed().as_micros()).unwrap();
    let mut kept = vec![0];
    for number in 1..=CALLS {
        let before = machine.spooled_bytes(session);
        let mut child = machine.call(&numbered(session, number));
        if from == From::Spooled {
            until(LIMIT, "the record is in the spool", || {
                machine.spooled_bytes(session) > before || child.try_wait().unwrap().is_some()
            });
        }
        std::thread::sleep(Duration::from_micros(dice.roll(life)));
        let status = end(&mut child, signal);
        if signal == Signal::KILL {
            if from == From::Spooled || status.success() {
                kept.push(number as u64);
            }
        } else {
            assert!(status.success(), "{signal:?} ended the call: {status}");
            kept.push(number as u64);
        }
    }
    kept
}

#[tokio::test]
async fn a_call_that_is_ended_at_any_moment_is_neither_lost_nor_repeated_nor_reordered() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let seed = u64::from(uuid::Uuid::new_v4().as_fields().0);
    println!("seed {seed}");
    let dice = Dice::new(seed);
    let kinds = [
        ("terminated", Signal::TERM, From::Read),
        ("interrupted", Signal::INT, From::Read),
        ("hung-up", Signal::HUP, From::Read),
        ("killed", Signal::KILL, From::Spooled),
        ("killed-at-once", Signal::KILL, From::Read),
    ];
    let kept: Vec<_> = std::thread::scope(|scope| {
        let threads = kinds.map(|(session, signal, from)| {
            let (machine, dice) = (&machine, dice.split());
            scope.spawn(move || (session, calls(machine, session, signal, from, &dice)))
        });
        threads.map(|thread| thread.join().unwrap()).into()
    });
    machine.drain();
    assert!(machine.spool().files().unwrap().is_empty());
    let client = db.connect().await;
    for (session, kept) in kept {
        let arrived = prompts(&client, session).await;
        assert!(
            arrived.windows(2).all(|pair| pair[0] < pair[1]),
            "{session}: {arrived:?}"
        );
        let lost: Vec<_> = kept.iter().filter(|one| !arrived.contains(one)).collect();
        assert!(lost.is_empty(), "{session}: {lost:?} of {arrived:?}");
    }
}

#[tokio::test]
async fn a_call_is_in_the_spool_before_anything_else_is_tried() {
    let db = TestDb::new().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://nobody@{}/none", silent.local_addr().unwrap());
    let mut machine = Machine::new(&url);
    let mut child = machine.call(&numbered("s", 1));
    until(LIMIT, "the record is in the spool", || {
        machine.spooled_bytes("s") > 0
    });
    assert!(child.try_wait().unwrap().is_none(), "it still waits");
    end(&mut child, Signal::KILL);
    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("codex", &numbered("s", 2)), "");
    assert_eq!(prompts(&db.connect().await, "s").await, [1, 2]);
}

#[tokio::test]
async fn signals_do_not_lengthen_a_call_beyond_its_budget() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://nobody@{}/none", silent.local_addr().unwrap());
    let mut machine = Machine::new(&url);
    machine.timeout_ms = 500;
    let started = Instant::now();
    let mut child = machine.call(&numbered("s", 1));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    assert!(child.wait().unwrap().success());
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(machine.spool().holds("s"));
}

#[tokio::test]
async fn drains_beside_calls_that_are_under_way_neither_repeat_nor_reorder() {
    const EACH: usize = 8;
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|caller| {
                let machine = &machine;
                scope.spawn(move || {
                    for number in 0..EACH {
                        machine.hook("codex", &numbered("s", 100 * caller + number));
                    }
                })
            })
            .collect();
        while !callers.iter().all(|caller| caller.is_finished()) {
            machine.drain();
        }
    });
    machine.drain();
    let prompts = prompts(&db.connect().await, "s").await;
    assert_eq!(prompts.len(), 3 * EACH, "{prompts:?}");
    for caller in 0..3 {
        let of_caller = prompts.iter().copied().filter(|n| n / 100 == caller);
        assert!(
            of_caller.eq((0..EACH as u64).map(|n| 100 * caller + n)),
            "{prompts:?}"
        );
    }
}

/// A process that was stopped with the file's lock must not stop the agents of others.
#[tokio::test]
async fn a_lock_that_is_never_released_costs_a_part_of_the_budget_and_no_event() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(super::NOWHERE);
    machine.hook("codex", &numbered("s", 0));
    let held = std::fs::File::open(machine.spool().file_of("s")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    machine.url = db.url().to_owned();
    machine.timeout_ms = 400;
    let started = Instant::now();
    let said = machine.hook("codex", &numbered("s", 1));
    let took = started.elapsed();
    assert!(said.contains("stayed locked"), "{said}");
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(machine.spool().rejected().unwrap().len(), 1);
    drop(held);
    machine.drain();
    assert_eq!(log(&db.connect().await, "s").await.len(), 1);
}
