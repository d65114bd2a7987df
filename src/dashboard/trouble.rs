//! Why a page or an action was not to be had.

use axum::http::StatusCode;
use lanekeeper_http::problem::Problem;
use lanekeeper_postgres::inspect::FindError;
use lanekeeper_postgres::{ErrorClass, StoreError};

/// What a visitor is told instead.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nobody has signed in. `asked_by_other_site`: the browser sent no cookie because a link of another site was
    /// followed, and sends it when the page is opened once more.
    SignInFirst { asked_by_other_site: bool },
    /// The page comes back by itself.
    PostgresAway,
    Told {
        status: StatusCode,
        title: &'static str,
        detail: String,
        hint: Option<String>,
    },
}

impl Trouble {
    pub(crate) fn told(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self::Told {
            status,
            title,
            detail: detail.into(),
            hint: None,
        }
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::NOT_FOUND, "Not found", detail)
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::BAD_REQUEST, "This address is not valid", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::FORBIDDEN, "Not allowed", detail)
    }
}

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Self {
        match problem.problem_type().status {
            StatusCode::SERVICE_UNAVAILABLE => Self::PostgresAway,
            status => Self::Told {
                status,
                title: status.canonical_reason().unwrap_or("Error"),
                detail: problem.detail().to_owned(),
                hint: problem.advice().map(str::to_owned),
            },
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        let code = error.sqlstate();
        // Data exceptions: a NUL in a name, say.
        if code.is_some_and(|code| code.starts_with("22")) {
            return Self::invalid("Postgres does not take a name or a text of this request.");
        }
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a page of the dashboard cannot be made"
        );
        match error.class() {
            ErrorClass::ConnectionLost | ErrorClass::Retryable => Self::PostgresAway,
            ErrorClass::Permanent => Self::told(
                StatusCode::INTERNAL_SERVER_ERROR,
                "This page cannot be made",
                "A statement failed; the worker's log says which. No event is concerned.",
            ),
        }
    }
}

impl From<FindError> for Trouble {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Store(error) => error.into(),
            other => Self::not_found(format!("{other}.")),
        }
    }
}
