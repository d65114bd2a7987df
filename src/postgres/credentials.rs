//! User and password of a database whose connection string stands in a file, which may be replaced while the
//! process runs.
//!
//! Only these two are followed. A worker whose connections led to two servers, or to two databases of one, would
//! hold a lane in one and deliver it from the other: whoever moves the database starts its workers again.

use lanekeeper_secret::Secret;
use tokio_postgres::Config;

use crate::connection::{ConnectionString, ConnectionStringError};

#[derive(Clone, Debug)]
pub(super) struct Credentials {
    string: Secret,
    /// What it said when the process started.
    first: ConnectionString,
}

impl Credentials {
    /// `None`: it stands in no file.
    pub(super) fn of(string: &Secret) -> Result<Option<Self>, ConnectionStringError> {
        if !string.is_in_file() {
            return Ok(None);
        }
        Ok(Some(Self {
            first: string.expose().parse()?,
            string: string.clone(),
        }))
    }

    /// These settings with the credentials of now.
    pub(super) async fn on(&self, driver: &Config) -> Config {
        let string = self.string.current(|text| self.judge(text)).await;
        let mut renewed = driver.clone();
        // It was judged, now or before.
        if let Ok(now) = string.expose().parse::<ConnectionString>() {
            take(&mut renewed, &now.driver);
        }
        renewed
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
