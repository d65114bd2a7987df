//! Reads user and password again when the file with the connection string or the password is replaced while the process
//! runs.
//!
//! Nothing else of the connection string is read again. If a worker's connections led to two servers, or to two
//! databases of one server, it would lock a lane in one and deliver it from the other. So a worker must be restarted
//! when its database moves.

use lanekeeper_secret::Secret;
use tokio_postgres::Config;

use crate::connection::{ConnectionString, ConnectionStringError};

#[derive(Clone, Debug)]
pub(super) struct Credentials {
    /// The connection string, if it stands in a file.
    string: Option<StringFile>,
    /// For a connection string without one.
    password: Option<Secret>,
}

#[derive(Clone, Debug)]
struct StringFile {
    string: Secret,
    /// What it said when the process started.
    first: ConnectionString,
}

impl Credentials {
    /// `None`: the connection string says all there is to know, once and for all.
    pub(super) fn of(
        string: &Secret,
        password: Option<&Secret>,
    ) -> Result<Option<Self>, ConnectionStringError> {
        let file = match string.is_in_file() {
            true => Some(StringFile {
                first: string.expose().parse()?,
                string: string.clone(),
            }),
            false => None,
        };
        let credentials = Self {
            string: file,
            password: password.cloned(),
        };
        let is_needed = credentials.string.is_some() || credentials.password.is_some();
        Ok(is_needed.then_some(credentials))
    }

    /// These settings with the credentials of now.
    pub(super) async fn on(&self, driver: &Config) -> Config {
        let mut renewed = driver.clone();
        if let Some(file) = &self.string {
            file.renew(&mut renewed).await;
        }
        if let Some(password) = &self.password
            && renewed.get_password().is_none()
        {
            renewed.password(password.current(|_| Ok(())).await.expose());
        }
        renewed
    }
}

impl StringFile {
    async fn renew(&self, driver: &mut Config) {
        let string = self.string.current(|text| self.judge(text)).await;
        // It was judged, now or before.
        if let Ok(now) = string.expose().parse::<ConnectionString>() {
            take(driver, &now.driver);
        }
    }

    fn judge(&self, text: &str) -> Result<(), String> {
        let now: ConnectionString = text
            .parse()
            .map_err(|error: ConnectionStringError| error.to_string())?;
        let mut expected = self.first.driver.clone();
        take(&mut expected, &now.driver);
        if expected == now.driver && self.first.ssl == now.ssl {
            return Ok(());
        }
        let reason = "it differs in more than user and password, which alone are followed while a process runs: \
                      start the process again";
        Err(reason.to_owned())
    }
}

fn take(into: &mut Config, from: &Config) {
    if let Some(user) = from.get_user() {
        into.user(user);
    }
    if let Some(password) = from.get_password() {
        into.password(password);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_beside_the_string_counts_where_that_has_none_and_follows_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let odd = r"it's \ a %41 'password'";
        std::fs::write(&path, "changed later\n").unwrap();
        let password = Secret::new(odd).of_file("PASSWORD_FILE", &path);
        for (string, expected) in [
            ("host=db user=me", "changed later"),
            ("postgres://me:own@db", "own"),
        ] {
            let string = Secret::new(string);
            let driver: Config = string.expose().parse().unwrap();
            let credentials = Credentials::of(&string, Some(&password)).unwrap().unwrap();
            let now = credentials.on(&driver).await;
            assert_eq!(now.get_password(), Some(expected.as_bytes()));
        }
        let (string, fixed) = (Secret::new("host=db"), Secret::new(odd));
        let credentials = Credentials::of(&string, Some(&fixed)).unwrap().unwrap();
        let now = credentials.on(&"host=db".parse().unwrap()).await;
        assert_eq!(now.get_password(), Some(odd.as_bytes()));
        assert!(Credentials::of(&string, None).unwrap().is_none());
    }
}
