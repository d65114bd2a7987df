//! What all parts speak of: events, deliveries and verdicts, rates, the subscription model. No I/O, but for
//! reading a small file safely and judging a folder.

pub mod a2a;
pub mod a2a_part;
pub mod adapter;
pub mod bounded_file;
pub mod bucket;
pub mod cloudevent;
pub mod envelope;
pub mod error;
pub mod event;
pub mod fleet;
pub mod frame;
pub mod memory;
pub mod network;
pub mod observed;
pub mod own_folder;
pub mod redact;
mod section;
pub mod source;
pub mod subscription;
pub mod terminal;
pub mod toml_file;
pub mod trace;
