//! `lanekeeper init`: the two files that an installation begins with.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lanekeeper_config::Config;

use super::Failure;
use super::output;

const SETTINGS: &str = "lanekeeper.toml";
const SUBSCRIPTIONS: &str = "subscriptions.toml";
/// Secrets may be written into it.
const SETTINGS_MODE: u32 = 0o600;
const SUBSCRIPTIONS_MODE: u32 = 0o644;
const WIDTH: usize = 100;

/// Write a commented lanekeeper.toml and subscriptions.toml
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file that is there already is left as it is.

Example:
  lanekeeper init && lanekeeper dev -f subscriptions.toml")]
pub struct Args {
    /// The folder that they go to; it is created
    #[arg(default_value = ".")]
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::failed(format!("{} cannot be written: {error}", path.display()))
    };
    std::fs::create_dir_all(&args.dir).map_err(|error| failed(&args.dir, error))?;
    let files = [
        (SETTINGS, settings(), SETTINGS_MODE),
        (
            SUBSCRIPTIONS,
            include_str!("init/subscriptions.toml").to_owned(),
            SUBSCRIPTIONS_MODE,
        ),
    ];
    for (name, text, mode) in files {
        let path = args.dir.join(name);
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path);
        match opened.and_then(|mut file| file.write_all(text.as_bytes())) {
            Ok(()) => output::line(format!("{} written", path.display()))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                output::note(format!(
                    "{} is there already, and unchanged",
                    path.display()
                ));
            }
            Err(error) => return Err(failed(&path, error)),
        }
    }
    output::note(
        "next: `lanekeeper dev -f subscriptions.toml`, or set database.url and run `lanekeeper migrate`",
    );
    Ok(ExitCode::SUCCESS)
}

/// Every setting with its meaning and its default, commented out.
fn settings() -> String {
    let mut text = String::from(
        "# Settings of Lanekeeper. Every line that begins with `#` and a key shows that key's default.\n\
         # The environment counts more than this file: LANEKEEPER_<SECTION>__<KEY>. `lanekeeper config` prints what counts.\n",
    );
    for section in Config::described() {
        write!(text, "\n# {}\n[{}]\n", section.about, section.name).expect("a String takes all");
        for setting in section.settings {
            for line in wrapped(setting.meaning) {
                writeln!(text, "# {line}").expect("a String takes all");
            }
            let key = setting
                .key
                .trim_start_matches(section.name)
                .trim_start_matches('.');
            let value = match (setting.default.as_deref(), setting.unit) {
                (Some(default), _) => as_toml(default),
                (None, "list") => "[]".to_owned(),
                (None, _) => as_toml(""),
            };
            writeln!(text, "#{key} = {value}").expect("a String takes all");
        }
    }
    text
}

/// A default as `docs/reference/settings.md` prints it, as a TOML value.
fn as_toml(default: &str) -> String {
    let is_value = |text: &str| {
        toml::from_str::<toml::Table>(&format!("key = {text}")).is_ok_and(|table| table.len() == 1)
    };
    match is_value(default) {
        true => default.to_owned(),
        false => toml::Value::from(default).to_string(),
    }
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use lanekeeper_subscription::SubscriptionFile;

    use super::*;

    #[test]
    fn the_settings_are_a_file_that_changes_nothing() {
        let file: toml::Table = toml::from_str(&settings()).unwrap();
        for (section, settings) in file {
            assert!(settings.as_table().unwrap().is_empty(), "{section}");
        }
    }

    #[test]
    fn every_default_without_its_mark_is_toml() {
        let with_defaults: String = settings()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let file: toml::Table = toml::from_str(&with_defaults).unwrap();
        assert_eq!(file["worker"]["lane_connections"].as_integer(), Some(2));
        assert_eq!(file["http"]["listen"].as_str(), Some("127.0.0.1:8080"));
    }

    #[test]
    fn the_subscriptions_are_a_file_for_apply() {
        let text = include_str!("init/subscriptions.toml");
        SubscriptionFile::parse(text, SUBSCRIPTIONS).unwrap();
        let all: String = text
            .lines()
            .map(|line| match line.strip_prefix("#") {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        SubscriptionFile::parse(&all, SUBSCRIPTIONS).unwrap();
    }
}
