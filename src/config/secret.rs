//! Values that must not be printed, and how a URL looks without its password.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};
use tokio_postgres::config::Host;

use super::ConnectionString;
use super::secret_file::SecretFile;

/// Shown in place of what is secret.
pub(super) const MASK: &str = "***";

/// A value that neither `Debug` nor serialisation shows.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct Secret {
    value: String,
    /// Where it was read, if it may be replaced there.
    file: Option<SecretFile>,
}

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            file: None,
        }
    }

    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// It was read from this file, which `variable` names.
    #[must_use]
    pub fn of_file(self, variable: &str, path: &Path) -> Self {
        let file = SecretFile::new(variable.to_owned(), path, &self.value);
        Self {
            file: Some(file),
            ..self
        }
    }

    /// Whether it may change while the process runs.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// The secret as its file holds it now, or as it was last when that could be used. `judge` says why a new
    /// value cannot be, without repeating it.
    pub async fn current(&self, judge: impl FnOnce(&str) -> Result<(), String>) -> Self {
        let value = match &self.file {
            Some(file) => file.read(judge).await,
            None => self.value.clone(),
        };
        Self {
            value,
            file: self.file.clone(),
        }
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// User, hosts and database of a PostgreSQL URL or key-value string. Built from what is known to
/// be harmless rather than by cutting the password out, so that no spelling of it slips through.
pub(super) fn masked_postgres_url(url: &str) -> String {
    let Ok(ConnectionString { driver, ssl }) = url.parse() else {
        return MASK.to_owned();
    };
    let config = driver;
    let user = config.get_user().unwrap_or_default();
    let credentials = match (user, config.get_password()) {
        ("", None) => String::new(),
        (user, None) => format!("{user}@"),
        (user, Some(_)) => format!("{user}:{MASK}@"),
    };
    let ports = config.get_ports();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        })
        .collect();
    let database = config.get_dbname().unwrap_or(user);
    let mode = ssl.mode.map(|mode| format!("?sslmode={}", mode.as_str()));
    format!(
        "postgres://{credentials}{}/{database}{}",
        hosts.join(","),
        mode.unwrap_or_default()
    )
}

/// Redis URLs without passwords and queries, which may hold one too.
pub(super) fn masked_redis_url(urls: &str) -> String {
    let masked: Vec<String> = urls.split(',').map(|url| masked_one(url.trim())).collect();
    masked.join(",")
}

fn masked_one(url: &str) -> String {
    let Ok(mut url) = url::Url::parse(url) else {
        return MASK.to_owned();
    };
    url.set_query(None);
    if url.password().is_some() && url.set_password(Some(MASK)).is_err() {
        return MASK.to_owned();
    }
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_postgres_url_keeps_host_user_and_database_and_loses_its_password() {
        for (url, shown) in [
            (
                "postgres://me:pw@db.example:6000/app",
                "postgres://me:***@db.example:6000/app",
            ),
            (
                "postgres://me@db.example/app?password=pw",
                "postgres://me:***@db.example:5432/app",
            ),
            (
                "host=a,b port=1,2 user=me password=pw dbname=app",
                "postgres://me:***@a:1,b:2/app",
            ),
            (
                "postgres://me@db.example/app?sslmode=verify-full&sslkey=/k",
                "postgres://me@db.example:5432/app?sslmode=verify-full",
            ),
            (
                "postgres://me@db.example",
                "postgres://me@db.example:5432/me",
            ),
        ] {
            assert_eq!(masked_postgres_url(url), shown, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_parsed_is_masked_whole() {
        assert_eq!(masked_postgres_url("postgres//me:pw@db"), MASK);
        assert_eq!(masked_redis_url("pw"), MASK);
    }

    #[test]
    fn a_redis_url_loses_password_and_query() {
        assert_eq!(
            masked_redis_url("redis://:pw@a:1, redis://:pw@b:2/"),
            "redis://:***@a:1,redis://:***@b:2/"
        );
        assert_eq!(
            masked_redis_url("redis://:pw@cache:6379/0"),
            "redis://:***@cache:6379/0"
        );
        assert_eq!(
            masked_redis_url("redis+unix:///run/r.sock?pass=pw"),
            "redis+unix:///run/r.sock"
        );
    }

    #[tokio::test]
    async fn a_secret_follows_its_file_as_far_as_that_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "first\n").unwrap();
        let secret = Secret::new("first").of_file("PW_FILE", &path);
        let judge = |text: &str| match text {
            "bad" => Err("it is bad".to_owned()),
            _ => Ok(()),
        };
        for (written, current) in [
            ("second\r\n", "second"),
            ("", "second"),
            (" \n", "second"),
            ("bad", "second"),
            ("third", "third"),
        ] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(secret.current(judge).await.expose(), current, "{written:?}");
        }
        std::fs::remove_file(&path).unwrap();
        let last = secret.clone().current(judge).await;
        assert_eq!(last.expose(), "third", "copies share what was read");
        assert_eq!(format!("{last:?}"), MASK);
        assert_eq!(secret.expose(), "first");
        let fixed = Secret::new("fixed").current(|_| Ok(())).await;
        assert_eq!((fixed.expose(), fixed.is_in_file()), ("fixed", false));
    }

    #[test]
    fn a_secret_shows_itself_in_neither_debug_nor_json() {
        let secret = Secret::new("pw");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.expose(), "pw");
    }
}
