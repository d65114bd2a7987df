//! Puts the layers on top of each other and takes the configuration out, or every reason why not.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::Path;

use figment::Figment;
use figment::providers::Serialized;
use lanekeeper_core::error::chain;
use lanekeeper_secret::MASK;

use super::find::{self, ConfigFile, Found, Reader};
use super::problem::{ConfigError, Origin, Origins, Problem};
use super::schema::{self, Schema, Setting};
use super::settings::Config;
use super::{check, environment, file};

#[cfg(test)]
mod tests;

impl Config {
    /// Reads the file and this process's environment. A file that is `named` must exist.
    ///
    /// # Errors
    /// Everything that is wrong, each with its source.
    pub fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        load(named, std::env::vars_os())
    }

    /// As [`Config::load`], but without the working directory's file, and with what can be used of the rest; the texts
    /// say what cannot. A setting whose strongest source cannot be used is not set: a weaker one could send events to
    /// another database than was meant.
    pub fn load_for_hook(named: Option<&Path>) -> (Self, Vec<String>) {
        load_for_hook(named, std::env::vars_os())
    }
}

fn load(
    named: Option<&Path>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, ConfigError> {
    let variables: HashMap<_, _> = variables.into_iter().collect();
    let schema = Schema::new();
    let mut problems = Vec::new();
    let found = find(named, Reader::Command, &variables)?;
    let mut settings = match &found {
        Some(found) => file::read(found, &schema, &mut problems)?,
        None => Vec::new(),
    };
    settings.extend(environment::read(variables, &schema, &mut problems));
    match put_together(settings) {
        Ok(mut config) => {
            config.file = found.map(|found| found.file);
            problems.extend(check::problems(&config));
            if problems.is_empty() {
                return Ok(config);
            }
        }
        Err(wrong) => problems.extend(wrong),
    }
    Err(ConfigError::Refused(problems))
}

fn load_for_hook(
    named: Option<&Path>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> (Config, Vec<String>) {
    let variables: HashMap<_, _> = variables.into_iter().collect();
    let schema = Schema::new();
    let (mut problems, mut unusable) = (Vec::new(), Vec::new());
    let (mut settings, used) = match read_file(named, &variables, &schema, &mut problems) {
        Ok(read) => read,
        Err(error) => {
            unusable.push(chain(&error));
            (Vec::new(), None)
        }
    };
    let of_file = problems.len();
    let of_environment = environment::read(variables, &schema, &mut problems);
    settings.extend(of_environment);
    // What is wrong in the file, the environment may have right.
    leave_out(&mut settings, &problems[of_file..]);
    unusable.extend(problems.iter().map(ToString::to_string));
    loop {
        let (config, wrong) = match put_together(settings.clone()) {
            Ok(config) => {
                let wrong = check::problems(&config);
                (config, wrong)
            }
            Err(wrong) => (Config::default(), wrong),
        };
        for problem in &wrong {
            let text = problem.to_string();
            if !unusable.contains(&text) {
                unusable.push(text);
            }
        }
        // Ends: each round leaves something out.
        if !leave_out(&mut settings, &wrong) {
            return (
                Config {
                    file: used,
                    ..config
                },
                unusable,
            );
        }
    }
}

fn read_file(
    named: Option<&Path>,
    variables: &HashMap<OsString, OsString>,
    schema: &Schema,
    problems: &mut Vec<Problem>,
) -> Result<(Vec<Setting>, Option<ConfigFile>), ConfigError> {
    match find(named, Reader::Hook, variables)? {
        Some(found) => Ok((file::read(&found, schema, problems)?, Some(found.file))),
        None => Ok((Vec::new(), None)),
    }
}

/// Whether anything was left out.
fn leave_out(settings: &mut Vec<Setting>, problems: &[Problem]) -> bool {
    let before = settings.len();
    settings.retain(|setting| {
        !problems
            .iter()
            .any(|wrong| wrong.key() == Some(&setting.key))
    });
    settings.len() < before
}

fn find(
    named: Option<&Path>,
    reader: Reader,
    variables: &HashMap<OsString, OsString>,
) -> Result<Option<Found>, ConfigError> {
    let variable = |name: &str| variables.get(&OsString::from(name)).cloned();
    find::read(find::places(named, reader, variable))
}

/// The later settings over the earlier, and all over the defaults.
fn put_together(settings: Vec<Setting>) -> Result<Config, Vec<Problem>> {
    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    let mut origins = BTreeMap::new();
    let mut given = BTreeMap::new();
    for Setting { key, value, origin } in settings {
        origins.insert(key.clone(), origin);
        given.insert(key.clone(), value.clone());
        figment = figment.merge((key, value));
    }
    let origins = Origins(origins);
    let mut config = figment.extract::<Config>().map_err(|errors| {
        let problem = |error: figment::Error| {
            let key = error.path.join(".");
            let value = match given.get(&key) {
                _ if schema::is_secret(&key) => MASK.to_owned(),
                value => value.map(schema::shown).unwrap_or_default(),
            };
            Problem::Value {
                origin: origins.of(&key),
                key,
                value,
                reason: error.kind.to_string(),
            }
        };
        errors.into_iter().map(problem).collect::<Vec<_>>()
    })?;
    config.origins = origins;
    for (key, secret) in [
        ("database.url", &mut config.database.url),
        ("database.password", &mut config.database.password),
        ("redis.url", &mut config.redis.url),
    ] {
        if let Origin::SecretFile { variable, path } = config.origins.of(key) {
            *secret = secret.take().map(|secret| secret.of_file(&variable, &path));
        }
    }
    Ok(config)
}
