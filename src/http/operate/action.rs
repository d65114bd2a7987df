//! What actions have in common.

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::operate_many::Many;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::{Caller, unreadable};
use crate::problem::Problem;
use crate::problem_type;

/// Characters of a reason.
const LONGEST_REASON: usize = 1_000;

/// Why something is done.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Why {
    /// For the record.
    #[schemars(length(max = LONGEST_REASON))]
    pub(super) reason: Option<String>,
}

/// As it stands on record.
///
/// # Errors
/// It is too long, or Postgres cannot hold it.
pub(super) fn reason(caller: &Caller, given: Option<&str>) -> Result<String, Problem> {
    let given = given.map(str::trim).filter(|given| !given.is_empty());
    let is_bad = |given: &str| given.chars().count() > LONGEST_REASON || given.contains('\0');
    if given.is_some_and(is_bad) {
        let detail = format!("a reason has at most {LONGEST_REASON} characters, and no NUL");
        return Err(unreadable(&detail));
    }
    Ok(caller.reason(given))
}

/// Why an action on a lane was refused.
pub(super) fn refused(error: &StoreError) -> Problem {
    Problem::of_operation(error, problem_type::LANE_BUSY)
}

/// What was not done.
#[derive(Serialize, JsonSchema)]
pub(super) struct Left {
    /// Nothing was done with them: their lanes are busy or take none. The action may be repeated for them.
    pub(super) left: Vec<i64>,
    /// Why, for the first of them that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_because: Option<String>,
}

/// What came of many; refused where nothing was done at all.
///
/// # Errors
/// Every one was refused.
pub(super) fn some<T>(many: Many<T>) -> Result<(Vec<(i64, T)>, Left), Problem> {
    let Many { done, left, failed } = many;
    let failed = failed.map(|error| refused(&error));
    match failed {
        Some(problem) if done.is_empty() => Err(problem),
        failed => Ok((
            done,
            Left {
                left,
                left_because: failed.map(|problem| problem.detail().to_owned()),
            },
        )),
    }
}
