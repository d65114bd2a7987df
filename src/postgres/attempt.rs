//! One attempt to connect: it tries one host after the other, each for its part of the time (`host`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls, Socket};

use crate::host::{Host, Silent, part};
use crate::tls::{Connector, Stream, TlsError};

/// What drives a client.
pub type Connection = tokio_postgres::Connection<Socket, Stream>;

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct Failed {
    pub error: Error,
    /// The server was reached and does not offer the TLS that is demanded.
    pub lacked_tls: bool,
}

impl Failed {
    pub(super) async fn silent() -> Self {
        Self {
            error: silence().await,
            lacked_tls: false,
        }
    }

    /// No other host is asked: it would be asked with the same user for the same database.
    fn is_final(&self) -> bool {
        let code = self.error.code().map(SqlState::code);
        code.is_some_and(|code| code.starts_with("28") || code.starts_with("3D"))
    }
}

/// Whether nobody answered in time.
pub(super) fn is_silence(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref());
    cause.is_some_and(|io: &io::Error| io.kind() == io::ErrorKind::TimedOut)
}

/// The settings of an attempt.
pub(super) struct Attempt<'a> {
    pub driver: &'a Config,
    pub tls: &'a Connector,
    pub silent: &'a Silent,
    /// When the time for all hosts together is over.
    pub until: Instant,
    /// The most time for one host, even if more is left.
    pub most_per_host: Duration,
}

impl Attempt<'_> {
    pub async fn connect(&self) -> Result<(Client, Connection), Failed> {
        let Some(mut hosts) = Host::all(self.driver) else {
            let once = timeout_at(self.until, self.try_once(self.driver)).await;
            return match once {
                Ok(ended) => ended,
                Err(_) => Err(Failed::silent().await),
            };
        };
        self.silent.put_last(&mut hosts, |host| (host.index, None));
        let mut why = None;
        for (asked, host) in hosts.iter().enumerate() {
            let left = hosts.len() - asked;
            let limit = part(self.until, left).min(self.most_per_host);
            match self.try_host(host, limit).await {
                Err(failed) if !failed.is_final() => {
                    self.note(host, is_silence(&failed.error), limit, left > 1);
                    prefer(&mut why, failed);
                }
                ended => {
                    self.silent.leave((host.index, None));
                    return ended;
                }
            }
        }
        Err(why.expect("a connection string without a host is the driver's to refuse"))
    }

    async fn try_host(&self, host: &Host, limit: Duration) -> Result<(Client, Connection), Failed> {
        let until = Instant::now() + limit;
        let Ok(found) = timeout_at(until, host.addresses(self.driver)).await else {
            return Err(Failed::silent().await);
        };
        let mut addresses = found.unwrap_or_default();
        if addresses.is_empty() {
            // The driver looks once more, and says what is wrong with the name.
            addresses.push(None);
        }
        self.silent
            .put_last(&mut addresses, |address| (host.index, *address));
        let mut why = None;
        for (asked, address) in addresses.iter().enumerate() {
            let limit = part(until, addresses.len() - asked);
            let alone = host.settings(self.driver, *address, limit);
            let failed = match timeout(limit, self.try_once(&alone)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(failed)) => failed,
                Err(_) => Failed::silent().await,
            };
            if failed.is_final() {
                return Err(failed);
            }
            if is_silence(&failed.error) {
                self.silent.enter((host.index, *address));
            }
            prefer(&mut why, failed);
        }
        Err(why.expect("there is an address"))
    }

    /// Without TLS after it failed, where `sslmode=prefer` allows that.
    async fn try_once(&self, driver: &Config) -> Result<(Client, Connection), Failed> {
        let tls = self.tls.anew();
        let mode = driver.get_ssl_mode();
        let error = match driver.connect(tls.clone()).await {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        if mode == SslMode::Prefer && tls.was_used() && may_go_without_tls(&error) {
            let mut plain = driver.clone();
            plain.ssl_mode(SslMode::Disable);
            if let Ok(connected) = plain.connect(tls.clone()).await {
                return Ok(connected);
            }
        }
        let is_io = std::error::Error::source(&error).is_some_and(|cause| cause.is::<io::Error>());
        let lacked_tls = mode == SslMode::Require
            && !tls.was_used()
            && error.code().is_none()
            && !error.is_closed()
            && !is_io;
        Err(Failed { error, lacked_tls })
    }

    fn note(&self, host: &Host, is_silent: bool, limit: Duration, others: bool) {
        if !is_silent {
            self.silent.leave((host.index, None));
        } else if self.silent.enter((host.index, None)) && others {
            tracing::warn!(
                host = host.told(),
                waited_ms = limit.as_millis() as u64,
                "a host of database.url does not answer; the others are tried before it for some seconds"
            );
        }
    }
}

/// Keeps the newest reason, but none that is only silence instead of an answer.
fn prefer(why: &mut Option<Failed>, failed: Failed) {
    if why.is_none() || !is_silence(&failed.error) {
        *why = Some(failed);
    }
}

fn may_go_without_tls(error: &Error) -> bool {
    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
        || TlsError::of(error).is_some()
}

/// The driver's error for a server that does not answer. Its errors cannot be made but by a connection that fails.
async fn silence() -> Error {
    struct Silence;
    impl AsyncRead for Silence {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        }
    }
    let mut nobody = Config::new();
    nobody.user("nobody").ssl_mode(SslMode::Disable);
    let stream = tokio::io::join(Silence, tokio::io::sink());
    match nobody.connect_raw(stream, NoTls).await {
        Err(error) => error,
        Ok(_) => unreachable!("nothing can be read from it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn silence_is_told_from_other_errors_and_never_hides_one() {
        let refused = || async {
            let nowhere: Config = "host=/nonexistent user=nobody".parse().unwrap();
            let error = nowhere.connect(NoTls).await.map(drop).unwrap_err();
            Failed {
                error,
                lacked_tls: false,
            }
        };
        let silent = Failed::silent().await;
        assert!(is_silence(&silent.error));
        assert!(!is_silence(&refused().await.error));
        let mut why = None;
        prefer(&mut why, refused().await);
        prefer(&mut why, silent);
        assert!(!is_silence(&why.unwrap().error));
        let mut why = Some(Failed::silent().await);
        prefer(&mut why, refused().await);
        assert!(!is_silence(&why.unwrap().error));
    }
}
