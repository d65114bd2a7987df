//! `lanekeeper hook install` and `lanekeeper hook remove`: the hook settings of agent CLIs.
//!
//! Each CLI has a file of its own, which people edit too. Ours is added to what is there or taken out again; a file
//! that cannot be read as what it must be is left alone. A file is replaced in one step: an agent that starts meanwhile
//! reads the old one or the new one.

mod edit;
mod location;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_core::bounded_file::{BoundedFile, Links, ReadError};
use lanekeeper_core::error::chain;
use lanekeeper_streams::hooks::shape::AgentCli;
use serde::Serialize;

use self::edit::{Change, Edited, Refusal, edit};
pub use self::location::{Scope, path, shown};
use crate::Failure;
use crate::output::{self, Output, OutputArgs};

/// Larger than this and it is no file that a person wrote.
const MAX_FILE_BYTES: u64 = 1 << 20;
const NEW_FILE_MODE: u32 = 0o644;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Install(InstallArgs),
    Remove(RemoveArgs),
}

/// Write our hooks into the settings of an agent CLI
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is in the file stays as it is, comments included. Run again, it changes nothing; after an update of lanekeeper it
adds events that are new.

Examples:
  lanekeeper hook install --cli claude-code
  lanekeeper hook install --cli gemini --scope project --dry-run")]
pub struct InstallArgs {
    #[command(flatten)]
    target: Target,
    /// Take them out again, as `hook remove` does
    #[arg(long)]
    remove: bool,
}

/// Take our hooks out of the settings of an agent CLI
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lanekeeper hook remove --cli claude-code")]
pub struct RemoveArgs {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
struct Target {
    /// claude-code, codex, codex-notify, gemini, cursor, opencode or qwen
    #[arg(long, value_name = "NAME")]
    cli: AgentCli,
    /// Whose sessions are reported
    #[arg(long, value_enum, default_value_t, value_name = "SCOPE")]
    scope: Scope,
    /// Print the file as it would be, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, thiserror::Error)]
enum WiringError {
    #[error("there is no file for {cli} in a project: it reads its user's only")]
    NoProjectFile { cli: AgentCli },
    #[error("HOME is not set to a directory")]
    NoHome,
    #[error("{} is left as it is", .path.display())]
    Refused { path: PathBuf, source: Refusal },
    #[error("{} cannot be read", .path.display())]
    Read { path: PathBuf, source: ReadError },
    #[error("{} cannot be written, and is as it was", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("this program's own path is not known")]
    Program(#[source] io::Error),
}

#[derive(Serialize)]
struct Report<'a> {
    cli: &'a str,
    file: &'a Path,
    dry_run: bool,
    changed: bool,
    added: &'a [String],
    updated: &'a [String],
    removed: &'a [String],
    matched: &'a [String],
}

pub fn run(command: Command) -> Result<ExitCode, Failure> {
    let (target, removes) = match command {
        Command::Install(InstallArgs { target, remove }) => (target, remove),
        Command::Remove(RemoveArgs { target }) => (target, true),
    };
    let path = path(target.cli, target.scope).ok_or_else(|| {
        Failure::usage(match target.scope {
            Scope::User => WiringError::NoHome,
            Scope::Project => WiringError::NoProjectFile { cli: target.cli },
        })
    })?;
    let change = match removes {
        true => Change::Remove,
        false => Change::Install {
            program: program().map_err(|error| Failure::failed(WiringError::Program(error)))?,
        },
    };
    let before = read(&path, target.scope).map_err(Failure::failed)?;
    let edited = edit(
        target.cli,
        before.as_ref().map(|file| file.text.as_str()),
        &change,
    )
    .map_err(|source| {
        let path = path.clone();
        Failure::failed(WiringError::Refused { path, source })
            .advise("mend or move the file, or add the hooks by hand: docs/hooks.md has them")
    })?;
    if edited.is_changed() && !target.dry_run {
        write(&path, before.as_ref(), edited.text.as_deref()).map_err(Failure::failed)?;
    }
    say(&target, &path, &edited, removes)
}

/// The user's file for this CLI, if it has our hooks.
pub fn installed(cli: AgentCli) -> Option<PathBuf> {
    let path = path(cli, Scope::User)?;
    let file = read(&path, Scope::User).ok()??;
    let edited = edit(cli, Some(&file.text), &Change::Remove).ok()?;
    edited.is_changed().then_some(path)
}

fn say(target: &Target, path: &Path, edited: &Edited, removes: bool) -> Result<ExitCode, Failure> {
    match target.output.output {
        Output::Json => output::json_line(&Report {
            cli: target.cli.name(),
            file: path,
            dry_run: target.dry_run,
            changed: edited.is_changed(),
            added: &edited.added,
            updated: &edited.updated,
            removed: &edited.removed,
            matched: &edited.matched,
        })?,
        Output::Text => {
            let verb = if target.dry_run { "would be " } else { "" };
            let file = shown(path);
            for (events, what) in [
                (&edited.added, "registered"),
                (&edited.updated, "updated"),
                (&edited.removed, "taken out"),
            ] {
                if !events.is_empty() {
                    output::line(format!("{file}: {verb}{what}: {}", events.join(", ")))?;
                }
            }
            if !edited.is_changed() {
                let what = if removes {
                    "has none of our hooks"
                } else {
                    "has our hooks already"
                };
                output::line(format!("{file} {what}; it is unchanged"))?;
            }
            if target.dry_run
                && let Some(text) = &edited.text
            {
                output::line(text.trim_end())?;
            }
        }
    }
    if !edited.matched.is_empty() {
        output::note(format!(
            "with a matcher, so not for every call, and left as they are: {}",
            edited.matched.join(", ")
        ));
    }
    if !removes {
        advise(target);
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person must still do before calls are reported.
fn advise(target: &Target) {
    match (target.cli, target.scope) {
        (AgentCli::Codex, _) => output::note(
            "Codex runs no hook that is not trusted: start `codex` once as this user and trust them (/hooks)",
        ),
        (AgentCli::Gemini, Scope::Project) => output::note(
            "Gemini takes nothing from a folder that is not trusted: trust it once in its terminal UI, or set \
             GEMINI_CLI_TRUST_WORKSPACE=true in CI",
        ),
        _ => {}
    }
    let (config, _) = Config::load_for_hook(None);
    match crate::way(&config) {
        Ok(Some(_)) => {}
        Ok(None) => output::note(
            "`hook` knows no database yet, and keeps calls in its spool: set database.url in \
             ~/.config/lanekeeper/lanekeeper.toml, or LANEKEEPER_URL and LANEKEEPER_TOKEN where agents start",
        ),
        Err(error) => output::note(format!(
            "`hook` cannot use its configuration, and keeps calls in its spool: {}",
            chain(&error)
        )),
    }
}

/// How the CLI is to start this program: by its name where that leads here.
fn program() -> io::Result<String> {
    let this = std::env::current_exe()?.canonicalize()?;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&paths)
        .map(|folder| folder.join("lanekeeper"))
        .find(|path| path.is_file());
    let is_first = first.and_then(|path| path.canonicalize().ok()) == Some(this.clone());
    Ok(match is_first {
        true => "lanekeeper".to_owned(),
        false => this.display().to_string(),
    })
}

struct Existing {
    text: String,
    /// Where a link leads.
    target: PathBuf,
    mode: u32,
}

/// A user's files may be links, into a repository of settings for example. In a project they are refused: it may be
/// somebody else's.
fn read(path: &Path, scope: Scope) -> Result<Option<Existing>, WiringError> {
    let failed = |source| WiringError::Read {
        path: path.to_owned(),
        source,
    };
    let links = match scope {
        Scope::User => Links::Followed,
        Scope::Project => Links::Refused,
    };
    let folders = path
        .ancestors()
        .skip(1)
        .filter(|at| at.file_name().is_some());
    if scope == Scope::Project && folders.into_iter().any(Path::is_symlink) {
        return Err(failed(ReadError::Link));
    }
    let file = match BoundedFile::open(path, links) {
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mode = file.metadata().permissions().mode() & 0o777;
    let text = file.read(MAX_FILE_BYTES).map_err(failed)?;
    let target = path
        .canonicalize()
        .map_err(ReadError::from)
        .map_err(failed)?;
    Ok(Some(Existing { text, target, mode }))
}

fn write(path: &Path, before: Option<&Existing>, text: Option<&str>) -> Result<(), WiringError> {
    let failed = |source| WiringError::Write {
        path: path.to_owned(),
        source,
    };
    let target = before.map_or(path, |file| &file.target);
    let Some(text) = text else {
        return fs::remove_file(path).map_err(failed);
    };
    let folder = target.parent().unwrap_or(Path::new("."));
    let mode = before.map_or(NEW_FILE_MODE, |file| file.mode);
    fs::create_dir_all(folder)
        .and_then(|()| replace(target, text, mode))
        .map_err(failed)
}

fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&new)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| {
        // It may not be there. What failed is told.
        let _ = fs::remove_file(&new);
    })
}
