//! Why a rebuild ends before its switch.

use super::super::connection::Failure;
use crate::StoreError;

/// Why a projection was not rebuilt. Readers see what they saw before.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(
        "the subscription names no tables, so nothing can be rebuilt: add tables = [\"…\"] to it and apply"
    )]
    NoTables,
    #[error("{0}")]
    Missing(String),
    #[error("other tables refer to the read model, and a switch would take their rows along: {0}")]
    Referred(String),
    #[error("there is a schema {0} that is not Lanekeeper's: rename it")]
    ForeignShadow(String),
    #[error("another process rebuilds it")]
    Busy,
    #[error(
        "the log does not have everything that the projection was given, because its oldest days were dropped or it does not \
         start at the earliest event: a rebuild would lose that. Pass --partial to rebuild from what there is"
    )]
    Incomplete,
    #[error(
        "the function changes a table of the readers by its qualified name: write the table's name alone, so that a rebuild \
         can lead it to other tables. Nothing was changed"
    )]
    Touches,
    #[error(
        "the function appends events, which subscriptions would get once more: nothing was appended or changed. Leave the \
         appending to a subscription of its own, and rebuild then"
    )]
    Appends,
    #[error(
        "the function, its tables or what the subscription says of them changed while it was rebuilt: readers see what they \
         saw. Rebuild again, which begins anew"
    )]
    Changed,
    #[error("event {seq} of session {session:?}: {failure}")]
    Event {
        session: String,
        seq: i64,
        failure: Failure,
    },
    #[error("the projection's role cannot be used: {0}")]
    Role(Failure),
    #[error(
        "the projection was being fed for a minute without a pause, so it was not switched: try again, it goes on from here"
    )]
    NotSwitched,
    #[error(transparent)]
    Store(#[from] StoreError),
}
