//! Reads previews of large payloads: the values at a few JSON pointers, without the payloads (I11).
//!
//! Postgres extracts the values, so the rest of a payload is neither sent nor kept in memory. A preview is a payload
//! with only these values, for code that reads payloads by JSON pointers. Only texts, numbers and truth values are
//! extracted. An object stands in for each list on the way, because JSON pointers do not distinguish them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;
use serde_json::{Map, Value};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::StoreError;

const PREVIEW: &str = include_str!("sql/preview.sql");
/// Texts are cut to this many characters: enough to know whether a text is empty, and longer than any name.
const CUT: i32 = 1024;

/// Previews of payloads, as JSON, by their events' seqs.
pub type Previews = BTreeMap<i64, String>;

/// Reads the previews of these events of a session. The result omits an event if one of the texts has more than
/// `longest` characters, or if the payload has no value at any of the pointers.
///
/// # Errors
/// They cannot be read.
pub async fn read(
    client: &impl GenericClient,
    session_id: i64,
    events: &[(i64, Date)],
    pointers: &[impl AsRef<str>],
    longest: usize,
) -> Result<Previews, StoreError> {
    let days = events.iter().map(|(_, day)| *day);
    let (Some(first), Some(last)) = (days.clone().min(), days.max()) else {
        return Ok(Previews::new());
    };
    let Some(paths) = pointers
        .iter()
        .map(|pointer| path(pointer.as_ref()))
        .collect::<Option<Vec<_>>>()
    else {
        return Ok(Previews::new());
    };
    let seqs: Vec<i64> = events.iter().map(|(seq, _)| *seq).collect();
    let places = Value::from_iter(paths.iter().map(|path| Value::from(path.clone()))).to_string();
    let longest = i32::try_from(longest).unwrap_or(i32::MAX);
    let rows = client
        .query_typed(
            PREVIEW,
            &[
                (&session_id, Type::INT8),
                (&seqs, Type::INT8_ARRAY),
                (&first, Type::DATE),
                (&last, Type::DATE),
                (&places, Type::TEXT),
                (&longest, Type::INT4),
                (&CUT, Type::INT4),
            ],
        )
        .await
        .map_err(StoreError::on(
            "reading what large payloads say of their messages",
        ))?;
    let mut previews: BTreeMap<i64, Value> = BTreeMap::new();
    let mut too_long = BTreeSet::new();
    for row in &rows {
        let (seq, number, said): (i64, i64, Option<&str>) = (row.get(0), row.get(1), row.get(2));
        let path = usize::try_from(number - 1)
            .ok()
            .and_then(|at| paths.get(at));
        let said = said.and_then(|said| serde_json::from_str(said).ok());
        match (path, said) {
            (Some(path), Some(said)) => put(previews.entry(seq).or_default(), path, said),
            _ => {
                too_long.insert(seq);
            }
        }
    }
    previews.retain(|seq, _| !too_long.contains(seq));
    Ok(previews
        .into_iter()
        .map(|(seq, preview)| (seq, preview.to_string()))
        .collect())
}

/// A JSON pointer as a Postgres path. `None`: the two would lead to different values. To Postgres, -1 is a list's last
/// element, and 07 its eighth.
fn path(pointer: &str) -> Option<Vec<String>> {
    let tokens = pointer.split('/').skip(1);
    let read = |token: &str| {
        let token = token.replace("~1", "/").replace("~0", "~");
        let is_number = token.trim().parse::<i64>();
        match is_number {
            Ok(number) if number < 0 || number.to_string() != token => None,
            _ => Some(token),
        }
    };
    tokens.map(read).collect()
}

fn put(root: &mut Value, path: &[String], said: Value) {
    let mut at = root;
    for token in path {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        // What says something itself has nothing below it.
        let Some(members) = at.as_object_mut() else {
            return;
        };
        at = members.entry(token.as_str()).or_insert(Value::Null);
    }
    *at = said;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_preview_answers_to_the_pointers_that_it_was_read_by() {
        let mut preview = Value::Null;
        for (pointer, said) in [
            ("/a~1b/~0", json!("x")),
            ("/list/0/text", json!("y")),
            ("/list/10/text", json!(7)),
            ("/", json!(true)),
        ] {
            put(&mut preview, &path(pointer).unwrap(), said.clone());
            assert_eq!(preview.pointer(pointer), Some(&said), "{pointer}");
        }
    }

    #[test]
    fn a_pointer_that_postgres_would_follow_elsewhere_is_not_followed() {
        for pointer in ["/list/-1", "/list/07", "/list/+1", "/list/ 1"] {
            assert_eq!(path(pointer), None, "{pointer}");
        }
        assert!(path("/2026-01-01/a-1/0").is_some());
    }
}
