//! What a request says in its headers and its query.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use jiff::Timestamp;
use lanekeeper_postgres::durable::Producer;

use super::offset::Start;
use crate::problem::Problem;
use crate::problem_type;

/// The largest whole number that JavaScript has.
const LARGEST_NUMBER: i64 = (1 << 53) - 1;
/// A hundred years: what is beyond is no time to live.
const LONGEST_TTL_S: i64 = 3_155_760_000;
const LONGEST_TEXT: usize = 256;
const LONGEST_EVENT_TYPE: usize = 200;
const LONGEST_CONTENT_TYPE: usize = 200;
/// Of the protocol, where a client names none.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

pub fn refused(detail: impl std::fmt::Display) -> Problem {
    let detail = format!("{detail}: nothing was done");
    Problem::new(problem_type::BAD_REQUEST, detail)
}

/// A header's text; `None` where it is not there.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(refused(format!("{name} is no plain text"))),
    }
}

/// A header of 1 to 256 bytes.
fn bounded<'a>(
    headers: &'a HeaderMap,
    name: &str,
    longest: usize,
) -> Result<Option<&'a str>, Problem> {
    match text(headers, name)? {
        Some(text) if text.is_empty() || text.len() > longest => {
            Err(refused(format!("{name} takes 1 to {longest} bytes")))
        }
        text => Ok(text),
    }
}

fn whole_number(name: &str, text: &str, largest: i64) -> Result<i64, Problem> {
    let is_plain = text == "0" || !text.starts_with('0');
    let number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse::<i64>().ok())
        .flatten()
        .filter(|number| is_plain && *number <= largest);
    number.ok_or_else(|| refused(format!("{name} is no whole number up to {largest}")))
}

/// The content type that a request gives, which is not empty.
pub fn given_content_type(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let given = text(headers, header::CONTENT_TYPE.as_str())?.map(str::trim);
    match given {
        Some(given) if given.len() > LONGEST_CONTENT_TYPE => Err(refused(format!(
            "Content-Type takes at most {LONGEST_CONTENT_TYPE} bytes"
        ))),
        given => Ok(given.filter(|given| !given.is_empty())),
    }
}

/// The content type of a new stream.
pub fn content_type(headers: &HeaderMap) -> Result<&str, Problem> {
    Ok(given_content_type(headers)?.unwrap_or(DEFAULT_CONTENT_TYPE))
}

/// Whether the stream is to be closed. Any other value than `true` stands for none.
pub fn closes(headers: &HeaderMap) -> bool {
    headers
        .get("stream-closed")
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// When a new stream expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    pub ttl_seconds: Option<i64>,
    pub at: Option<Timestamp>,
}

pub fn expiry(headers: &HeaderMap) -> Result<Expiry, Problem> {
    let ttl = text(headers, "stream-ttl")?;
    let at = text(headers, "stream-expires-at")?;
    if ttl.is_some() && at.is_some() {
        return Err(refused(
            "Stream-TTL and Stream-Expires-At exclude each other",
        ));
    }
    let ttl_seconds = ttl
        .map(|ttl| whole_number("Stream-TTL", ttl, LONGEST_TTL_S))
        .transpose()?;
    let at = at
        .map(|at| at.parse::<Timestamp>())
        .transpose()
        .map_err(|_| refused("Stream-Expires-At is no RFC 3339 timestamp up to 9999-12-30"))?;
    Ok(Expiry { ttl_seconds, at })
}

/// The event type that an append is given, in place of `message` and `chunk`. It is ours, and none of the protocol's.
pub fn event_type(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    bounded(headers, "lanekeeper-event-type", LONGEST_EVENT_TYPE)
}

/// `Stream-Seq`.
pub fn writer_seq(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    bounded(headers, "stream-seq", LONGEST_TEXT)
}

/// The producer's headers, which come together or not at all.
pub fn producer(headers: &HeaderMap) -> Result<Option<Producer<'_>>, Problem> {
    let id = bounded(headers, "producer-id", LONGEST_TEXT)?;
    let epoch = text(headers, "producer-epoch")?;
    let seq = text(headers, "producer-seq")?;
    match (id, epoch, seq) {
        (None, None, None) => Ok(None),
        (Some(id), Some(epoch), Some(seq)) => Ok(Some(Producer {
            id,
            epoch: whole_number("Producer-Epoch", epoch, LARGEST_NUMBER)?,
            seq: whole_number("Producer-Seq", seq, LARGEST_NUMBER)?,
        })),
        _ => Err(refused(
            "Producer-Id, Producer-Epoch and Producer-Seq come together or not at all",
        )),
    }
}

/// How a read goes on at the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    CatchUp,
    LongPoll,
    Sse,
}

/// What a read asks for.
#[derive(Debug)]
pub struct Asked {
    pub from: Start,
    pub mode: Mode,
    pub cursor: Option<String>,
}

impl Asked {
    /// Reads a query. Parameters that the protocol does not know are left to its extensions.
    pub fn read(query: &str) -> Result<Self, Problem> {
        let (mut offset, mut live, mut cursor) = (None, None, None);
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let of: &mut Option<Cow<'_, str>> = match &*name {
                "offset" => &mut offset,
                "live" => &mut live,
                "cursor" => &mut cursor,
                _ => continue,
            };
            if of.replace(value).is_some() {
                return Err(refused(format!("{name} is given twice")));
            }
        }
        let mode = match live.as_deref() {
            None => Mode::CatchUp,
            Some("long-poll") => Mode::LongPoll,
            Some("sse") => Mode::Sse,
            Some(_) => return Err(refused("live is neither long-poll nor sse")),
        };
        let from = match offset {
            Some(offset) => Start::parse(&offset).ok_or_else(|| {
                refused("the offset is none of ours").hint(
                    "give back the Stream-Next-Offset of an answer, -1 for the beginning, or now",
                )
            })?,
            None if mode == Mode::CatchUp => Start::Beginning,
            None => return Err(refused("a live read needs an offset")),
        };
        Ok(Self {
            from,
            mode,
            cursor: cursor.map(Cow::into_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
        given
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn a_time_to_live_is_a_plain_whole_number_and_excludes_an_instant() {
        let ttl = |ttl| expiry(&headers(&[("stream-ttl", ttl)]));
        assert_eq!(ttl("0").unwrap().ttl_seconds, Some(0));
        assert_eq!(ttl("3600").unwrap().ttl_seconds, Some(3600));
        for bad in [
            "",
            "-1",
            "+60",
            "060",
            "60.5",
            "1e3",
            "abc",
            "9999999999999",
            "99999999999999999999",
        ] {
            assert!(ttl(bad).is_err(), "{bad}");
        }
        let at = |at| expiry(&headers(&[("stream-expires-at", at)]));
        assert_eq!(
            at("2030-01-01T02:00:00+02:00").unwrap().at,
            at("2030-01-01T00:00:00Z").unwrap().at
        );
        assert!(at("tomorrow").is_err());
        let both = [
            ("stream-ttl", "1"),
            ("stream-expires-at", "2030-01-01T00:00:00Z"),
        ];
        assert!(expiry(&headers(&both)).is_err());
    }

    #[test]
    fn the_headers_of_a_producer_come_together() {
        let of = |id, epoch, seq| {
            producer(&headers(&[
                ("producer-id", id),
                ("producer-epoch", epoch),
                ("producer-seq", seq),
            ]))
            .map(|producer| producer.map(|producer| (producer.epoch, producer.seq)))
        };
        assert_eq!(
            of("p", "0", "9007199254740991").unwrap(),
            Some((0, LARGEST_NUMBER))
        );
        for (id, epoch, seq) in [
            ("", "0", "0"),
            ("p", "0", "1abc"),
            ("p", "0xyz", "0"),
            ("p", "-1", "0"),
            ("p", "0", "9007199254740992"),
        ] {
            assert!(of(id, epoch, seq).is_err(), "{id} {epoch} {seq}");
        }
        assert!(producer(&headers(&[("producer-id", "p")])).is_err());
        assert_eq!(producer(&headers(&[])).unwrap().map(|p| p.seq), None);
    }

    #[test]
    fn a_live_read_needs_an_offset_and_no_parameter_comes_twice() {
        let asked = Asked::read("offset=-1&foo=bar&live=sse&cursor=7").unwrap();
        assert_eq!((asked.from, asked.mode), (Start::Beginning, Mode::Sse));
        assert_eq!(asked.cursor.as_deref(), Some("7"));
        assert_eq!(Asked::read("").unwrap().mode, Mode::CatchUp);
        for bad in [
            "live=sse",
            "live=long-poll",
            "offset=",
            "offset=-1&live=true",
            "offset=-1&offset=-1",
            "offset=0 1",
        ] {
            assert!(Asked::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_true_closes() {
        for (value, is_true) in [
            ("true", true),
            ("TRUE", true),
            ("yes", false),
            ("1", false),
            ("", false),
        ] {
            assert_eq!(
                closes(&headers(&[("stream-closed", value)])),
                is_true,
                "{value}"
            );
        }
    }
}
