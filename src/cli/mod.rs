//! One file per command.

pub mod hook;
pub mod spool;
