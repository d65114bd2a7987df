//! Changes the text of a wiring file. Everything else in it stays as it is, comments and layout included.

use std::fmt::Write as _;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use jsonc_parser::errors::ParseError;
use jsonc_parser::json;
use lanekeeper_streams::hooks::double_fire::runs_hook;
use lanekeeper_streams::hooks::sent::SENT;
use lanekeeper_streams::hooks::shape::AgentCli;

use super::location::Format;

/// The plugin for OpenCode, as docs/hooks.md has it.
pub const PLUGIN: &str = include_str!("opencode.js");
/// How the plugin starts `hook`, unless another program is given.
const PLUGIN_PROGRAM: &str = r#"const program = ["lanekeeper", ["hook", "--cli", "opencode"]]"#;

/// What is done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Each event runs this program.
    Install {
        program: String,
    },
    Remove,
}

/// A changed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// `None`: the file is to be removed.
    pub text: Option<String>,
    /// Events that were registered, had another command of ours, or were taken out.
    pub added: Vec<String>,
    pub updated: Vec<String>,
    pub removed: Vec<String>,
    /// Events that ours is registered for with a matcher, so not for all calls. They are left as they are.
    pub matched: Vec<String>,
}

impl Edited {
    pub fn is_changed(&self) -> bool {
        [&self.added, &self.updated, &self.removed]
            .iter()
            .any(|events| !events.is_empty())
    }
}

/// Why a file is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("it is not JSON: {0}")]
    NotJson(#[from] ParseError),
    #[error("it is not TOML: {0}")]
    NotToml(#[from] toml::de::Error),
    #[error("{name} in it is not {kind}")]
    Shape { name: String, kind: &'static str },
    #[error("`notify` in it runs another program: {0}")]
    OtherNotify(String),
    #[error("it is a plugin that does not run `lanekeeper hook`")]
    OtherPlugin,
}

/// The file of this CLI with our hooks or without them.
pub fn edit(cli: AgentCli, text: Option<&str>, change: &Change) -> Result<Edited, Refusal> {
    match Format::of(cli) {
        Format::Groups | Format::Commands => edit_json(cli, text, change),
        Format::Notify => edit_notify(text.unwrap_or_default(), change),
        Format::Plugin => edit_plugin(text, change),
    }
}

/// A program's name or path as one word of a shell.
fn quoted(program: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "/._-+".contains(char);
    match program.chars().all(plain) {
        true => program.to_owned(),
        false => format!("'{}'", program.replace('\'', r"'\''")),
    }
}

fn wired(cli: AgentCli) -> Vec<&'static str> {
    let of_cli = SENT.iter().filter(|sent| sent.cli == cli);
    of_cli.flat_map(|sent| sent.wired()).collect()
}

fn edit_json(cli: AgentCli, text: Option<&str>, change: &Change) -> Result<Edited, Refusal> {
    let root = CstRootNode::parse(text.unwrap_or_default(), &ParseOptions::default())?;
    let shape = |name: &str, kind| Refusal::Shape {
        name: name.to_owned(),
        kind,
    };
    let file = root.object_value_or_create();
    let file = file.ok_or_else(|| shape("what is", "an object"))?;
    let mut edited = Edited::default();
    match change {
        Change::Install { program } => {
            let command = format!("{} hook --cli {cli}", quoted(program));
            if Format::of(cli) == Format::Commands && file.get("version").is_none() {
                file.insert(0, "version", json!(1));
            }
            let hooks = file.object_value_or_create("hooks");
            let hooks = hooks.ok_or_else(|| shape("`hooks`", "an object"))?;
            for event in wired(cli) {
                let entries = hooks.array_value_or_create(event);
                let entries = entries.ok_or_else(|| shape(&format!("`{event}`"), "a list"))?;
                install(cli, event, &entries, &command, &mut edited);
            }
        }
        Change::Remove => {
            if let Some(hooks) = file.object_value("hooks") {
                remove(cli, &hooks, &mut edited);
                if !edited.removed.is_empty()
                    && hooks.properties().is_empty()
                    && let Some(property) = hooks.parent()
                {
                    property.remove();
                }
            }
        }
    }
    let mut text = root.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    edited.text = Some(text);
    Ok(edited)
}

fn install(cli: AgentCli, event: &str, entries: &CstArray, command: &str, edited: &mut Edited) {
    let mut ours = entries.elements().into_iter().filter_map(|entry| {
        let entry = entry.as_object()?;
        let found = commands(cli, &entry).into_iter().next()?;
        Some((entry, found))
    });
    let Some((entry, found)) = ours.next() else {
        entries.append(match Format::of(cli) {
            Format::Commands => json!({"command": command}),
            _ => json!({"hooks": [{"type": "command", "command": command}]}),
        });
        edited.added.push(event.to_owned());
        return;
    };
    let matcher = entry.get("matcher").and_then(|matcher| matcher.value());
    let matcher = matcher.and_then(|matcher| text_of(&matcher));
    if matcher.is_some_and(|matcher| !["", "*"].contains(&&*matcher)) {
        edited.matched.push(event.to_owned());
        return;
    }
    if let Some(property) = found.get("command")
        && property
            .value()
            .and_then(|value| text_of(&value))
            .as_deref()
            != Some(command)
    {
        property.set_value(CstInputValue::from(command));
        edited.updated.push(event.to_owned());
    }
}

fn remove(cli: AgentCli, hooks: &CstObject, edited: &mut Edited) {
    for property in hooks.properties() {
        let Some(entries) = property.array_value() else {
            continue;
        };
        let mut found = false;
        for entry in entries.elements().iter().filter_map(CstNode::as_object) {
            let ours = commands(cli, &entry);
            if ours.is_empty() {
                continue;
            }
            found = true;
            match Format::of(cli) {
                Format::Commands => entry.remove(),
                _ => {
                    ours.into_iter().for_each(CstObject::remove);
                    if entry
                        .array_value("hooks")
                        .is_some_and(|hooks| hooks.elements().is_empty())
                    {
                        entry.remove();
                    }
                }
            }
        }
        if found {
            edited
                .removed
                .push(property.decoded_name().unwrap_or_default());
            if entries.elements().is_empty() {
                property.remove();
            }
        }
    }
}

/// The objects in an entry of an event whose command runs our hook for this CLI.
fn commands(cli: AgentCli, entry: &CstObject) -> Vec<CstObject> {
    let candidates = match Format::of(cli) {
        Format::Commands => vec![entry.clone()],
        _ => {
            let hooks = entry.array_value("hooks");
            let hooks = hooks.into_iter().flat_map(|hooks| hooks.elements());
            hooks.filter_map(|hook| hook.as_object()).collect()
        }
    };
    let is_ours = |candidate: &CstObject| {
        let command = candidate
            .get("command")
            .and_then(|command| text_of(&command.value()?));
        command.is_some_and(|command| runs_hook(&command, cli))
    };
    candidates.into_iter().filter(is_ours).collect()
}

fn text_of(node: &CstNode) -> Option<String> {
    node.as_string_lit()?.decoded_value().ok()
}

/// A key before the first table of a TOML file belongs to no table, so the line goes to the beginning.
fn edit_notify(text: &str, change: &Change) -> Result<Edited, Refusal> {
    const EVENT: &str = "notify";
    let file: toml::Table = toml::from_str(text)?;
    let words: Option<Vec<&str>> = file.get(EVENT).map(|notify| {
        let words = notify.as_array().into_iter().flatten();
        words.filter_map(toml::Value::as_str).collect()
    });
    let is_ours = words
        .as_deref()
        .is_some_and(|words| runs_hook(&words.join(" "), AgentCli::CodexNotify));
    if let (Some(words), false) = (&words, is_ours) {
        return match change {
            Change::Install { .. } => Err(Refusal::OtherNotify(words.join(" "))),
            Change::Remove => Ok(unchanged(text)),
        };
    }
    // Ours is one line, as we write it. Any other layout is a person's.
    let lines = text.split_inclusive('\n');
    let is_our_line = |line: &&str| {
        toml::from_str::<toml::Table>(line).is_ok_and(|of_line| {
            of_line.len() == 1
                && of_line.contains_key(EVENT)
                && of_line.get(EVENT) == file.get(EVENT)
        })
    };
    let rest: String = lines.filter(|line| !is_our_line(line)).collect();
    if is_ours && rest == text {
        return Err(Refusal::OtherNotify(words.unwrap_or_default().join(" ")));
    }
    match change {
        Change::Remove if is_ours => Ok(Edited {
            text: Some(rest),
            removed: vec![EVENT.to_owned()],
            ..Edited::default()
        }),
        Change::Remove => Ok(unchanged(text)),
        Change::Install { program } => {
            let command = [program.as_str(), "hook", "--cli", "codex-notify"];
            if words.as_deref() == Some(&command) {
                return Ok(unchanged(text));
            }
            let mut line = String::new();
            let list = toml::Value::from(command.to_vec());
            write!(line, "{EVENT} = {list}\n{rest}").expect("a String takes all");
            let event = vec![EVENT.to_owned()];
            let (added, updated) = match is_ours {
                true => (Vec::new(), event),
                false => (event, Vec::new()),
            };
            Ok(Edited {
                text: Some(line),
                added,
                updated,
                ..Edited::default()
            })
        }
    }
}

fn edit_plugin(text: Option<&str>, change: &Change) -> Result<Edited, Refusal> {
    const NAME: &str = "plugin";
    let is_ours = |text: &str| text.contains(r#"["hook", "--cli", "opencode"]"#);
    if let Some(text) = text.filter(|text| !text.trim().is_empty() && !is_ours(text)) {
        return match change {
            Change::Install { .. } => Err(Refusal::OtherPlugin),
            Change::Remove => Ok(unchanged(text)),
        };
    }
    let name = vec![NAME.to_owned()];
    match (change, text) {
        (Change::Remove, None) => Ok(Edited::default()),
        (Change::Remove, Some(_)) => Ok(Edited {
            removed: name,
            ..Edited::default()
        }),
        (Change::Install { program }, text) => {
            let start = PLUGIN_PROGRAM.replacen(
                r#""lanekeeper""#,
                &serde_json::Value::from(program.as_str()).to_string(),
                1,
            );
            let plugin = PLUGIN.replacen(PLUGIN_PROGRAM, &start, 1);
            let (added, updated) = match text {
                Some(text) if text == plugin => (Vec::new(), Vec::new()),
                Some(text) if !text.trim().is_empty() => (Vec::new(), name),
                _ => (name, Vec::new()),
            };
            Ok(Edited {
                text: Some(plugin),
                added,
                updated,
                ..Edited::default()
            })
        }
    }
}

fn unchanged(text: &str) -> Edited {
    Edited {
        text: Some(text.to_owned()),
        ..Edited::default()
    }
}

#[cfg(test)]
mod tests;
