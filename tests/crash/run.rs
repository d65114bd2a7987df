//! One run: a load, the faults of its plan, healing, and the oracle's verdict.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::acknowledger::Acknowledger;
use crate::ground::Ground;
use crate::ledger::Ledger;
use crate::monitor::Monitor;
use crate::operator::{Operator, ask_in_peace};
use crate::oracle::Case;
use crate::plan::{Fault, Plan};
use crate::scene::{ACKNOWLEDGED, LIMIT, LIMITED, SUBSCRIPTIONS, Scene, lanes, log};
use crate::support::{Dice, Server};
use crate::timeline::{Timeline, recovery_ms, stale};
use crate::workload::Producers;

/// After healing, everything that was committed is delivered within this.
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);
/// The load goes on for this long after the last fault is healed.
const LOAD_AFTER: Duration = Duration::from_millis(700);
/// And takes at least this long.
const LOAD_AT_LEAST: Duration = Duration::from_millis(2000);

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub faults: BTreeMap<Fault, usize>,
    pub events: usize,
    pub deliveries: usize,
    pub duplicates: usize,
    pub outcomes: usize,
    /// Dead letters that an operator had delivered again, each time; and how many were accepted.
    pub requeued: usize,
    pub redelivered: usize,
    /// Messages that a consumer acknowledged.
    pub acknowledged: usize,
    /// Whether anything happened that allows duplicates.
    pub may_repeat: bool,
    /// Of each lane that a killed worker held, where nothing else interfered; at the default settings.
    pub kill_recovery_ms: Vec<i64>,
    /// The same of frozen workers; with time-outs of a tenth, and with the default ones.
    pub frozen_soon_ms: Vec<i64>,
    pub frozen_recovery_ms: Vec<i64>,
    /// From the end of the last fault to the last settlement.
    pub settled_ms: u64,
}

/// Waits until everything that was committed is delivered.
async fn settle(scene: &Scene) {
    let deadline = Instant::now() + DELIVERED_WITHIN;
    // What a producer or an operator gave up may still be at it, and commit.
    while scene.at_work().await > 0 {
        assert!(Instant::now() < deadline, "a transaction does not end");
        sleep(Duration::from_millis(20)).await;
    }
    while scene.unsettled().await > 0 {
        if Instant::now() > deadline {
            panic!("not delivered in time\n{}", scene.despair().await);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a plan; panics with everything that was wrong. Gives the server back, if it had one.
pub async fn run(plan: &Plan, ground: Ground) -> (Report, Option<Server>) {
    eprintln!("{plan:?}\nagain with: make crash SEEDS={}", plan.seed);
    let mut scene = Scene::new(ground, plan).await;
    let monitor = Monitor::start(scene.ground.url(), scene.receiver.reader());
    let ledger = Ledger::default();
    let url = scene.producers_proxy.through(scene.ground.url());
    let dice = Dice::new(plan.seed);
    let begun = Instant::now();
    let producers = Producers::start(&url, &dice, &ledger, plan.pause_ms);
    let (deaths, bursts) = (monitor.deaths().clone(), producers.bursts().clone());
    let operator = plan
        .requeued
        .then(|| Operator::start(deaths.clone(), !plan.seed));
    let acknowledger = plan.acknowledged.then(|| {
        Acknowledger::start(
            deaths.clone(),
            scene.receiver.reader(),
            plan.seed.rotate_left(32),
        )
    });
    let mut timeline = Timeline::new(&mut scene, plan, deaths, bursts);
    timeline.run(plan).await;
    let (strikes, stopping) = (timeline.strikes, timeline.stopping);
    let (inflicted, mut causes) = (timeline.inflicted, timeline.causes);
    let healed = Instant::now();
    eprintln!("{:>6} ms healed", begun.elapsed().as_millis());
    sleep(LOAD_AFTER.max(LOAD_AT_LEAST.saturating_sub(begun.elapsed()))).await;
    producers.stop().await;
    let mut rounds = match operator {
        Some(operator) => operator.stop().await,
        None => Vec::new(),
    };

    settle(&scene).await;
    let settled_ms = u64::try_from(healed.elapsed().as_millis()).unwrap_or(u64::MAX);
    if plan.requeued {
        ask_in_peace(scene.ground.url(), plan.seed, &mut rounds).await;
        settle(&scene).await;
    }
    let acks = match acknowledger {
        Some(acknowledger) => Some(acknowledger.stop().await),
        None => None,
    };
    // Those that were told to stop in the midst of it.
    let only_stops = plan.faults().all(|fault| fault == Fault::StopWorker);
    for ended in stopping {
        let status = ended.await.unwrap();
        assert!(!only_stops || status.success(), "{status}");
    }
    let lanes = lanes(&scene.client).await.unwrap();
    let log = log(&scene.client).await.unwrap();
    let mut wrong = monitor.stop().await;
    for place in &mut scene.workers {
        let status = place.process.take().expect("an employee").stop().await;
        if !status.success() {
            wrong.push(format!("a worker ended with {status}"));
        }
    }

    let arrivals = scene.receiver.reader().more();
    causes += scene.receiver_proxy.halved();
    let case = Case {
        subscriptions: SUBSCRIPTIONS.to_vec(),
        ledger: ledger.entries(),
        log,
        lanes,
        arrivals,
        causes,
        rounds,
        acks: acks.map(|acks| (ACKNOWLEDGED, acks, causes + plan.schedule.len())),
        limited: (plan.limited && !plan.faults().any(Fault::bunches_arrivals))
            .then_some((LIMITED, LIMIT)),
    };
    wrong.extend(case.judge().iter().map(ToString::to_string));
    // Where something else strikes too, who thaws may take over from the next victim, and repeat what
    // that one had delivered and not settled.
    let interfere = |fault: &Fault| {
        let slow = matches!(fault, Fault::DelayWorker | Fault::ThrottleWorker);
        fault.costs_repeats() || slow && plan.soon
    };
    let alone = plan.faults().filter(interfere).count() == 1;
    for strike in strikes.iter().filter(|_| alone) {
        let sent = stale(strike, &case.arrivals);
        if sent > strike.held.len() {
            wrong.push(format!(
                "a thawed worker sent {sent} events late: {strike:?}"
            ));
        }
    }
    let accepted = case.arrivals.iter().filter(|one| !one.refused);
    let ids: HashSet<_> = accepted
        .clone()
        .map(|one| (one.id, &one.subscription))
        .collect();
    let letters = case.lanes.values().flat_map(|lane| lane.letters.values());
    // Where nothing else interfered.
    let recovered = |fault: Fault, soon: bool| {
        // A lane that waits for an acknowledgement is in no hurry.
        let alone =
            plan.soon == soon && !plan.acknowledged && plan.faults().all(|one| one == fault);
        let struck = strikes
            .iter()
            .filter(|strike| alone && strike.fault == fault);
        struck
            .flat_map(|strike| recovery_ms(strike, &case.arrivals))
            .collect::<Vec<_>>()
    };
    let report = Report {
        events: case.log.values().map(Vec::len).sum(),
        deliveries: case.arrivals.len(),
        duplicates: accepted.count() - ids.len(),
        outcomes: case.lanes.values().map(|lane| lane.outcomes.len()).sum(),
        requeued: case.rounds.len(),
        redelivered: letters.filter(|letter| letter.is_redelivered).count(),
        acknowledged: case
            .acks
            .as_ref()
            .map_or(0, |(_, acks, _)| acks.acked_ms.len()),
        // What is acknowledged late is sent again.
        may_repeat: causes > 0 || plan.acknowledged,
        kill_recovery_ms: recovered(Fault::KillWorker, false),
        frozen_soon_ms: recovered(Fault::FreezeWorker, true),
        frozen_recovery_ms: recovered(Fault::FreezeWorker, false),
        faults: inflicted,
        settled_ms,
    };
    if !wrong.is_empty() {
        wrong.truncate(40);
        panic!(
            "{}\n{report:?}\n{}",
            wrong.join("\n"),
            scene.despair().await
        );
    }
    eprintln!("{report:?}");
    let Scene { ground, .. } = scene;
    (report, ground.clear().await)
}
