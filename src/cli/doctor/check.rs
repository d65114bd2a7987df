//! The result of one check.

use serde::Serialize;

use crate::Failure;
use crate::output;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    /// Works, and may not for long or not well.
    Warn,
    /// Does not work, or not as promised.
    Fail,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub check: &'static str,
    pub status: Status,
    pub found: String,
    /// What to do; absent where there is nothing to do.
    pub advice: Option<String>,
}

impl Check {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Ok,
            found: found.into(),
            advice: None,
        }
    }

    pub(super) fn warn(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            check,
            status: Status::Warn,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    pub(super) fn fail(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Fail,
            ..Self::warn(check, found, advice)
        }
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        let advice = match &self.advice {
            Some(advice) => format!("; do: {advice}"),
            None => String::new(),
        };
        let found = output::plain(&self.found);
        let status = self.status.as_str();
        output::line(format!("{status:4}  {}: {found}{advice}", self.check))
    }
}
