//! The only place with SQL.

pub mod connect;
pub mod error;
pub mod migrate;
pub mod subscription;

pub use error::{ErrorClass, StoreError};
