//! Subscriptions as their users write them: the file, what it asks for, and the difference between
//! that and what is in force. No SQL here; `store::subscription` reads and writes the rows.

pub mod built_in;
mod change;
mod contradiction;
mod definition;
mod duration;
mod file;
pub mod limit;
mod plan;
mod problem;
mod section;
mod settings;
mod value;

pub use change::{Change, ChangeKind, FieldChange, Target};
pub use definition::{Definition, Events, Exhaustion, Retry, Start, StreamDefinition};
pub use file::{RetrySection, StreamSection, SubscriptionFile, SubscriptionSection};
pub use limit::Limit;
pub use plan::{Current, Existing, Plan, Step};
pub use problem::{FileError, Problem};

#[cfg(test)]
mod tests;
