//! One event on its way to `lanekeeper.enqueue`, and its line in a spool file.
//!
//! A line is `CHECKSUM SPACE JSON NEWLINE`: the JSON is one element of `enqueue_array`'s array, on
//! one line, and the checksum, the first 64 bits of its SHA-256, tells a whole line from a torn one.

use lanekeeper_postgres::append::NewEvent;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// An event that has its message id, but no place in its session's log yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Made once, by the producer: it makes sending repeatable.
    pub message_id: Uuid,
    pub session: String,
    pub event_type: String,
    /// JSON text without line breaks.
    pub payload: Box<RawValue>,
    /// JSON text of an object, without line breaks.
    pub headers: Box<RawValue>,
}

pub(super) const SUM_LEN: usize = 16;

/// A record's JSON begins with its id.
const ID_KEY: &str = "{\"message_id\":\"";
const ID_LEN: usize = 36;

impl Record {
    /// This record's line, newline included.
    pub fn to_line(&self) -> Vec<u8> {
        let json = self.to_raw();
        format!("{} {}\n", checksum(json.get().as_bytes()), json.get()).into_bytes()
    }

    /// The record as the store takes it.
    pub fn as_event(&self) -> NewEvent<'_> {
        NewEvent {
            message_id: Some(self.message_id),
            headers: Some(self.headers.get()),
            ..NewEvent::new(&self.session, &self.event_type, self.payload.get())
        }
    }

    /// The record as an element of the array that the store takes.
    pub fn to_raw(&self) -> Box<RawValue> {
        serde_json::value::to_raw_value(self).expect("strings and raw values always serialise")
    }

    /// What takes the place of a record whose payload cannot be taken, so that the session's log says
    /// what happened and its later events keep their order.
    pub fn stand_in(&self, reason: &str, kept_in: &std::path::Path) -> Self {
        self.stand_in_for(self.payload.get().len() as u64, reason, kept_in)
    }

    pub(super) fn stand_in_for(&self, bytes: u64, reason: &str, kept_in: &std::path::Path) -> Self {
        #[derive(Serialize)]
        struct StandIn<'a> {
            rejected: &'a str,
            bytes: u64,
            kept_in: std::borrow::Cow<'a, str>,
        }
        let payload = serde_json::value::to_raw_value(&StandIn {
            rejected: reason,
            bytes,
            kept_in: kept_in.to_string_lossy(),
        });
        Self {
            message_id: self.message_id,
            session: self.session.clone(),
            event_type: self.event_type.clone(),
            payload: payload.expect("strings and a number always serialise"),
            headers: self.headers.clone(),
        }
    }
}

/// The JSON of a line, newline excluded, if the line is whole.
pub(super) fn check_line(line: &[u8]) -> Option<&str> {
    let (sum, json) = (line.get(..SUM_LEN)?, line.get(SUM_LEN + 1..)?);
    (line[SUM_LEN] == b' ' && checksum(json).as_bytes() == sum)
        .then(|| std::str::from_utf8(json).ok())?
}

/// Whether two lines are of one event: the later one is the earlier one, amended.
pub(super) fn is_of_one_event(before: &str, json: &str) -> bool {
    fn id(json: &str) -> Option<&str> {
        json.strip_prefix(ID_KEY)?.get(..ID_LEN)
    }
    id(before).is_some_and(|before| Some(before) == id(json))
}

/// The first 64 bits of a SHA-256, in hexadecimal.
pub(super) fn checksum(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest
        .iter()
        .take(SUM_LEN / 2)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
pub(super) fn example(session: &str, number: u32) -> Record {
    let raw = |json: String| RawValue::from_string(json).unwrap();
    Record {
        message_id: Uuid::from_u128(number.into()),
        session: session.to_owned(),
        event_type: "tool_use".to_owned(),
        payload: raw(format!("{{\"n\":{number}}}")),
        headers: raw("{}".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_as_its_record() {
        let record = example("s", 7);
        let line = record.to_line();
        let (newline, line) = line.split_last().unwrap();
        assert_eq!(*newline, b'\n');
        let read: Record = serde_json::from_str(check_line(line).unwrap()).unwrap();
        assert_eq!(read.message_id, record.message_id);
        assert_eq!(read.payload.get(), record.payload.get());
    }

    #[test]
    fn a_record_and_its_amended_copy_are_of_one_event() {
        let record = example("s", 7);
        let mut amended = record.clone();
        amended.headers = RawValue::from_string("{\"a\":1}".to_owned()).unwrap();
        let json = |record: &Record| record.to_raw().get().to_owned();
        assert!(is_of_one_event(&json(&record), &json(&amended)));
        assert!(!is_of_one_event(&json(&record), &json(&example("s", 8))));
        assert!(!is_of_one_event("7", "7"));
    }

    #[test]
    fn no_cut_or_changed_line_passes_for_whole() {
        let line = example("s", 7).to_line();
        let line = &line[..line.len() - 1];
        for cut in 0..line.len() {
            assert!(check_line(&line[..cut]).is_none(), "cut at {cut}");
            let mut changed = line.to_vec();
            changed[cut] ^= 1;
            assert!(check_line(&changed).is_none(), "changed at {cut}");
        }
    }
}
