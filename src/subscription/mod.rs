//! Subscriptions as their users write them: the file, what it asks for, and the difference between
//! that and what is in force. No SQL here; `store::subscription` reads and writes the rows.

mod definition;
mod duration;
mod file;
mod plan;
mod problem;
mod section;
mod value;

pub use definition::{Definition, Events, Exhaustion, Retry, Start, StreamDefinition};
pub use file::{RetrySection, StreamSection, SubscriptionFile, SubscriptionSection};
pub use plan::{Change, ChangeKind, Current, Existing, FieldChange, Plan, Step, Target};
pub use problem::{FileError, Problem};
