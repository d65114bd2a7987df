//! The hook calls that the demo makes, and the expected result of each.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use lanekeeper_streams::hooks::call::Call;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_streams::hooks::double_fire::cursor_reports_itself;
use lanekeeper_streams::hooks::origin::Origin;
use lanekeeper_streams::hooks::shape::AgentCli;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::Failure;

/// Calls of made-up sessions in the shapes that the CLIs send.
const OWN: &str = include_str!("sessions.jsonl");

/// One call of an agent CLI.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Line {
    pub(super) cli: String,
    pub(super) payload: Box<RawValue>,
}

/// The calls of a session, in their order.
pub(super) struct Session {
    pub(super) calls: Vec<Line>,
}

/// All calls by session, and what `lanekeeper hook` makes of them.
pub(super) struct Input {
    pub(super) sessions: Vec<Session>,
    /// Calls by the name of the session in the log.
    pub(super) calls: BTreeMap<String, usize>,
    /// The CLI of each session in the log.
    pub(super) cli: BTreeMap<String, String>,
    /// Calls that `hook` does not record, by event type.
    pub(super) not_recorded: BTreeMap<String, usize>,
}

impl Input {
    /// Reads the folder's *.jsonl, or the program's own calls. `home` is that of the calls.
    pub(super) fn read(folder: Option<&Path>, home: &Path) -> Result<Self, Failure> {
        let mut lines = Vec::new();
        match folder {
            None => parse(OWN, Path::new("sessions.jsonl"), &mut lines)?,
            Some(folder) => {
                for path in files(folder)? {
                    let text = std::fs::read_to_string(&path)
                        .map_err(|error| unreadable(&path, &error))?;
                    parse(&text, &path, &mut lines)?;
                }
            }
        }
        if lines.is_empty() {
            let folder = folder.unwrap_or(Path::new("")).display();
            return Err(Failure::usage(format!(
                "{folder} has no *.jsonl with hook calls"
            )));
        }
        Ok(Self::of(lines, home))
    }

    fn of(lines: Vec<Line>, home: &Path) -> Self {
        let (config, origin) = (HookConfig::default(), Origin::now());
        let mut input = Self {
            sessions: Vec::new(),
            calls: BTreeMap::new(),
            cli: BTreeMap::new(),
            not_recorded: BTreeMap::new(),
        };
        let mut indices: HashMap<String, usize> = HashMap::new();
        for line in lines {
            let (session, not_recorded) = fate(&line, &config, &origin, home);
            if let Some(why) = not_recorded {
                *input.not_recorded.entry(why).or_default() += 1;
            }
            *input.calls.entry(session.clone()).or_default() += 1;
            let cli = line.cli.clone();
            input.cli.entry(session.clone()).or_insert(cli);
            let index = *indices.entry(session).or_insert(input.sessions.len());
            if index == input.sessions.len() {
                input.sessions.push(Session { calls: Vec::new() });
            }
            input.sessions[index].calls.push(line);
        }
        input
    }

    pub(super) fn all_calls(&self) -> usize {
        self.sessions
            .iter()
            .map(|session| session.calls.len())
            .sum()
    }

    /// Events that must be in the log when every call was made.
    pub(super) fn recorded(&self) -> usize {
        self.all_calls() - self.not_recorded.values().sum::<usize>()
    }
}

/// The session that a call belongs to, and why it is not recorded if it is not.
fn fate(
    line: &Line,
    config: &HookConfig,
    origin: &Origin,
    home: &Path,
) -> (String, Option<String>) {
    // `hook` refuses it, and exits 0 all the same.
    let Ok(cli) = line.cli.parse::<AgentCli>() else {
        let session = format!("unknown CLI {}", line.cli);
        return (session, Some("unknown CLI".to_owned()));
    };
    let call = Call::read(cli, line.payload.get().as_bytes(), true, origin, config);
    let is_double = call.through_claude_code && cursor_reports_itself(&call.fields, Some(home));
    let (session, event_type) = (call.record.session, call.record.event_type);
    let is_recorded = config.allows(&event_type) && !is_double;
    (session, (!is_recorded).then_some(event_type))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(folder, &error))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn parse(text: &str, path: &Path, lines: &mut Vec<Line>) -> Result<(), Failure> {
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        lines.push(serde_json::from_str(line).map_err(|error| {
            Failure::usage(format!("{}:{}: {error}", path.display(), number + 1))
        })?);
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_programs_own_is_recorded() {
        let input = Input::read(None, Path::new("/nonexistent")).ok().unwrap();
        assert_eq!(input.all_calls(), input.calls.values().sum::<usize>());
        assert!(input.not_recorded.is_empty(), "{:?}", input.not_recorded);
        assert_eq!(input.recorded(), input.all_calls());
    }

    #[test]
    fn calls_of_a_session_stay_in_their_order_and_with_their_cli() {
        let line = |session: &str, n: u32| {
            format!(
                r#"{{"cli":"codex","payload":{{"session_id":"{session}","hook_event_name":"Stop","n":{n}}}}}"#
            )
        };
        let unknown = r#"{"cli":"new","payload":{}}"#.to_owned();
        let text = [
            line("a", 1),
            line("b", 2),
            line("a", 3),
            unknown,
            String::new(),
        ]
        .join("\n");
        let mut lines = Vec::new();
        parse(&text, Path::new("f"), &mut lines).ok().unwrap();
        let input = Input::of(lines, Path::new("/nonexistent"));
        let payloads = |index: usize| -> Vec<char> {
            let calls = input.sessions[index].calls.iter();
            calls
                .map(|line| line.payload.get().chars().rev().nth(1).unwrap())
                .collect()
        };
        assert_eq!((payloads(0), payloads(1)), (vec!['1', '3'], vec!['2']));
        assert_eq!(input.cli["a"], "codex");
        assert_eq!((input.all_calls(), input.recorded()), (4, 3));
    }
}
