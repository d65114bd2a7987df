//! The differences between a database's schema and the one of this release.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use tokio_postgres::GenericClient;

use super::StoreError;
use super::schema::{Kind, Schema};

/// Of every function and view of the schema: an MD5 of its definition as this server prints it. The caller's search_path
/// is pg_catalog, which the printed names depend on. The two views of the recent partitions are state: `move_recent` replaces them.
const LIVE: &str = "
SELECT 'function' AS kind, p.proname::text AS name, md5(pg_get_functiondef(p.oid)) AS hash
FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace('lanekeeper') AND p.prokind IN ('f', 'p')
UNION ALL
SELECT 'view', c.relname::text, md5(pg_get_viewdef(c.oid))
FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace('lanekeeper') AND c.relkind = 'v'
  AND c.relname <> ALL ('{recent_since,recent_event}')";

/// The server's major version: definitions are printed otherwise by another.
const SERVER_MAJOR: &str = "current_setting('server_version_num')::int / 10000";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Migration,
    Function,
    View,
}

impl From<Kind> for Part {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Function => Self::Function,
            Kind::View => Self::View,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Migration => "migration",
            Self::Function => "function",
            Self::View => "view",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The database lacks it.
    Missing,
    /// The database has it as another release defined it.
    Changed,
    /// It was altered in the database since it was applied.
    Altered,
    /// An earlier release had it, this one does not.
    Obsolete,
    /// Nobody knows where it comes from: `migrate` leaves it alone.
    Unknown,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "is missing",
            Self::Changed => "is not the one of this release",
            Self::Altered => "was altered in the database",
            Self::Obsolete => "is no longer part of the schema",
            Self::Unknown => "is not Lanekeeper's",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    pub part: Part,
    pub name: String,
    pub state: State,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, name, state } = self;
        write!(f, "{part} {name} {state}")
    }
}

struct Recorded {
    hash: String,
    /// As the server printed it when it was applied; `None` where another major version did.
    live: Option<String>,
}

/// Which numbered migrations the database lacks or has with another content. It has the table of versions.
pub(super) async fn of_numbered(
    client: &impl GenericClient,
    schema: &Schema,
) -> Result<Vec<Difference>, StoreError> {
    let rows = client
        .query_typed("SELECT version, hash FROM lanekeeper.schema_version", &[])
        .await
        .map_err(StoreError::on("reading the applied migrations"))?;
    let applied: BTreeMap<i32, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut found = Vec::new();
    for (number, migration) in (1..).zip(schema.numbered()) {
        let state = match applied.get(&number) {
            None => State::Missing,
            Some(hash) if *hash != migration.hash => State::Changed,
            Some(_) => continue,
        };
        found.push(Difference {
            part: Part::Migration,
            name: migration.name.clone(),
            state,
        });
    }
    Ok(found)
}

/// Which functions and views differ, those of the release in its order. The caller's search_path is pg_catalog.
pub(super) async fn of_objects(
    client: &impl GenericClient,
    schema: &Schema,
) -> Result<Vec<Difference>, StoreError> {
    let live = live(client).await?;
    let recorded = recorded(client).await?;
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for object in schema.objects() {
        let key = (object.kind.into(), object.name.clone());
        let state = match (live.get(&key), recorded.get(&key)) {
            (None, _) => Some(State::Missing),
            (Some(_), None) => Some(State::Changed),
            (Some(_), Some(recorded)) if recorded.hash != object.hash => Some(State::Changed),
            (Some(live), Some(recorded)) => recorded
                .live
                .as_ref()
                .filter(|hash| *live != [(*hash).clone()])
                .map(|_| State::Altered),
        };
        if let Some(state) = state {
            let (part, name) = key.clone();
            found.push(Difference { part, name, state });
        }
        known.insert(key);
    }
    let others: BTreeSet<_> = live.keys().chain(recorded.keys()).cloned().collect();
    for key in others.difference(&known) {
        let state = match recorded.contains_key(key) {
            true => State::Obsolete,
            false => State::Unknown,
        };
        let (part, name) = key.clone();
        found.push(Difference { part, name, state });
    }
    Ok(found)
}

/// Writes down what was applied, as the server prints it now. The caller's search_path is pg_catalog.
pub(super) async fn record(
    client: &impl GenericClient,
    schema: &Schema,
    applied: &BTreeSet<(Kind, &str)>,
) -> Result<(), StoreError> {
    let objects = schema
        .objects()
        .iter()
        .filter(|object| applied.contains(&(object.kind, &object.name)));
    let (mut kinds, mut names, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        kinds.push(object.kind.name());
        names.push(&object.name);
        hashes.push(&object.hash);
    }
    let statement = format!(
        "INSERT INTO lanekeeper.schema_object (name, kind, hash, live_hash, server_major)
         SELECT u.name, u.kind, u.hash, l.hash, {SERVER_MAJOR}
         FROM unnest($1::text[], $2::text[], $3::text[]) AS u (name, kind, hash)
         JOIN ({LIVE}) AS l ON l.name = u.name AND l.kind = u.kind
         ON CONFLICT (name) DO UPDATE
         SET kind = excluded.kind, hash = excluded.hash, live_hash = excluded.live_hash,
             server_major = excluded.server_major, applied_at = now()"
    );
    client
        .execute(&statement, &[&names, &kinds, &hashes])
        .await
        .map_err(StoreError::on("recording what was applied"))?;
    Ok(())
}

type Key = (Part, String);

fn key(kind: &str, name: String) -> Key {
    let part = match kind {
        "view" => Part::View,
        _ => Part::Function,
    };
    (part, name)
}

/// A function that has two signatures is there twice.
async fn live(client: &impl GenericClient) -> Result<BTreeMap<Key, Vec<String>>, StoreError> {
    let rows = client
        .query_typed(LIVE, &[])
        .await
        .map_err(StoreError::on("reading the functions of the schema"))?;
    let mut live: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for row in rows {
        let key = key(row.get(0), row.get(1));
        live.entry(key).or_default().push(row.get(2));
    }
    Ok(live)
}

async fn recorded(client: &impl GenericClient) -> Result<BTreeMap<Key, Recorded>, StoreError> {
    let statement = format!(
        "SELECT kind, name, hash, CASE WHEN server_major = {SERVER_MAJOR} THEN live_hash END
         FROM lanekeeper.schema_object"
    );
    let rows = client
        .query_typed(&statement, &[])
        .await
        .map_err(StoreError::on("reading what was applied"))?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let recorded = Recorded {
                hash: row.get(2),
                live: row.get(3),
            };
            (key(row.get(0), row.get(1)), recorded)
        })
        .collect())
}
