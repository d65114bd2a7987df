//! The subscription file: what it asks for, judged by the adapters that it names, and the difference between that
//! and what is in force. No SQL here; `postgres::subscription` reads and writes the rows.

mod agent;
mod contradiction;
mod delivery;
mod file;
mod limit;
mod plan;
mod polled;
mod schema;
mod section;
mod settings;
mod source;
mod source_plan;
mod source_value;
mod step;
mod value;

pub use delivery::DeliverySection;
pub use file::{RetrySection, StreamSection, SubscriptionFile, SubscriptionSection};
pub use source::SourceSection;

#[cfg(test)]
mod tests;
