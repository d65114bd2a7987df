//! The only place with SQL.
//!
//! `engine` and `cli` call these functions; they know tables and statements by name only. Errors
//! say which operation failed and what that means for what was to be written ([`ErrorClass`]).

pub mod a2a;
pub mod a2a_agent;
pub mod append;
pub mod appender;
pub mod archive;
mod attempt;
pub mod claim;
pub mod closing;
pub mod config;
pub mod connect;
pub mod connection;
mod credentials;
pub mod ctid;
pub mod database;
pub mod deadline;
pub mod diagnose;
pub mod document;
pub mod durable;
pub mod error;
pub mod fetch;
pub mod first_ready_entry;
pub mod follow;
pub mod frames;
mod host;
pub mod host_route;
pub mod inbound;
pub mod inspect;
pub mod interrupt;
pub mod lane_connection;
pub mod limit_pause;
pub mod log;
pub mod log_follow;
pub mod maintenance;
pub mod message_count;
pub mod migrate;
pub mod operate;
pub mod operate_many;
pub mod pool;
pub mod preview;
pub mod projection;
pub mod queue_full;
pub mod receiver;
pub mod registry;
pub mod replay;
pub mod replayed;
pub mod report;
pub mod requeued;
pub mod response;
pub mod sent;
pub mod sent_message;
pub mod seq_conflict;
pub mod settle;
pub mod sign_in;
pub mod source;
pub mod sqlstate;
pub mod subscription;
pub mod surplus;
pub mod terminal;
pub mod tls;
pub mod token;
pub mod worker;

pub use database::Database;
pub use error::{ErrorClass, Refusal, StoreError};
