//! What pages are made of.

pub(crate) mod act;
pub(crate) mod badge;
pub(crate) mod command;
pub(crate) mod format;
pub(crate) mod lane_table;
pub(crate) mod link;
pub(crate) mod spark;
