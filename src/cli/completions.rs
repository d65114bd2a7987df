//! `lanekeeper completions` and `lanekeeper man`: made from the tree of commands, so they know what this release knows.

use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::Shell;

use super::Failure;
use super::output;

/// Print a script that completes commands and options in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper completions bash > ~/.local/share/bash-completion/completions/lanekeeper
  lanekeeper completions zsh > \"${fpath[1]}/_lanekeeper\"
  lanekeeper completions fish > ~/.config/fish/completions/lanekeeper.fish")]
pub struct Args {
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &Args, mut tree: clap::Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut tree, "lanekeeper", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Write man pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lanekeeper man --dir ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The folder that they go to; it is created
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub fn man(args: &ManArgs, tree: clap::Command) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(tree, &args.dir))
        .map_err(|error| {
            Failure::failed(format!(
                "man pages cannot be written to {}: {error}",
                args.dir.display()
            ))
        })?;
    output::note(format!("man pages are in {}", args.dir.display()));
    Ok(ExitCode::SUCCESS)
}
