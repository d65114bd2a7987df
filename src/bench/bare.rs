//! The limit of appending: the bare INSERT of the same columns into a table like the log. The payload is
//! the text that the log keeps: nothing parses it here, while an append checks that it is JSON.

use std::time::SystemTime;

use serde_json::value::RawValue;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{BenchError, Scratch};

/// The same columns, key and kind of partitions, and what `enqueue` checks of values as constraints; no function and no ready
/// entry.
const SCHEMA: &str = "
    CREATE SCHEMA bench;
    CREATE TABLE bench.event (
        LIKE lanekeeper.event INCLUDING ALL,
        CHECK (seq > 0), CHECK (priority BETWEEN -100 AND 100), CHECK (octet_length(event_type) BETWEEN 1 AND 200)
    ) PARTITION BY RANGE (day);
    DO $$
    DECLARE v_day date := (now() AT TIME ZONE 'UTC')::date;
    BEGIN
        FOR i IN -1 .. 2 LOOP
            EXECUTE format('CREATE TABLE bench.%I PARTITION OF bench.event FOR VALUES FROM (%L) TO (%L)',
                           'event_' || to_char(v_day + i, 'YYYYMMDD'), v_day + i, v_day + i + 1);
        END LOOP;
    END $$;";
pub const INSERT: &str = "
    INSERT INTO bench.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
    VALUES ($1, $2, $3, 0, $4, $5, $6, $7, $8, NULL)";
pub const INSERT_MANY: &str = "
    INSERT INTO bench.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
    SELECT u.session_id, u.seq, $3, 0, $4, $5, u.message_id, $7, u.payload, NULL
    FROM unnest($1::bigint[], $2::bigint[], $6::uuid[], $8::text[]) AS u (session_id, seq, message_id, payload)";

pub async fn create(scratch: &Scratch) -> Result<(), BenchError> {
    scratch
        .connect()
        .await?
        .batch_execute(SCHEMA)
        .await
        .map_err(BenchError::on("creating the bare table"))
}

/// A producer that numbers the events of its sessions itself.
pub struct Numbers {
    next: Vec<i64>,
    first_session: i64,
}

impl Numbers {
    pub fn new(client: usize, sessions: usize, first_seq: i64) -> Self {
        Self {
            next: vec![first_seq; sessions],
            first_session: (client * sessions) as i64 + 1,
        }
    }

    fn take(&mut self, session: usize) -> (i64, i64) {
        let seq = self.next[session];
        self.next[session] += 1;
        (self.first_session + session as i64, seq)
    }

    /// One event of the given session.
    pub async fn insert(
        &mut self,
        client: &Client,
        statement: &Statement,
        session: usize,
        payload: &RawValue,
    ) -> Result<(), BenchError> {
        let (session_id, seq) = self.take(session);
        let size = payload.get().len() as i32;
        client
            .execute(
                statement,
                &[
                    &session_id,
                    &seq,
                    &today(),
                    &size,
                    &SystemTime::now(),
                    &Uuid::now_v7(),
                    &"message",
                    &payload.get(),
                ],
            )
            .await
            .map(drop)
            .map_err(BenchError::on("inserting an event"))
    }

    /// One event of each of the given sessions.
    pub async fn insert_many(
        &mut self,
        client: &Client,
        statement: &Statement,
        sessions: impl Iterator<Item = usize>,
        payload: &RawValue,
    ) -> Result<(), BenchError> {
        let (session_ids, seqs): (Vec<i64>, Vec<i64>) =
            sessions.map(|session| self.take(session)).unzip();
        let ids: Vec<Uuid> = seqs.iter().map(|_| Uuid::now_v7()).collect();
        let payloads: Vec<_> = seqs.iter().map(|_| payload.get()).collect();
        let size = payload.get().len() as i32;
        client
            .execute(
                statement,
                &[
                    &session_ids,
                    &seqs,
                    &today(),
                    &size,
                    &SystemTime::now(),
                    &ids,
                    &"message",
                    &payloads,
                ],
            )
            .await
            .map(drop)
            .map_err(BenchError::on("inserting events in bulk"))
    }
}

fn today() -> jiff::civil::Date {
    jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date()
}
