//! Where each agent CLI looks for its hooks.

use std::env;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use lanekeeper_streams::hooks::shape::AgentCli;

/// Whose sessions are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// All sessions of this user
    #[default]
    User,
    /// Sessions in the current directory, by whoever works in it
    Project,
}

/// What a wiring file is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON with `hooks`, by event a list of groups, each with `hooks` of its own.
    Groups,
    /// JSON with `version` and `hooks`, by event a list of commands.
    Commands,
    /// `notify` of Codex's TOML file.
    Notify,
    /// A plugin, which is a file of our own.
    Plugin,
}

impl Format {
    pub fn of(cli: AgentCli) -> Self {
        match cli {
            AgentCli::ClaudeCode | AgentCli::Codex | AgentCli::Gemini | AgentCli::Qwen => {
                Self::Groups
            }
            AgentCli::Cursor => Self::Commands,
            AgentCli::CodexNotify => Self::Notify,
            AgentCli::OpenCode => Self::Plugin,
        }
    }
}

/// The file that a CLI reads. `None`: there is no such file, because the environment names no home, or because the CLI
/// has none for a project.
pub fn path(cli: AgentCli, scope: Scope) -> Option<PathBuf> {
    match scope {
        Scope::User => user_path(cli, |name| env::var_os(name).map(PathBuf::from)),
        Scope::Project => project_path(cli).map(PathBuf::from),
    }
}

fn project_path(cli: AgentCli) -> Option<&'static str> {
    Some(match cli {
        AgentCli::ClaudeCode => ".claude/settings.json",
        AgentCli::Codex => ".codex/hooks.json",
        AgentCli::CodexNotify => return None,
        AgentCli::Gemini => ".gemini/settings.json",
        AgentCli::Cursor => ".cursor/hooks.json",
        AgentCli::OpenCode => ".opencode/plugins/lanekeeper.js",
        AgentCli::Qwen => ".qwen/settings.json",
    })
}

fn user_path(cli: AgentCli, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| path.is_absolute());
    let in_home = |path: &str| Some(set("HOME")?.join(path));
    let own = |name: &str, default: &str| set(name).or_else(|| in_home(default));
    let file = |folder: Option<PathBuf>, name: &str| Some(folder?.join(name));
    match cli {
        AgentCli::ClaudeCode => file(own("CLAUDE_CONFIG_DIR", ".claude"), "settings.json"),
        AgentCli::Codex => file(own("CODEX_HOME", ".codex"), "hooks.json"),
        AgentCli::CodexNotify => file(own("CODEX_HOME", ".codex"), "config.toml"),
        AgentCli::Gemini => in_home(".gemini/settings.json"),
        AgentCli::Cursor => in_home(".cursor/hooks.json"),
        AgentCli::OpenCode => file(
            own("XDG_CONFIG_HOME", ".config"),
            "opencode/plugins/lanekeeper.js",
        ),
        AgentCli::Qwen => in_home(".qwen/settings.json"),
    }
}

/// As people read it: a path below the home directory begins with `~`.
pub fn shown(path: &Path) -> String {
    let below = env::var_os("HOME").and_then(|home| Some(path.strip_prefix(home).ok()?.to_owned()));
    match below {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_file_is_where_the_cli_looks_for_it() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/a"));
        let moved = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/a")),
            "CODEX_HOME" => Some(PathBuf::from("/x")),
            // Not absolute: the CLIs do not take it either.
            "CLAUDE_CONFIG_DIR" => Some(PathBuf::from("here")),
            _ => None,
        };
        let of = |cli, variable: &dyn Fn(&str) -> Option<PathBuf>| {
            user_path(cli, variable).map(|path| path.display().to_string())
        };
        let is = |path: &str| Some(path.to_owned());
        assert_eq!(of(AgentCli::Codex, &home), is("/home/a/.codex/hooks.json"));
        assert_eq!(of(AgentCli::Codex, &moved), is("/x/hooks.json"));
        assert_eq!(of(AgentCli::CodexNotify, &moved), is("/x/config.toml"));
        assert_eq!(
            of(AgentCli::ClaudeCode, &moved),
            is("/home/a/.claude/settings.json")
        );
        assert_eq!(
            of(AgentCli::OpenCode, &home),
            is("/home/a/.config/opencode/plugins/lanekeeper.js")
        );
        assert_eq!(of(AgentCli::Cursor, &|_| None), None);
    }
}
