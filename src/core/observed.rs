//! What an adapter noticed of a delivery beside its verdict: figures and spans tell causes apart by it.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

/// Why a destination gave no answer, or none that says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was no answer in time.
    Timeout,
    ConnectionRefused,
    /// The connection broke before there was an answer.
    ConnectionReset,
    /// The host's name has no address.
    NameResolution,
    /// No secure connection was made: mostly, the certificate is not trusted.
    Tls,
    /// No way leads to the host.
    Unreachable,
    /// The host's address is private, and the worker's configuration does not allow that.
    PrivateAddress,
    /// A program ended with another exit code than 0, or by a signal.
    ExitStatus,
    /// The adapter or the handler panicked.
    Panic,
}

impl Cause {
    const ALL: [Self; 9] = [
        Self::Timeout,
        Self::ConnectionRefused,
        Self::ConnectionReset,
        Self::NameResolution,
        Self::Tls,
        Self::Unreachable,
        Self::PrivateAddress,
        Self::ExitStatus,
        Self::Panic,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionReset => "connection_reset",
            Self::NameResolution => "name_resolution",
            Self::Tls => "tls",
            Self::Unreachable => "unreachable",
            Self::PrivateAddress => "private_address",
            Self::ExitStatus => "exit_status",
            Self::Panic => "panic",
        }
    }
}

/// Written while the delivery runs, read afterwards.
#[derive(Debug, Default)]
pub struct Observed {
    status: AtomicU16,
    /// Its position in `Cause::ALL`, from 1.
    cause: AtomicU8,
}

impl Observed {
    /// The destination answered with this HTTP status.
    pub fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub fn failed_by(&self, cause: Cause) {
        let position = Cause::ALL.iter().position(|known| *known == cause);
        let number = position.and_then(|at| u8::try_from(at + 1).ok());
        self.cause.store(number.unwrap_or(0), Ordering::Relaxed);
    }

    /// Has another one say the same.
    pub fn tell(&self, other: &Self) {
        if let Some(status) = self.status() {
            other.answered(status);
        }
        if let Some(cause) = self.cause() {
            other.failed_by(cause);
        }
    }

    pub fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    pub fn cause(&self) -> Option<Cause> {
        let number = usize::from(self.cause.load(Ordering::Relaxed));
        Cause::ALL.get(number.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noticed_is_what_is_read() {
        let observed = Observed::default();
        assert_eq!((observed.status(), observed.cause()), (None, None));
        for cause in Cause::ALL {
            observed.failed_by(cause);
            assert_eq!(observed.cause(), Some(cause));
        }
        observed.answered(503);
        assert_eq!(observed.status(), Some(503));
    }
}
