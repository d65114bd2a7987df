//! The subscription model: what a subscription is, what a change of it is, and the subscriptions that Lanekeeper
//! makes itself. No file, no SQL: the crate `subscription` reads the file, `postgres` reads and writes the rows.

pub mod agent;
pub mod built_in;
mod change;
mod definition;
mod delivery;
pub mod duration;
pub mod limit;
mod pending;
mod plan;
mod problem;

pub use change::{Change, ChangeKind, FieldChange, Target, differences};
pub use definition::{
    Acknowledge, Definition, EventSchema, Events, Exhaustion, FrameAcknowledge, Retry, Start,
    StreamDefinition,
};
pub use delivery::DeliveryDefaults;
pub use limit::Limit;
pub use pending::{MessageStage, OnFull, PendingBound};
pub use plan::{Current, Existing, Plan, Step};
pub use problem::{FileError, Problem};
