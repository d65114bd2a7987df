//! What a request's query asks for.

use std::collections::HashSet;

use schemars::JsonSchema;

use crate::problem::Problem;
use crate::problem_type;

/// Sessions that one follower may name.
const MOST_SESSIONS: usize = 64;
/// Event types that one follower may name.
const MOST_TYPES: usize = 64;
/// A path to begin at what comes from now on.
const FROM_END: &str = "end";

/// Where it begins, if no cursor says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Default,
    Seq(i64),
    End,
}

/// What a request's query asks for.
#[derive(Debug, Default)]
pub struct Asked {
    pub sessions: Vec<String>,
    pub cursor: Option<String>,
    from: Option<String>,
    pub types: Option<HashSet<String>>,
}

/// The parameters, for the document: [`Asked::read`] reads them.
#[derive(JsonSchema)]
#[schemars(rename = "FollowSession")]
#[allow(dead_code, reason = "its members are in the document")]
pub struct OfSession {
    /// What the client saw last, as the `id` of an event says it.
    cursor: Option<String>,
    /// A seq to begin at, or `end` for what comes from now on.
    from: Option<String>,
    /// Event types, separated by commas.
    types: Option<String>,
    /// Of a signed link: when it expires.
    expires: Option<u64>,
    /// Of a signed link.
    signature: Option<String>,
}

/// The same, of a stream.
#[derive(JsonSchema)]
#[schemars(rename = "FollowStream")]
#[allow(dead_code, reason = "its members are in the document")]
pub struct OfStream {
    /// Up to 64 sessions, separated by commas; without, all of the stream.
    session: Option<String>,
    #[schemars(flatten)]
    others: OfSession,
}

pub fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(problem_type::INVALID, detail)
}

impl Asked {
    /// `signed` is the part of the query that a link's signature covers, which alone says what may be followed.
    pub fn read(signed: &str, rest: &str, is_link: bool) -> Result<Self, Problem> {
        let mut asked = Self::default();
        for (part, is_signed) in [(signed, true), (rest, false)] {
            let mut types = HashSet::new();
            for (name, value) in url::form_urlencoded::parse(part.as_bytes()) {
                let once = |of: &mut Option<String>| match of.replace(value.to_string()) {
                    None => Ok(()),
                    Some(_) => Err(invalid(format!("{name} is given twice: nothing was done"))),
                };
                match &*name {
                    "session" if is_signed => {
                        let names = value.split(',').map(str::to_owned);
                        asked.sessions.extend(names.filter(|name| !name.is_empty()));
                    }
                    "expires" if is_signed && is_link => {}
                    "cursor" => once(&mut asked.cursor)?,
                    "from" => once(&mut asked.from)?,
                    "types" => {
                        let names = value.split(',').map(str::to_owned);
                        types.extend(names.filter(|name| !name.is_empty()));
                    }
                    _ => {
                        let name = Problem::excerpt(&name);
                        return Err(invalid(format!(
                            "there is no parameter {name:?} here: nothing was done"
                        ))
                        .hint("there are session (of a stream), from, cursor and types"));
                    }
                }
            }
            if types.len() > MOST_TYPES {
                return Err(invalid(format!(
                    "more than {MOST_TYPES} types are asked for: nothing was done"
                )));
            }
            if !types.is_empty() {
                // What is not signed may only narrow what is.
                asked.types = Some(match asked.types.take() {
                    Some(signed) => &signed & &types,
                    None => types,
                });
            }
        }
        asked.sessions.sort();
        asked.sessions.dedup();
        if asked.sessions.len() > MOST_SESSIONS {
            return Err(invalid(format!(
                "more than {MOST_SESSIONS} sessions are asked for: nothing was done"
            ))
            .hint("follow the whole stream instead, and filter"));
        }
        Ok(asked)
    }

    pub fn from(&self) -> Result<From, Problem> {
        match self.from.as_deref() {
            None => Ok(From::Default),
            Some(FROM_END) => Ok(From::End),
            Some(from) => match from.parse::<i64>() {
                Ok(seq) if seq >= 1 => Ok(From::Seq(seq)),
                _ => Err(invalid("from is no seq: nothing was done")
                    .hint("a seq of 1 or more, or `end` for what comes from now on")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_signed_says_nothing_of_what_may_be_followed() {
        let asked = Asked::read(
            "session=a,b&expires=9&types=x,y",
            "types=y,z&cursor=1",
            true,
        );
        let asked = asked.unwrap();
        assert_eq!(asked.sessions, ["a", "b"]);
        assert_eq!(asked.types, Some(HashSet::from(["y".to_owned()])));
        for rest in ["session=c", "expires=99", "x=1", "cursor=1&cursor=2"] {
            assert!(
                Asked::read("session=a&expires=9", rest, true).is_err(),
                "{rest}"
            );
        }
        assert!(Asked::read("expires=9", "", false).is_err());
    }

    #[test]
    fn a_beginning_is_a_seq_or_the_end() {
        let from = |from: &str| {
            Asked::read(&format!("from={from}"), "", false)
                .unwrap()
                .from()
        };
        assert_eq!(from("7").unwrap(), From::Seq(7));
        assert_eq!(from("end").unwrap(), From::End);
        for bad in ["0", "-1", "x", "", "99999999999999999999"] {
            assert!(from(bad).is_err(), "{bad}");
        }
    }
}
