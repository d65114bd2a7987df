//! Writing documents: `lanekeeper.put_document`, which checks the version, keeps the history and appends the event to an
//! ordered session, against what applications write by hand: an UPDATE of the document's row that checks the version, and
//! an INSERT into an outbox table without order.
//!
//! By hand it is two statements between BEGIN and COMMIT, or one statement with both. The latter saves three round trips,
//! and is what `put_document` alone saves too.

use std::time::{Duration, Instant};

use tokio_postgres::types::Json;
use tokio_postgres::{Client, Statement};

use super::measure::{Pairs, per_second};
use super::report::{Comparison, Line};
use super::{BenchError, Options, Scratch, backlog, prepare, progress};

/// Documents of each writer; they are there before the measurement.
const DOCUMENTS: usize = 125;
/// Of each run.
const SECONDS: f64 = 2.0;

const SCHEMA: &str = "
    CREATE SCHEMA bench;
    CREATE TABLE bench.document (
        kind text NOT NULL, id text NOT NULL, version bigint NOT NULL, body jsonb NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (kind, id));
    CREATE TABLE bench.outbox (
        outbox_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id uuid NOT NULL DEFAULT gen_random_uuid(),
        kind text NOT NULL, id text NOT NULL, version bigint NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp())";
const CREATE: &str = "SELECT version FROM lanekeeper.put_document('bench', $1, $2, 0)";
const CREATE_BY_HAND: &str =
    "INSERT INTO bench.document (kind, id, version, body) VALUES ('bench', $1, 1, $2)";
const PUT: &str = "SELECT version FROM lanekeeper.put_document('bench', $1, $2, $3)";
const UPDATE: &str = "
    UPDATE bench.document SET body = $2, version = version + 1, changed_at = clock_timestamp()
    WHERE kind = 'bench' AND id = $1 AND version = $3 RETURNING version";
const INSERT: &str = "
    INSERT INTO bench.outbox (kind, id, version, event_type, payload)
    VALUES ('bench', $1::text, $3::bigint + 1, 'DocumentUpdated',
            jsonb_build_object('kind', 'bench', 'id', $1::text, 'version', $3::bigint + 1, 'body', $2::jsonb))
    RETURNING version";
const BOTH: &str = "
    WITH updated AS (
        UPDATE bench.document SET body = $2, version = version + 1, changed_at = clock_timestamp()
        WHERE kind = 'bench' AND id = $1 AND version = $3 RETURNING kind, id, version, body)
    INSERT INTO bench.outbox (kind, id, version, event_type, payload)
    SELECT u.kind, u.id, u.version, 'DocumentUpdated',
           jsonb_build_object('kind', u.kind, 'id', u.id, 'version', u.version, 'body', u.body)
    FROM updated AS u RETURNING version";

#[derive(Clone, Copy, Debug)]
pub struct Case {
    clients: usize,
    /// Both sides are one statement; else both are between BEGIN and COMMIT.
    single: bool,
    target: Option<f64>,
}

const fn case(clients: usize, single: bool) -> Case {
    Case {
        clients,
        single,
        target: if single { None } else { Some(0.6) },
    }
}

pub const CASES: [Case; 4] = [case(8, false), case(1, false), case(8, true), case(1, true)];

#[derive(Clone, Copy)]
enum Method {
    PutDocument,
    ByHand,
}

pub async fn measure(scratch: &Scratch, options: &Options, case: Case) -> Result<Line, BenchError> {
    let name = case.name();
    progress(&format!("documents, {name}"));
    scratch.recreate().await?;
    let client = scratch.connect().await?;
    client
        .batch_execute(SCHEMA)
        .await
        .map_err(BenchError::on("creating the tables of the other side"))?;
    let mut writers = Vec::new();
    for number in 0..case.clients {
        writers.push(Writer::new(scratch, number).await?);
    }
    let time = Duration::from_secs_f64(options.seconds.unwrap_or(SECONDS));
    let mut pairs = Pairs::default();
    for _ in 0..options.runs() {
        let value = together(&mut writers, Method::PutDocument, case.single, time).await?;
        let reference = together(&mut writers, Method::ByHand, case.single, time).await?;
        pairs.push(value, reference);
    }
    let against = match case.single {
        true => "UPDATE and INSERT in one statement",
        false => "UPDATE plus INSERT in one transaction",
    };
    Ok(Line::Comparison(Comparison::new(
        ("documents", name),
        against,
        pairs,
        case.target,
    )))
}

impl Case {
    fn name(self) -> String {
        let clients = match self.clients {
            1 => "1 client".to_owned(),
            n => format!("{n} clients"),
        };
        let how = match self.single {
            true => "put_document alone",
            false => "put_document between BEGIN and COMMIT",
        };
        format!("{clients}, {how}")
    }
}

async fn together(
    writers: &mut [Writer],
    method: Method,
    single: bool,
    time: Duration,
) -> Result<f64, BenchError> {
    let started_at = Instant::now();
    let until = started_at + time;
    let writing = writers
        .iter_mut()
        .map(|writer| writer.run(method, single, until));
    let counts = futures_util::future::try_join_all(writing).await?;
    Ok(per_second(counts.iter().sum(), started_at.elapsed()))
}

/// A writer and its documents, whose versions it knows.
struct Writer {
    client: Client,
    ids: Vec<String>,
    /// By method.
    versions: [Vec<i64>; 2],
    body: Box<serde_json::value::RawValue>,
    put: Statement,
    update: Statement,
    insert: Statement,
    both: Statement,
}

impl Writer {
    async fn new(scratch: &Scratch, number: usize) -> Result<Self, BenchError> {
        let client = scratch.connect().await?;
        let body = backlog::payload();
        let ids: Vec<String> = (0..DOCUMENTS).map(|n| format!("w{number}-{n}")).collect();
        for id in &ids {
            for statement in [CREATE, CREATE_BY_HAND] {
                client
                    .execute(statement, &[id, &Json(&body)])
                    .await
                    .map_err(BenchError::on("creating a document"))?;
            }
        }
        Ok(Self {
            ids,
            versions: [vec![1; DOCUMENTS], vec![1; DOCUMENTS]],
            body,
            put: prepare(&client, PUT).await?,
            update: prepare(&client, UPDATE).await?,
            insert: prepare(&client, INSERT).await?,
            both: prepare(&client, BOTH).await?,
            client,
        })
    }

    /// Writes until the time is over; returns how often.
    async fn run(
        &mut self,
        method: Method,
        single: bool,
        until: Instant,
    ) -> Result<usize, BenchError> {
        let mut count = 0;
        while Instant::now() < until {
            self.write(method, single, count % DOCUMENTS).await?;
            count += 1;
        }
        Ok(count)
    }

    async fn write(
        &mut self,
        method: Method,
        single: bool,
        document: usize,
    ) -> Result<(), BenchError> {
        let statements: &[&Statement] = match (method, single) {
            (Method::PutDocument, _) => &[&self.put],
            (Method::ByHand, true) => &[&self.both],
            (Method::ByHand, false) => &[&self.update, &self.insert],
        };
        let writing = BenchError::on;
        let version = self.versions[method as usize][document];
        if !single {
            let begun = self.client.batch_execute("BEGIN").await;
            begun.map_err(writing("beginning a transaction"))?;
        }
        for statement in statements {
            self.client
                .query_one(
                    *statement,
                    &[&self.ids[document], &Json(&self.body), &version],
                )
                .await
                .map_err(writing("writing a document"))?;
        }
        if !single {
            let ended = self.client.batch_execute("COMMIT").await;
            ended.map_err(writing("ending a transaction"))?;
        }
        self.versions[method as usize][document] += 1;
        Ok(())
    }
}
