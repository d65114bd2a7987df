//! D4: workers are killed, connections cut and resumed, while runs grow: each client sees exactly its run, in order.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use tokio::sync::RwLock;

use super::client::Follower;
use crate::process::plant::Plant;
use crate::support::{Dice, WorkerProcess, connect};

const RUNS: usize = 8;
const EVENTS: i64 = 250;
const CLIENTS: usize = 24;

/// What a client saw of its run, until it was complete. It changes workers, and leaves in the middle of what it reads.
async fn follow(workers: Arc<RwLock<Vec<String>>>, run: usize, dice: Dice) -> Vec<i64> {
    let client = Client::new();
    let path = format!("/v1/streams/runs/sessions/run{run}/events/live");
    let (mut seqs, mut id) = (Vec::new(), String::new());
    while seqs.last() != Some(&EVENTS) {
        let url = {
            let workers = workers.read().await;
            let chosen = usize::try_from(dice.roll(workers.len() as u64)).unwrap();
            workers[chosen].clone()
        };
        let request = client.get(url + &path).header("last-event-id", &id);
        let Ok(response) = request.send().await else {
            dice.pause(50).await;
            continue;
        };
        if response.status() != 200 {
            dice.pause(50).await;
            continue;
        }
        let mut follower = Follower::of(response);
        let leaves_after = dice.roll(120);
        for _ in 0..leaves_after {
            // Cut off: it remembers what it was given before, as a browser does.
            let Some(got) = follower.next().await else {
                break;
            };
            if got.name.is_empty() {
                seqs.push(got.seq());
                id.clone_from(&follower.id);
                if got.seq() == EVENTS {
                    break;
                }
            }
        }
    }
    seqs
}

async fn produce(url: String, run: usize, dice: Dice) {
    let client = connect(&url).await;
    let mut left = EVENTS;
    while left > 0 {
        let count = (1 + i64::try_from(dice.roll(8)).unwrap()).min(left);
        client.batch_execute("BEGIN").await.unwrap();
        let statement = "SELECT lanekeeper.enqueue('runs', $1, 'step', to_jsonb(n)) FROM generate_series(1, $2::bigint) AS n";
        client
            .execute(statement, &[&format!("run{run}"), &count])
            .await
            .unwrap();
        dice.pause(15).await;
        if dice.roll(10) == 0 {
            client.batch_execute("ROLLBACK").await.unwrap();
        } else {
            client.batch_execute("COMMIT").await.unwrap();
            left -= count;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_workers_are_killed_and_connections_cut_each_client_sees_exactly_its_run_in_order() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    let dice = Dice::new(seed);
    let plant = Plant::new(Duration::ZERO).await;
    let open = [("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true")];
    let mut processes: Vec<WorkerProcess> = Vec::new();
    for _ in 0..2 {
        processes.push(plant.worker(&open).await);
    }
    let urls = processes.iter().map(WorkerProcess::http).collect();
    let urls: Arc<RwLock<Vec<String>>> = Arc::new(RwLock::new(urls));
    let producers: Vec<_> = (0..RUNS)
        .map(|run| tokio::spawn(produce(plant.url.clone(), run, dice.split())))
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(follow(Arc::clone(&urls), n % RUNS, dice.split())))
        .collect();
    let waiting = tokio::spawn(async move {
        let mut seen = Vec::new();
        for client in clients {
            seen.push(client.await.unwrap());
        }
        seen
    });
    while !waiting.is_finished() {
        dice.pause(700).await;
        let chosen = usize::try_from(dice.roll(2)).unwrap();
        let new = plant.worker(&open).await;
        let old = std::mem::replace(&mut processes[chosen], new);
        urls.write().await[chosen] = processes[chosen].http();
        old.kill().await;
    }
    for producer in producers {
        producer.await.unwrap();
    }
    for (client, seen) in waiting.await.unwrap().into_iter().enumerate() {
        assert_eq!(
            seen,
            (1..=EVENTS).collect::<Vec<_>>(),
            "client {client}, SEED={seed}"
        );
    }
}
