//! Reads the hosts of a connection string.

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Each host with its port, as messages name a server: no user, no password.
pub fn servers(driver: &Config) -> String {
    let ports = driver.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts = driver.get_hosts().iter().enumerate();
    let servers = hosts.map(|(at, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(at)),
        Host::Unix(path) => format!("{}:{}", path.display(), port(at)),
    });
    servers.collect::<Vec<_>>().join(",")
}

/// Whether there is nothing to connect to: the driver finds it out with the first connection only.
pub(super) fn are_absent(driver: &Config) -> bool {
    let nameless = |host: &Host| matches!(host, Host::Tcp(name) if name.is_empty());
    match driver.get_hosts() {
        [] => driver.get_hostaddrs().is_empty(),
        // A host by its address may do without a name.
        hosts => hosts.iter().any(nameless) && driver.get_hostaddrs().is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ConnectionString;

    fn parsed(text: &str) -> ConnectionString {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    #[test]
    fn a_text_that_is_no_connection_string_is_refused_with_what_to_write() {
        for (text, told) in [
            ("localhost:5432", "neither a URL nor words"),
            ("db.example", "neither a URL nor words"),
            ("postgres//me:hunter2@db", "neither a URL nor words"),
            ("mysql://me:hunter2@db/app", "begins with postgres://"),
            (
                "postgresql+asyncpg://me:hunter2@db",
                "begins with postgres://",
            ),
            ("postgres://", "it names no host"),
            ("postgres:///app", "it names no host"),
            ("user=me password=hunter2", "it names no host"),
            ("", "it names no host"),
        ] {
            let error = text.parse::<ConnectionString>().unwrap_err().to_string();
            assert!(error.contains(told), "{text:?}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        for text in [
            "hostaddr=127.0.0.1",
            "host=/run/pg",
            "postgres://%2Frun%2Fpg/app",
        ] {
            parsed(text);
        }
    }

    #[test]
    fn a_server_is_named_by_each_host_with_its_port() {
        for (text, named) in [
            ("postgres://me:pw@a,b:6000/app", "a:5432,b:6000"),
            ("host=a,b port=1", "a:1,b:1"),
            ("host=/run/pg user=me password=pw", "/run/pg:5432"),
        ] {
            assert_eq!(servers(&parsed(text).driver), named);
        }
    }
}
