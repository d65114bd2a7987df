//! Pages by keyset: at most `limit` rows, and a cursor for the next page, which is the place of the last row. It is absent
//! on the last page.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::caller::unreadable;
use crate::problem::Problem;

/// Rows of a page, unless asked for fewer or more.
const ROWS: i64 = 100;
/// The most rows of a page.
pub(super) const MOST: i64 = 1_000;

/// The parameters of a query.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(unreadable(&rejection)),
        }
    }
}

/// The names or ids in the path.
pub(super) struct Named<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(rejection) => Err(unreadable(&rejection)),
        }
    }
}

/// How many rows are asked for.
///
/// # Errors
/// More than there may be on a page of at most `most`, or none.
pub(super) fn limit(asked: Option<i64>, most: i64) -> Result<i64, Problem> {
    match asked.unwrap_or(ROWS.min(most)) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(unreadable(&format!("limit takes 1 to {most}"))),
    }
}

/// A cursor that is an id.
///
/// # Errors
/// It is none of ours.
pub(super) fn id(cursor: Option<&str>) -> Result<Option<i64>, Problem> {
    cursor
        .map(|cursor| cursor.parse().map_err(|_| no_cursor()))
        .transpose()
}

/// A cursor that no page had.
pub(super) fn no_cursor() -> Problem {
    unreadable(&"the cursor is none of a page of this list")
}

/// The rows that were asked for out of those read, one more of which is there if there is a next page.
pub(super) fn cut<T>(rows: &mut Vec<T>, limit: i64) -> bool {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    has_more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_row_at_least_and_no_more_than_there_may_be() {
        assert_eq!(limit(None, MOST).ok(), Some(100));
        assert_eq!(limit(None, 50).ok(), Some(50));
        assert_eq!(limit(Some(1_000), MOST).ok(), Some(1_000));
        for bad in [0, -1, 1_001, i64::MIN] {
            assert!(limit(Some(bad), MOST).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_row_more_than_asked_for_says_that_there_is_a_next_page() {
        let mut rows = vec![1, 2, 3];
        assert!(cut(&mut rows, 2));
        assert_eq!(rows, [1, 2]);
        assert!(!cut(&mut rows, 2));
    }
}
