//! Looks every second at the sources that workers ask: holds those that are free, ends the connections of silent holders.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::source_poll::{self, Watched};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::ending::end;
use super::hold::{self, Ended};
use super::shared::{Polling, Shared};
use super::{ANSWER_WITHIN, SILENT};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Where no source has `poll`.
const LOOK_SELDOM: Duration = Duration::from_secs(3);
/// After the connection of a silent holder was told to end.
const LOOK_SOON: Duration = Duration::from_millis(200);

/// A source that this worker holds, or tries to.
struct Held {
    version: i64,
    stop: CancellationToken,
    task: JoinHandle<Ended>,
}

/// Asks for every source that no other worker asks for, until `ended`.
pub async fn run(polling: Polling, ended: CancellationToken) {
    let shared = Arc::new(Shared::new(polling));
    let mut held: HashMap<i32, Held> = HashMap::new();
    // Where this worker could not ask: others may. By source and version.
    let mut resting: HashMap<(i32, i64), Instant> = HashMap::new();
    let mut next = Duration::ZERO;
    loop {
        tokio::select! {
            () = ended.cancelled() => break,
            () = sleep(next) => {}
        }
        let watched = match look(&shared.polling).await {
            Ok(watched) => watched,
            Err(error) => {
                tracing::debug!(
                    error = &*error,
                    "the sources that workers ask cannot be looked at"
                );
                next = LOOK_EVERY;
                continue;
            }
        };
        let_go(&mut held, &mut resting, &watched).await;
        next = match watched.is_empty() {
            true => LOOK_SELDOM,
            false => jittered(LOOK_EVERY),
        };
        resting.retain(|_, until| *until > Instant::now());
        let mut silent = Vec::new();
        for source in watched {
            let is_held = held.contains_key(&source.source_id);
            let rests = resting.contains_key(&(source.source_id, source.version));
            if source.free && !is_held && !rests {
                let stop = ended.child_token();
                let (id, version) = (source.source_id, source.version);
                let holding = hold::run(Arc::clone(&shared), source, stop.clone());
                let task = tokio::spawn(holding);
                held.insert(
                    id,
                    Held {
                        version,
                        stop,
                        task,
                    },
                );
            } else if let (false, false, Some(backend)) = (source.free, is_held, source.silent) {
                tracing::warn!(
                    source = source.name,
                    "the worker that asks for a source gives no sign of life; its connection is ended, and another worker takes over"
                );
                silent.push(backend);
            }
        }
        if !silent.is_empty() {
            next = LOOK_SOON;
            end(&shared.polling.pool, &silent).await;
        }
    }
    for (_, held) in held {
        held.stop.cancel();
        // A holder stops between two updates.
        let _ = timeout(ANSWER_WITHIN, held.task).await;
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn look(polling: &Polling) -> Result<Vec<Watched>, Failure> {
    let silent_ms = i64::try_from(SILENT.as_millis()).unwrap_or(i64::MAX);
    let looking = async {
        let client = polling.pool.get().await?;
        let watched: Result<_, StoreError> = source_poll::watch(&**client, silent_ms).await;
        Ok(watched?)
    };
    timeout(ANSWER_WITHIN, looking).await?
}

/// Lets go of sources that are gone or changed, and forgets those whose holding ended.
async fn let_go(
    held: &mut HashMap<i32, Held>,
    resting: &mut HashMap<(i32, i64), Instant>,
    watched: &[Watched],
) {
    let stands = |id: i32, version: i64| {
        let mut sources = watched.iter();
        sources.any(|source| source.source_id == id && source.version == version)
    };
    for (id, held) in held.iter() {
        if !stands(*id, held.version) {
            held.stop.cancel();
        }
    }
    let ended: Vec<i32> = held
        .iter()
        .filter_map(|(id, held)| held.task.is_finished().then_some(*id))
        .collect();
    for id in ended {
        let Some(Held { version, task, .. }) = held.remove(&id) else {
            continue;
        };
        match task.await {
            Ok(Ended::Rests(wait)) => {
                resting.insert((id, version), Instant::now() + wait);
            }
            Ok(Ended::Gone) => {}
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "asking for a source failed; another try follows"
            ),
        }
    }
}

/// Workers that started together do not look together: a look holds each free lock for a moment.
fn jittered(wait: Duration) -> Duration {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    wait.mul_f64(0.75 + 0.5 * f64::from(nanos % 1_000) / 1_000.0)
}
