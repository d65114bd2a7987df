//! Looks on while a run goes, past all proxies: nothing terminal goes back, and nothing is settled
//! before it came.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};

use crate::oracle::{Case, Terminal};
use crate::receiver::Reader;
use crate::scene::{SUBSCRIPTIONS, lanes, log};

const EVERY: Duration = Duration::from_millis(250);

pub struct Monitor {
    stop: Arc<AtomicBool>,
    deaths: Deaths,
    task: JoinHandle<Vec<String>>,
}

/// Counts deaths of the server, before one and again when it is back, and knows where that is.
#[derive(Clone)]
pub struct Deaths {
    count: Arc<AtomicU64>,
    url: Arc<Mutex<String>>,
}

impl Deaths {
    pub fn begins(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub fn is_over(&self, url: &str) {
        url.clone_into(&mut self.url.lock().unwrap());
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn so_far(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    pub fn url(&self) -> String {
        self.url.lock().unwrap().clone()
    }
}

impl Monitor {
    pub fn start(url: &str, reader: Reader) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let deaths = Deaths {
            count: Arc::default(),
            url: Arc::new(Mutex::new(url.to_owned())),
        };
        let watch = watch(reader, Arc::clone(&stop), deaths.clone());
        Self {
            stop,
            deaths,
            task: tokio::spawn(watch),
        }
    }

    pub fn deaths(&self) -> &Deaths {
        &self.deaths
    }

    /// What it saw that must not be.
    pub async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn watch(mut reader: Reader, stop: Arc<AtomicBool>, deaths: Deaths) -> Vec<String> {
    let mut terminal = Terminal::default();
    let mut of = deaths.so_far();
    let mut case = Case {
        subscriptions: SUBSCRIPTIONS.to_vec(),
        ..Case::default()
    };
    let mut found = Vec::new();
    let mut client: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) && found.is_empty() {
        sleep(EVERY).await;
        let before = deaths.so_far();
        if before != of {
            terminal.forget();
            of = before;
            client = None;
        }
        // With the server away there is nothing to see.
        if client.as_ref().is_none_or(Client::is_closed) {
            client = None;
            if let Ok((connected, connection)) = tokio_postgres::connect(&deaths.url(), NoTls).await
            {
                tokio::spawn(connection);
                client = Some(connected);
            }
        }
        let Some(client) = &client else { continue };
        let Ok(lanes) = lanes(client).await else {
            continue;
        };
        let Ok(log) = log(client).await else {
            continue;
        };
        if deaths.so_far() != before {
            continue;
        }
        // The record is read last: what was settled before had been written before.
        case.arrivals.extend(reader.more());
        (case.lanes, case.log) = (lanes.clone(), log);
        found.extend(case.settled_undelivered().iter().map(ToString::to_string));
        found.extend(terminal.look(lanes));
    }
    found
}
