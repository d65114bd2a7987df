//! A1 to A5, I1, I4, I13 under everything at once: producers of every kind, an operator, cut connections, and a
//! destination that fails at random. The expected deliveries are computed from the log.
//!
//! Each run prints its seed. TEST_SEED repeats a run's choices, but not their timing.

mod trouble;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::{Delivery, Verdict};
use tokio::time::Instant;

use self::trouble::{cut, operate, produce};
use super::bed::{Bed, LIMIT, Sub};
use crate::support::{Dice, wait_until};

const RUNS: u64 = 3;
const TROUBLE: Duration = Duration::from_secs(4);

fn fickle(dice: Dice) -> Fake {
    Fake::answering(move |_: &Delivery<'_>| match dice.roll(100) {
        0..8 => Verdict::Retry {
            error: "not now".to_owned(),
            after: None,
        },
        8..10 => Verdict::Rejected {
            error: "never".to_owned(),
        },
        10..13 => Verdict::Throttled {
            reason: "slower".to_owned(),
            after: Duration::from_millis(30),
            of: None,
        },
        _ => Verdict::Accepted,
    })
}

/// The log: what each session holds, with types.
async fn log(bed: &Bed) -> BTreeMap<String, Vec<(i64, String)>> {
    let rows = "SELECT s.name, e.seq, e.event_type FROM lanekeeper.event AS e
                JOIN lanekeeper.session AS s USING (session_id) ORDER BY s.name, e.seq";
    let mut log: BTreeMap<String, Vec<(i64, String)>> = BTreeMap::new();
    for row in bed.client.query(rows, &[]).await.unwrap() {
        let event = (row.get(1), row.get(2));
        log.entry(row.get(0)).or_default().push(event);
    }
    log
}

/// (subscription, session, seq) of what came to an outcome other than delivery.
async fn outcomes(bed: &Bed) -> HashSet<(String, String, i64)> {
    let rows = "SELECT s.subscription, s.session, o.seq FROM lanekeeper.outcome AS o
                JOIN lanekeeper.lane_status AS s USING (lane_id)";
    let rows = bed.client.query(rows, &[]).await.unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

/// One lane: nothing was begun before all that is due before it was accepted or came to an outcome,
/// and in the end that holds for everything. Repeats are allowed.
fn check_lane(due: &[i64], attempts: &[(i64, bool)], excused: impl Fn(i64) -> bool, lane: &str) {
    let places: HashMap<i64, usize> = due.iter().copied().zip(0..).collect();
    let mut accepted = HashSet::new();
    let mut open = 0;
    let mut advance = |accepted: &HashSet<i64>| {
        while let Some(seq) = due.get(open)
            && (accepted.contains(seq) || excused(*seq))
        {
            open += 1;
        }
        open
    };
    for (seq, ok) in attempts {
        let Some(&place) = places.get(seq) else {
            panic!("{lane}: {seq} was not due")
        };
        let open = advance(&accepted);
        assert!(place <= open, "{lane}: {seq} overtook {}", due[open]);
        if *ok {
            accepted.insert(*seq);
        }
    }
    let open = advance(&accepted);
    assert_eq!(
        open,
        due.len(),
        "{lane}: {:?} came to nothing",
        due.get(open)
    );
}

async fn run(seed: u64) {
    println!("seed {seed}");
    let dice = Dice::new(seed);
    let mut bed = Bed::bare().await;
    bed.fake = fickle(dice.clone());
    let quick = || Sub {
        schedule_ms: vec![20, 40],
        max_attempts: 4,
        ..Sub::default()
    };
    bed.subscribe(&quick()).await;
    bed.subscribe(&Sub {
        name: "some",
        events: Some(vec!["a"]),
        ..quick()
    })
    .await;
    let workers = [bed.worker().await, bed.worker().await];
    let end = Instant::now() + TROUBLE;
    let url = || bed.db.url().to_owned();
    let producers = [0; 5].map(|_| tokio::spawn(produce(url(), dice.clone(), end)));
    let troubles = [
        tokio::spawn(operate(url(), dice.clone(), end)),
        tokio::spawn(cut(url(), dice.clone(), end)),
    ];
    let mut promised = Vec::new();
    for producer in producers {
        promised.extend(producer.await.unwrap());
    }
    for trouble in troubles {
        trouble.await.unwrap();
    }
    wait_until(LIMIT, "nothing is due and no entry left", async || {
        bed.count(
            "SELECT (SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL)
                  + (SELECT count(*) FROM lanekeeper.ready WHERE due_at < now() + interval '5 s')",
        )
        .await
            == 0
    })
    .await;

    let (log, outcomes, seen) = (log(&bed).await, outcomes(&bed).await, bed.fake.seen());
    for (session, events) in &log {
        let seqs: Vec<i64> = events.iter().map(|event| event.0).collect();
        assert_eq!(
            seqs,
            (1..=seqs.len() as i64).collect::<Vec<_>>(),
            "{session}"
        );
    }
    for (session, seq) in &promised {
        let there = log.get(session).is_some_and(|log| log.len() as i64 >= *seq);
        assert!(there, "{session} {seq} was confirmed");
    }
    assert_eq!(promised.len(), log.values().map(Vec::len).sum::<usize>());
    for (session, events) in &log {
        for subscription in ["out", "some"] {
            let matching = events
                .iter()
                .filter(|event| subscription == "out" || event.1 == "a");
            let due: Vec<i64> = matching.map(|event| event.0).collect();
            let attempts: Vec<(i64, bool)> = seen
                .deliveries
                .iter()
                .filter(|one| one.subscription == subscription && *one.event.session == **session)
                .map(|one| (one.event.seq, one.verdict == Some(Verdict::Accepted)))
                .collect();
            let excused = |seq| outcomes.contains(&(subscription.to_owned(), session.clone(), seq));
            check_lane(
                &due,
                &attempts,
                excused,
                &format!("{subscription} {session}"),
            );
        }
    }
    println!(
        "{} events, {} attempts, {} outcomes",
        promised.len(),
        seen.deliveries.len(),
        outcomes.len()
    );
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_doubled_or_reordered_whatever_happens_at_once() {
    if let Ok(seed) = std::env::var("TEST_SEED") {
        return run(seed.parse().unwrap()).await;
    }
    for _ in 0..RUNS {
        run(uuid::Uuid::new_v4().as_u64_pair().0).await;
    }
}
