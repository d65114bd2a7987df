//! `make mutations`: each named test passes with the unchanged code, and fails with the mutation.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::mutation::{ROWS, Row, VARIABLE};

/// A test that has not ended by then is no test that failed: each has a shorter limit of its own.
const LIMIT: Duration = Duration::from_secs(120);
/// At once, unless `MUTATION_JOBS` says otherwise: most of them wait for something most of the time.
const JOBS: usize = 4;
/// Of what a test said when it failed.
const SAID: usize = 110;

enum Came {
    Passed,
    /// By an assertion, with this message.
    Failed(String),
    /// Neither: what its output ends with.
    Otherwise(String),
}

struct Ran {
    came: Came,
    took: Duration,
}

/// Runs one test in a process of its own, and ends what it leaves behind.
fn run(test: &str, mutation: Option<&str>) -> Ran {
    let began = Instant::now();
    let mut output = tempfile::tempfile().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test])
        .env_remove(VARIABLE)
        .env("RUST_BACKTRACE", "0")
        .envs(mutation.map(|name| (VARIABLE, name)))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap())
        .process_group(0);
    let mut child = command.spawn().unwrap();
    let group = Pid::from_child(&child);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > LIMIT {
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    // The group outlives the test only where it left processes behind.
    let _ = kill_process_group(group, Signal::KILL);
    if status.is_none() {
        child.wait().unwrap();
    }
    let came = judge(status, &text(&mut output));
    Ran {
        came,
        took: began.elapsed(),
    }
}

fn text(output: &mut File) -> String {
    let mut bytes = Vec::new();
    output.rewind().unwrap();
    output.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn judge(status: Option<ExitStatus>, output: &str) -> Came {
    let Some(status) = status else {
        return Came::Otherwise(format!("it did not end within {LIMIT:?}"));
    };
    if status.success() && output.contains("test result: ok. 1 passed") {
        return Came::Passed;
    }
    if status.code() == Some(101) && output.contains("test result: FAILED. 0 passed; 1 failed") {
        return Came::Failed(said(output));
    }
    Came::Otherwise(format!("{status}: {}", tail(output)))
}

/// The message of the panic that the runner reports.
fn said(output: &str) -> String {
    let (_, report) = output.split_once("\nfailures:\n").unwrap_or(("", output));
    let mut lines = report
        .lines()
        .skip_while(|line| !line.contains(" panicked at "));
    let lines: Vec<&str> = lines.by_ref().skip(1).take(3).map(str::trim).collect();
    let end = lines
        .iter()
        .position(|line| line.is_empty() || line.starts_with("note:"));
    let message = lines[..end.unwrap_or(lines.len())].join(" ");
    message.chars().take(SAID).collect()
}

fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Does all of them, some at a time; the results are in their order.
fn all<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let jobs = std::env::var("MUTATION_JOBS").ok();
    let jobs = jobs.and_then(|jobs| jobs.parse().ok()).unwrap_or(JOBS);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else {
                        return;
                    };
                    let result = run(item);
                    done.lock().unwrap().insert(place, result);
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

/// Those that `MUTATIONS` names, or all.
fn selected() -> Vec<&'static Row> {
    let Ok(names) = std::env::var("MUTATIONS") else {
        return ROWS.iter().collect();
    };
    let find = |name| {
        let row = ROWS.iter().find(|row| row.name == name);
        row.unwrap_or_else(|| panic!("there is no mutation {name:?}"))
    };
    names.split_whitespace().map(find).collect()
}

#[test]
#[ignore = "takes minutes: make mutations"]
fn each_mutation_makes_its_test_fail() {
    let began = Instant::now();
    let rows = selected();
    assert!(!rows.is_empty(), "no mutation is selected");
    let mut tests: Vec<&str> = rows.iter().map(|row| row.test).collect();
    tests.sort_unstable();
    tests.dedup();
    let mut wrong = Vec::new();
    for (test, ran) in tests.iter().zip(all(&tests, |test| run(test, None))) {
        if let Came::Failed(said) | Came::Otherwise(said) = ran.came {
            wrong.push(format!("{test} does not pass as the code is: {said}"));
        }
    }
    println!(
        "{} tests pass as the code is, in {:.0?}\n",
        tests.len() - wrong.len(),
        began.elapsed()
    );
    println!("| | mutation | after | the test fails with |\n|---|---|---|---|");
    let ran = all(&rows, |row| run(row.test, Some(row.name)));
    for (row, ran) in rows.iter().zip(ran) {
        let (name, took) = (row.name, ran.took);
        let said = match ran.came {
            Came::Failed(said) => said,
            Came::Passed => {
                wrong.push(format!("{name} survives {}", row.test));
                "SURVIVES".to_owned()
            }
            Came::Otherwise(said) => {
                wrong.push(format!("{name}: {} has no result: {said}", row.test));
                "NO RESULT".to_owned()
            }
        };
        println!("| I{} | `{name}` | {took:.1?} | {said} |", row.invariant);
    }
    println!("\n{} mutations in {:.0?}", rows.len(), began.elapsed());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
