//! Plans of a statement and of all statements in the functions that it calls, as auto_explain reports them to the
//! session.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use lanekeeper_postgres::lane_connection;
use serde_json::Value;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

/// A connection whose statements are observed.
pub struct Observed {
    pub client: Client,
    reports: Arc<Mutex<Vec<Value>>>,
}

/// Everything that was executed between two looks.
#[derive(Debug, Default)]
pub struct Work {
    /// Pages read, from memory or not.
    pub buffers: i64,
    /// Rows that came out of scans of the engine's tables, and those that scans threw away.
    pub rows: i64,
    pub seq_scans: Vec<String>,
    /// Of these: all rows that match are fetched, dead ones too, before the first comes out.
    pub bitmap_scans: Vec<String>,
}

impl Observed {
    /// With the settings of a lane connection.
    pub async fn new(url: &str) -> Self {
        let mut config: Config = url.parse().unwrap();
        config.options(lane_settings(&config).await);
        Self::with(&config).await
    }

    /// With the server's own settings, as a producer has them.
    pub async fn producer(url: &str) -> Self {
        Self::with(&url.parse().unwrap()).await
    }

    async fn with(config: &Config) -> Self {
        let (client, mut connection) = config.connect(NoTls).await.unwrap();
        let reports: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&reports);
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notice(notice) = message
                    && let Some((_, plan)) = notice.message().split_once("plan:\n")
                {
                    let plan = serde_json::from_str(plan).unwrap();
                    kept.lock().unwrap().push(plan);
                }
            }
        });
        client
            .batch_execute(
                "LOAD 'auto_explain'; SET auto_explain.log_nested_statements = on;
                 SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on;
                 SET auto_explain.log_timing = off; SET auto_explain.log_format = json;
                 SET auto_explain.log_min_duration = 0; SET client_min_messages = log",
            )
            .await
            .unwrap();
        Self { client, reports }
    }

    /// The reports since the last look.
    pub fn forget(&self) -> Vec<Value> {
        std::mem::take(&mut *self.reports.lock().unwrap())
    }

    /// What was done since the last look.
    pub fn work(&self) -> Work {
        let reports = self.forget();
        assert!(!reports.is_empty(), "nothing was reported");
        let mut work = Work::default();
        for report in &reports {
            let plan = &report["Plan"];
            // What a function does is in reports of its own and in the plan that calls it.
            if plan["Node Type"] != "Function Scan" {
                work.buffers +=
                    whole(number(plan, "Shared Hit Blocks") + number(plan, "Shared Read Blocks"));
            }
            work.add(plan);
        }
        work
    }
}

impl Work {
    fn add(&mut self, node: &Value) {
        if let Some(relation) = node["Relation Name"].as_str()
            && node["Node Type"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("Scan"))
        {
            let each = [
                "Actual Rows",
                "Rows Removed by Filter",
                "Rows Removed by Index Recheck",
            ];
            let rows: f64 = each.iter().map(|key| number(node, key)).sum();
            self.rows += whole(rows * number(node, "Actual Loops"));
            match node["Node Type"].as_str() {
                Some("Seq Scan") => self.seq_scans.push(relation.to_owned()),
                Some("Bitmap Heap Scan") => self.bitmap_scans.push(relation.to_owned()),
                _ => {}
            }
        }
        for child in node["Plans"].as_array().into_iter().flatten() {
            self.add(child);
        }
    }
}

/// From PostgreSQL 18 on, rows are averages over the loops and have decimals.
fn number(node: &Value, key: &str) -> f64 {
    node[key].as_f64().unwrap_or(0.0)
}

fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// As start-up options, what a lane connection has set for its session.
async fn lane_settings(config: &Config) -> String {
    let lanes = lane_connection::open(&config.clone().into(), "settings")
        .await
        .unwrap();
    let rows = lanes
        .client
        .query(
            "SELECT name, setting || coalesce(unit, '') FROM pg_settings
             WHERE source = 'client' AND name NOT IN
                 ('application_name', 'client_encoding', 'TimeZone', 'DateStyle', 'extra_float_digits')",
            &[],
        )
        .await
        .unwrap();
    let options: Vec<String> = rows
        .iter()
        .map(|row| {
            // A space ends an option.
            let value = row.get::<_, &str>(1).replace(' ', "\\ ");
            format!("-c {}={value}", row.get::<_, &str>(0))
        })
        .collect();
    assert!(options.contains(&"-c enable_seqscan=off".to_owned()));
    options.join(" ")
}
