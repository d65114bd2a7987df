//! Everything that needs the real binary or a real PostgreSQL.

mod apply;
mod binary;
mod config;
mod database;
