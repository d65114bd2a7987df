//! Steps of all workloads.

use std::sync::OnceLock;
use std::time::Instant;

use tokio_postgres::{Client, Statement};

use super::error::BenchError;

/// Long work says on standard error where it is, and when.
pub fn progress(text: &str) {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let since = BEGIN.get_or_init(Instant::now).elapsed().as_secs_f64();
    eprintln!("bench, {since:.0} s: {text}");
}

pub async fn prepare(client: &Client, sql: &str) -> Result<Statement, BenchError> {
    client
        .prepare(sql)
        .await
        .map_err(BenchError::on("preparing a measured statement"))
}
