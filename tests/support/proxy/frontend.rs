//! What a Postgres client says, as far as a proxy must understand it to cut after a commit.
//!
//! Bytes are forwarded as they come; this only follows along and says where in them the message ends
//! after which the server will commit.

use std::collections::HashSet;

/// Of a message only this much is kept: the statement's text is at its beginning.
const KEPT: usize = 4096;
/// An encryption request has this in place of a protocol version; another start-up message follows.
const SSL_REQUEST: u32 = 80_877_103;

/// After what a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// COMMIT, or an enqueue that commits by itself.
    Commit,
    /// A worker's settlement.
    Settlement,
    /// A worker's claim.
    Claim,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Meaning {
    Enqueue,
    Settlement,
    Claim,
}

impl Meaning {
    fn of(statement: &str) -> Option<Self> {
        [
            ("lanekeeper.enqueue", Self::Enqueue),
            ("lanekeeper.settle(", Self::Settlement),
            ("lanekeeper.finish(", Self::Settlement),
            ("lanekeeper.claim(", Self::Claim),
        ]
        .into_iter()
        .find_map(|(text, meaning)| statement.contains(text).then_some(meaning))
    }
}

#[derive(Default)]
pub(super) struct Watch {
    started: bool,
    application: Option<String>,
    /// The message under way: its header, then what is kept of it.
    header: Vec<u8>,
    body: Vec<u8>,
    left: usize,
    in_transaction: bool,
    /// Prepared statements whose text says what they do.
    prepared: HashSet<(String, Meaning)>,
    /// What the next Sync lets the server commit.
    bound: Option<Meaning>,
}

impl Watch {
    /// As the start-up message names it.
    pub(super) fn application(&self) -> Option<&str> {
        self.application.as_deref()
    }

    /// Where in `bytes` the message ends that springs the trap.
    pub(super) fn look(&mut self, bytes: &[u8], trap: Option<Trap>) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let wanted = if self.started { 5 } else { 4 };
            if self.header.len() < wanted {
                self.header.push(bytes[at]);
                at += 1;
                if self.header.len() == wanted {
                    let length = u32::from_be_bytes(self.header[wanted - 4..].try_into().unwrap());
                    self.left = (length as usize).saturating_sub(4);
                }
            } else {
                let part = self.left.min(bytes.len() - at);
                let kept = part.min(KEPT - self.body.len().min(KEPT));
                self.body.extend_from_slice(&bytes[at..at + kept]);
                self.left -= part;
                at += part;
            }
            if self.header.len() == wanted
                && self.left == 0
                && self.ended() == trap
                && trap.is_some()
            {
                return Some(at);
            }
        }
        None
    }

    /// A message is complete: what it makes the server commit.
    fn ended(&mut self) -> Option<Trap> {
        let header = std::mem::take(&mut self.header);
        let body = std::mem::take(&mut self.body);
        if !self.started {
            self.started = body.get(..4) != Some(&SSL_REQUEST.to_be_bytes());
            let mut settings = body.get(4..).unwrap_or_default().split(|byte| *byte == 0);
            if settings.any(|text| text == b"application_name") {
                let name = settings.next().unwrap_or_default();
                self.application = Some(String::from_utf8_lossy(name).into_owned());
            }
            return None;
        }
        let mut texts = body
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text));
        match header[0] {
            b'Q' => {
                let text = texts.next().unwrap_or_default().to_uppercase();
                let begins = text.starts_with("BEGIN") || text.starts_with("START");
                let commits = self.in_transaction && text.starts_with("COMMIT");
                self.in_transaction = begins
                    || self.in_transaction
                        && !commits
                        && !text.trim_end_matches(';').eq("ROLLBACK");
                commits.then_some(Trap::Commit)
            }
            b'P' => {
                let name = texts.next().unwrap_or_default().into_owned();
                let meaning = Meaning::of(&texts.next().unwrap_or_default());
                self.prepared.retain(|(known, _)| *known != name);
                self.prepared.extend(meaning.map(|meaning| (name, meaning)));
                None
            }
            b'B' => {
                let name = texts.nth(1).unwrap_or_default();
                let known = self.prepared.iter().find(|(known, _)| *known == name);
                self.bound = known.map(|(_, meaning)| *meaning);
                None
            }
            b'S' => match self.bound.take()? {
                Meaning::Enqueue => (!self.in_transaction).then_some(Trap::Commit),
                Meaning::Settlement => Some(Trap::Settlement),
                Meaning::Claim => Some(Trap::Claim),
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_postgres::{claim, settle};

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    fn start() -> Vec<u8> {
        [&8_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes()].concat()
    }

    /// Where the trap springs, however the bytes are cut into chunks.
    fn springs(messages: &[Vec<u8>], trap: Trap) -> Option<usize> {
        let all = messages.concat();
        let found: HashSet<Option<usize>> = [1, 2, 7, all.len()]
            .into_iter()
            .map(|chunk| {
                let mut watch = Watch::default();
                let mut before = 0;
                for part in all.chunks(chunk) {
                    if let Some(end) = watch.look(part, Some(trap)) {
                        return Some(before + end);
                    }
                    before += part.len();
                }
                None
            })
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }

    #[test]
    fn a_commit_springs_at_its_end_and_a_rollback_does_not() {
        let begin = message(b'Q', b"START TRANSACTION\0");
        let mut messages = vec![start(), begin, message(b'Q', b"ROLLBACK TO part\0")];
        messages.push(message(b'Q', b"COMMIT\0"));
        let end = messages.concat().len();
        messages.push(message(b'X', b""));
        assert_eq!(springs(&messages, Trap::Commit), Some(end));
        messages[3] = message(b'Q', b"ROLLBACK\0");
        assert_eq!(springs(&messages, Trap::Commit), None);
    }

    /// A statement that is no longer called what it was would spring no trap, and nothing would tell.
    #[test]
    fn what_the_store_asks_is_known_for_what_it_is() {
        for (statement, trap) in [
            (settle::SETTLE, Trap::Settlement),
            (settle::FINISH, Trap::Settlement),
            (claim::CLAIM, Trap::Claim),
        ] {
            let messages = [
                start(),
                message(b'P', format!("s1\0{statement}\0\0\0").as_bytes()),
                message(b'B', b"\0s1\0\0\0\0\0\0\0"),
                message(b'S', b""),
            ];
            assert!(springs(&messages, trap).is_some(), "{statement}");
        }
    }

    #[test]
    fn a_settlement_springs_at_the_sync_of_its_execution() {
        let mut messages = vec![
            start(),
            message(b'P', b"s1\0SELECT * FROM lanekeeper.settle($1)\0\0\0"),
            message(b'S', b""),
            message(b'B', b"\0s1\0\0\0\0\0\0\0"),
            message(b'E', b"\0\0\0\0\0"),
        ];
        assert_eq!(springs(&messages, Trap::Settlement), None);
        messages.push(message(b'S', b""));
        let end = messages.concat().len();
        assert_eq!(springs(&messages, Trap::Settlement), Some(end));
        assert_eq!(springs(&messages, Trap::Claim), None);
    }

    #[test]
    fn an_enqueue_commits_by_itself_only_outside_a_transaction() {
        let enqueue = [
            message(b'P', b"\0SELECT lanekeeper.enqueue($1)\0\0\0"),
            message(b'B', b"\0\0\0\0\0\0\0\0"),
            message(b'S', b""),
        ];
        let alone = [&[start()][..], &enqueue].concat();
        assert_eq!(springs(&alone, Trap::Commit), Some(alone.concat().len()));
        let inside = [&[start(), message(b'Q', b"BEGIN\0")][..], &enqueue].concat();
        assert_eq!(springs(&inside, Trap::Commit), None);
    }
}
