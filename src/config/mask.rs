//! How URLs look without their passwords.

use lanekeeper_postgres::connection::{ConnectionString, servers};
use lanekeeper_secret::MASK;

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
    let database = config.get_dbname().unwrap_or(user);
    let mode = ssl.mode.map(|mode| format!("?sslmode={}", mode.as_str()));
    format!(
        "postgres://{credentials}{}/{database}{}",
        servers(&config),
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
}
