//! How a command ends when it does not succeed.

use std::error::Error;
use std::process::ExitCode;

type Cause = Box<dyn Error + Send + Sync>;

/// A failed command: its exit code, the chain of causes, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// `None` where there is nobody left to read it.
    cause: Option<Cause>,
    advice: Option<String>,
}

impl Failure {
    const FAILED: u8 = 1;
    pub(super) const USAGE: u8 = 2;
    /// `EX_TEMPFAIL` of sysexits.h.
    const LATER: u8 = 75;

    /// The exit codes of all commands with their meanings.
    pub const EXIT_CODES: [(u8, &'static str); 4] = [
        (0, "Done."),
        (Self::FAILED, "Failed; standard error says why."),
        (
            Self::USAGE,
            "Wrong usage or configuration; nothing was tried.",
        ),
        (
            Self::LATER,
            "It failed for now: the same call may succeed later.",
        ),
    ];

    /// Wrong usage or configuration.
    pub fn usage(cause: impl Into<Cause>) -> Self {
        Self {
            code: Self::USAGE,
            cause: Some(cause.into()),
            advice: None,
        }
    }

    /// It was tried and did not work.
    pub fn failed(cause: impl Into<Cause>) -> Self {
        Self {
            code: Self::FAILED,
            cause: Some(cause.into()),
            advice: None,
        }
    }

    /// It did not work now and may work later, unchanged.
    pub fn later(cause: impl Into<Cause>) -> Self {
        Self {
            code: Self::LATER,
            cause: Some(cause.into()),
            advice: None,
        }
    }

    /// The reader of standard output closed it: a success without a message.
    pub(super) fn reader_gone() -> Self {
        Self {
            code: 0,
            cause: None,
            advice: None,
        }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// As people read it; `None` where there is nobody left to.
    pub(super) fn text(&self) -> Option<String> {
        let cause = self.cause.as_deref()?;
        let mut text = format!("error: {cause}");
        let mut deeper = cause.source();
        while let Some(cause) = deeper {
            text.push_str(&format!("\n  caused by: {cause}"));
            deeper = cause.source();
        }
        if let Some(advice) = &self.advice {
            text.push_str(&format!("\n  do: {advice}"));
        }
        Some(text)
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        Self::from(failure.code)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_chain_is_printed_from_the_outside_in_with_the_advice_last() {
        let failure =
            Failure::failed(Outer(io::Error::other("inner"))).advise("try something else");
        assert_eq!(
            failure.text().as_deref(),
            Some("error: outer\n  caused by: inner\n  do: try something else")
        );
    }

    #[test]
    fn a_reader_that_left_is_told_nothing() {
        let failure = Failure::reader_gone();
        assert_eq!(failure.text(), None);
        assert_eq!(ExitCode::from(&failure), ExitCode::SUCCESS);
    }
}
