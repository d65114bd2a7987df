//! Many seeds, one after the other on each of a few servers, and a summary of all of them. A run that
//! fails does not end the others; its seed is in the summary, and repeats it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::ground::Ground;
use crate::plan::{Fault, Plan};
use crate::run::{Report, run};
use crate::support::Server;
use crate::vanished::vanish;

#[derive(Default)]
struct Summary {
    runs: usize,
    without_fault: usize,
    failed: Vec<u64>,
    faults: BTreeMap<Fault, usize>,
    events: usize,
    deliveries: usize,
    duplicates: usize,
    duplicates_where_none_may_be: usize,
    outcomes: usize,
    requeued: usize,
    redelivered: usize,
    killed: Vec<i64>,
    frozen: Vec<i64>,
    frozen_soon: Vec<i64>,
    vanished: Vec<i64>,
    settled: Vec<i64>,
}

impl Summary {
    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.without_fault += usize::from(report.faults.is_empty());
        for (fault, times) in report.faults {
            *self.faults.entry(fault).or_default() += times;
        }
        self.events += report.events;
        self.deliveries += report.deliveries;
        self.duplicates += report.duplicates;
        if !report.may_repeat {
            self.duplicates_where_none_may_be += report.duplicates;
        }
        self.outcomes += report.outcomes;
        self.requeued += report.requeued;
        self.redelivered += report.redelivered;
        self.killed.extend(report.kill_recovery_ms);
        self.frozen.extend(report.frozen_recovery_ms);
        self.frozen_soon.extend(report.frozen_soon_ms);
        self.settled.push(i64::try_from(report.settled_ms).unwrap());
    }

    fn json(mut self, seeds: &RangeInclusive<u64>, began: Instant) -> Value {
        let faults: BTreeMap<String, usize> = self
            .faults
            .iter()
            .map(|(fault, times)| (format!("{fault:?}"), *times))
            .collect();
        json!({
            "seeds": format!("{}-{}", seeds.start(), seeds.end()),
            "runs": self.runs,
            "runs_without_fault": self.without_fault,
            "failed_seeds": self.failed,
            "faults": faults,
            "events": self.events,
            "deliveries": self.deliveries,
            "duplicates": self.duplicates,
            "duplicates_where_none_may_be": self.duplicates_where_none_may_be,
            "outcomes": self.outcomes,
            "dead_letters_requeued": self.requeued,
            "dead_letters_redelivered": self.redelivered,
            "recovery_ms": {
                "sigkill": spread(&mut self.killed),
                "frozen_default_settings": spread(&mut self.frozen),
                "frozen_time_outs_of_a_tenth": spread(&mut self.frozen_soon),
                "vanished_node": spread(&mut self.vanished),
                "all_settled_after_healing": spread(&mut self.settled),
            },
            "seconds": began.elapsed().as_secs(),
        })
    }
}

fn spread(times: &mut [i64]) -> Value {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    json!({"count": times.len(), "median": at(50), "p95": at(95), "worst": times.last()})
}

/// `17`, or `1-1000`.
fn seeds(text: &str) -> RangeInclusive<u64> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    first.parse().unwrap()..=last.parse().unwrap()
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

async fn work(next: Arc<AtomicU64>, last: u64, until: Instant, summary: Arc<Mutex<Summary>>) {
    let mut server = None;
    while Instant::now() < until {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed > last {
            break;
        }
        let plan = Plan::of(seed);
        let at = match server.take() {
            Some(server) => server,
            None => Server::start().await,
        };
        let ground = Ground::own(at, seed).await;
        // What panics ends its run alone, and takes its server with it.
        match tokio::spawn(async move { run(&plan, ground).await }).await {
            Ok((report, its_server)) => {
                server = its_server;
                summary.lock().await.add(report);
            }
            Err(_) => {
                let mut summary = summary.lock().await;
                summary.runs += 1;
                summary.failed.push(seed);
            }
        }
    }
    if let Some(server) = server {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: make crash"]
async fn many_seeds() {
    let seeds = seeds(&setting("CRASH_SEEDS", "1-1000"));
    let minutes: u64 = setting("CRASH_MINUTES", "30").parse().unwrap();
    let jobs: usize = setting("CRASH_JOBS", "2").parse().unwrap();
    let began = Instant::now();
    let until = began + Duration::from_secs(60 * minutes);
    let next = Arc::new(AtomicU64::new(*seeds.start()));
    let summary = Arc::new(Mutex::new(Summary::default()));
    let working: Vec<_> = (0..jobs)
        .map(|_| {
            tokio::spawn(work(
                Arc::clone(&next),
                *seeds.end(),
                until,
                Arc::clone(&summary),
            ))
        })
        .collect();
    // Each takes as long as the server needs to give a node up.
    let times = setting("CRASH_VANISHED", "3").parse().unwrap();
    let mut vanished = Vec::new();
    for seed in 0..times {
        vanished.extend(vanish(seed).await.unwrap_or_default());
    }
    for job in working {
        job.await.unwrap();
    }
    let mut summary = std::mem::take(&mut *summary.lock().await);
    let failed = summary.failed.clone();
    summary.vanished = vanished;
    let text = summary.json(&seeds, began).to_string();
    match std::env::var_os("CRASH_SUMMARY") {
        Some(path) => std::fs::write(path, format!("{text}\n")).unwrap(),
        None => println!("{text}"),
    }
    for seed in &failed {
        eprintln!("failed; again with: make crash SEEDS={seed}");
    }
    assert!(failed.is_empty(), "{failed:?}");
}
