//! Values that are of the right type and still impossible, alone or together.
//!
//! A bound is where a process would fail or do harm, never what somebody thought sensible.

mod range;

use std::ops::RangeInclusive;
use std::str::FromStr as _;

use lanekeeper_postgres::connection::{ConnectionString, SslMode, SslParameters};
use lanekeeper_secret::{MASK, Secret};
use tracing_subscriber::EnvFilter;

use super::{Config, Problem};

/// The server frees the locks of a vanished node after this long at the earliest.
const LOCKS_FREED_AFTER_MS: u64 = 10_000;
const REDIS_SCHEMES: [&str; 5] = ["redis", "rediss", "redis+unix", "valkey", "valkeys"];

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let mut check = Check {
        config,
        problems: Vec::new(),
    };
    range::check(&mut check);
    check.relations();
    check.texts();
    check.problems
}

pub(super) struct Check<'c> {
    pub(super) config: &'c Config,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn refuse(&mut self, key: &str, value: impl ToString, reason: impl Into<String>) {
        self.problems.push(Problem::Value {
            key: key.to_owned(),
            value: value.to_string(),
            origin: self.config.origins.of(key),
            reason: reason.into(),
        });
    }

    pub(super) fn range(&mut self, key: &str, value: u64, allowed: RangeInclusive<u64>, why: &str) {
        if !allowed.contains(&value) {
            let (least, most) = (allowed.start(), allowed.end());
            self.refuse(
                key,
                value,
                format!("must be between {least} and {most}: {why}"),
            );
        }
    }

    fn relations(&mut self) {
        let worker = &self.config.worker;
        let frozen = worker.frozen_after_ms;
        if worker.heartbeat_ms.saturating_mul(3) > frozen {
            self.refuse(
                "worker.frozen_after_ms",
                frozen,
                format!(
                    "must be at least three times worker.heartbeat_ms = {}: one late heartbeat would \
                     end a healthy worker",
                    worker.heartbeat_ms
                ),
            );
        }
        let freed_after = frozen.min(LOCKS_FREED_AFTER_MS);
        if worker.trust_ms >= freed_after {
            self.refuse(
                "worker.trust_ms",
                worker.trust_ms,
                format!(
                    "must be less than {freed_after}, after which others may hold its lanes: two \
                     workers would deliver one session"
                ),
            );
        }
        if worker.mark_after_ms >= worker.trust_ms {
            self.refuse(
                "worker.mark_after_ms",
                worker.mark_after_ms,
                format!("must be less than worker.trust_ms = {}", worker.trust_ms),
            );
        }
        if worker.max_lanes > 0 && worker.lane_connections > worker.max_lanes {
            self.refuse(
                "worker.lane_connections",
                worker.lane_connections,
                format!(
                    "must not exceed worker.max_lanes = {}: the rest would hold nothing",
                    worker.max_lanes
                ),
            );
        }
    }

    fn texts(&mut self) {
        let Config {
            database,
            redis,
            log,
            hook,
            retention,
            worker,
            dashboard,
            ..
        } = self.config;
        if let Some(label) = &worker.host_label
            && !is_host_label(label)
        {
            self.refuse(
                "worker.host_label",
                format!("{label:?}"),
                "must be 1 to 255 bytes without spaces and slashes; leave it away for the machine's name",
            );
        }
        if let Some(template) = &dashboard.trace_url {
            let is_page = template.starts_with("https://") || template.starts_with("http://");
            if !is_page || !template.contains("{trace_id}") {
                let reason = "must be the http or https address of a trace with {trace_id} in it";
                self.refuse("dashboard.trace_url", template, reason);
            }
        }
        if let Some(folder) = &retention.archive_dir
            && folder.as_os_str().is_empty()
        {
            self.refuse(
                "retention.archive_dir",
                "\"\"",
                "must be a folder; leave it away where nothing is to be archived",
            );
        }
        if let Some(folder) = &worker.attachments_dir
            && !folder.is_absolute()
        {
            self.refuse(
                "worker.attachments_dir",
                folder.display().to_string(),
                "must be a folder's absolute path: agents get the paths of the files",
            );
        }
        match database.url.as_ref().map(postgres_url) {
            Some(Err(error)) => self.refuse(
                "database.url",
                MASK,
                format!("must be a PostgreSQL URL: {error}"),
            ),
            // The two together, since one counts where the other is silent.
            Some(Ok(ssl)) => {
                if let Err(error) = ssl.or(database.ssl()).check() {
                    let mode = database.sslmode.map_or("", SslMode::as_str);
                    self.refuse("database.sslmode", mode, error.to_string());
                }
            }
            None => {}
        }
        let addresses = redis.url.as_ref().map_or("", Secret::expose);
        for address in addresses.split(',').filter(|_| redis.url.is_some()) {
            match url::Url::parse(address.trim()) {
                Err(error) => {
                    let reason = format!("must be a URL such as redis://HOST:6379: {error}");
                    self.refuse("redis.url", MASK, reason);
                }
                Ok(url) if !REDIS_SCHEMES.contains(&url.scheme()) => {
                    let schemes = REDIS_SCHEMES.join(", ");
                    self.refuse(
                        "redis.url",
                        MASK,
                        format!("must begin with one of {schemes}: write redis://HOST:6379"),
                    );
                }
                Ok(_) => {}
            }
        }
        // It is a hash tag between braces.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if redis.prefix.is_empty() || !redis.prefix.chars().all(plain) {
            self.refuse(
                "redis.prefix",
                &redis.prefix,
                "must be letters, digits, _ - . :",
            );
        }
        if let Err(error) = EnvFilter::try_new(&log.filter) {
            self.refuse("log.filter", &log.filter, error.to_string());
        }
        if let Some(entry) = hook.allow.iter().find(|entry| entry.trim().is_empty()) {
            self.refuse(
                "hook.allow",
                format!("{entry:?}"),
                "an event type must not be empty",
            );
        }
    }
}

/// What the URL says of TLS.
fn postgres_url(url: &Secret) -> Result<SslParameters, String> {
    match ConnectionString::from_str(url.expose()) {
        Ok(string) => Ok(string.ssl),
        // The innermost cause names options, never their values.
        Err(error) => {
            let mut innermost: &dyn std::error::Error = &error;
            while let Some(cause) = innermost.source() {
                innermost = cause;
            }
            Err(innermost.to_string())
        }
    }
}

/// As `lanekeeper.bind_session` takes it.
fn is_host_label(label: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
    (1..=255).contains(&label.len()) && label.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> Vec<String> {
        let mut config = Config::default();
        change(&mut config);
        problems(&config).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_value_outside_its_range_is_refused_with_key_value_source_and_reason() {
        assert_eq!(
            refused(|config| config.worker.poll_floor_ms = 0),
            [
                "default: worker.poll_floor_ms = 0: must be between 1 and 60000: 0 would ask \
                 without pause, and more leaves work lying when notifications fail"
            ]
        );
        assert_eq!(refused(|config| config.retention.days = 0).len(), 1);
    }

    #[test]
    fn a_trust_window_that_outlives_the_locks_is_refused() {
        let found = refused(|config| config.worker.trust_ms = 10_000);
        assert!(found[0].contains("must be less than 10000"), "{found:?}");
        let found = refused(|config| {
            config.worker.heartbeat_ms = 1_000;
            config.worker.frozen_after_ms = 5_000;
        });
        assert!(found[0].contains("must be less than 5000"), "{found:?}");
    }

    #[test]
    fn one_late_heartbeat_must_not_look_frozen() {
        let found = refused(|config| config.worker.heartbeat_ms = 10_001);
        assert!(
            found[0].starts_with("default: worker.frozen_after_ms = 30000"),
            "{found:?}"
        );
    }

    #[test]
    fn tls_that_cannot_be_kept_is_refused_whether_the_url_says_it_or_not() {
        let found = refused(|config| {
            config.database.url = Some(Secret::new("postgres://db?sslrootcert=system"));
            config.database.sslmode = Some(SslMode::Require);
        });
        assert!(found[0].contains("database.sslmode = require"), "{found:?}");
        assert!(found[0].contains("verify-full"), "{found:?}");
        let found = refused(|config| {
            config.database.url = Some(Secret::new("postgres://db?sslmode=full"));
        });
        assert!(found[0].contains("sslmode must be"), "{found:?}");
    }

    #[test]
    fn an_archive_nowhere_is_refused() {
        let found = refused(|config| config.retention.archive_dir = Some("".into()));
        assert!(found[0].contains("must be a folder"), "{found:?}");
        assert_eq!(
            refused(|config| config.retention.archive_dir = Some("a".into())).len(),
            0
        );
    }

    #[test]
    fn attachments_at_a_relative_path_are_refused() {
        for folder in ["", "files"] {
            let found = refused(|config| config.worker.attachments_dir = Some(folder.into()));
            assert!(found[0].contains("absolute path"), "{found:?}");
        }
        assert_eq!(
            refused(|config| config.worker.attachments_dir = Some("/srv/files".into())).len(),
            0
        );
    }

    #[test]
    fn a_log_filter_that_does_not_parse_is_refused() {
        assert_eq!(
            refused(|config| config.log.filter = "info,[".into()).len(),
            1
        );
    }
}
