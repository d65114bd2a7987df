//! Connection URLs that both tokio-postgres and libpq's programs understand.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The superuser of a private server, and the name of its database.
pub(super) const NAME: &str = "lanekeeper";

/// Names the directory of the socket as a percent-encoded host.
pub(super) fn over_socket(dir: &Path, port: u16, database: &str) -> String {
    let mut host = String::new();
    for &byte in dir.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            host.push(char::from(byte));
        } else {
            write!(host, "%{byte:02X}").expect("a String takes any text");
        }
    }
    format!("postgres://{NAME}@{host}:{port}/{database}")
}

/// `password` is of characters that need no encoding.
pub(super) fn over_tcp(password: &str, port: u16) -> String {
    format!("postgres://{NAME}:{password}@127.0.0.1:{port}/{NAME}")
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::Host;

    use super::*;

    #[test]
    fn a_socket_directory_with_any_characters_comes_back_from_the_url() {
        let dir = Path::new("/home/Zoë/a b%2F@:?/run");
        let url = over_socket(dir, 5432, "lanekeeper");
        let config: tokio_postgres::Config = url.parse().unwrap();
        assert_eq!(config.get_hosts(), [Host::Unix(dir.to_owned())]);
        assert_eq!(
            (config.get_user(), config.get_dbname()),
            (Some(NAME), Some("lanekeeper"))
        );
        assert_eq!(config.get_ports(), [5432]);
    }
}
