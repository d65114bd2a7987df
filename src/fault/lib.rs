//! What tests have the program do wrong: end or hang at a named place, or do without a line that keeps an invariant.
//!
//! Only with the cargo feature `crash-points`; nothing in a release has it.

mod crash_point;
mod hang;
mod mutation;

pub use crash_point::CrashPoint;
pub use hang::Hang;
pub use mutation::Mutation;
