//! docs/reference/commands.md, generated from the program's argument parser.

use std::fmt::Write as _;

use clap::Command;

use super::{keep, page, table};

/// Columns, whatever terminal the test runs in.
const WIDTH: usize = 100;

/// The same for all: without the options that only print help, and without values of this environment.
fn plain(command: Command) -> Command {
    command
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .mut_args(|argument| argument.hide_env_values(true))
        .mut_subcommands(plain)
}

fn ends(command: &mut Command, path: &str, pages: &mut Vec<(String, String)>) {
    let help = command.render_long_help().to_string();
    pages.push((path.to_owned(), help));
    for below in command.get_subcommands_mut() {
        if !below.is_hide_set() {
            let path = format!("{path} {}", below.get_name());
            ends(below, &path, pages);
        }
    }
}

#[test]
fn the_page_of_the_commands_is_what_the_program_takes() {
    let mut program = plain(lanekeeper_cli::command())
        .disable_version_flag(true)
        // Said once, at the top.
        .mut_arg("config", |argument| argument.global(false))
        // Commands that print data declare it again.
        .mut_arg("output", |argument| argument.global(false))
        .term_width(WIDTH);
    program.build();
    let mut text = page(
        "Commands",
        "What `--help` says for each command. `--config FILE` may stand at any command, and `-h` prints a shorter help. \
         [Errors](errors.md#exit-codes) has the exit codes.",
    );
    let rows = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string);
            [
                format!("[`{name}`](#lanekeeper-{name})"),
                about.unwrap_or_default().replace('\n', " "),
            ]
        });
    let list = table(["command", "purpose"], rows);
    text.push_str(&list);
    let mut pages = Vec::new();
    ends(&mut program, "lanekeeper", &mut pages);
    for (path, help) in pages {
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        let help = help.join("\n");
        write!(text, "\n## {path}\n\n```text\n{}\n```\n", help.trim()).unwrap();
    }
    keep("commands", &text);
}
