//! The configuration: finds every setting, and checks it.
//!
//! A section that configures one crate is declared by that crate; those of the commands `worker` and `dev`, which
//! put several crates together, are declared here.
//!
//! Layers, the later over the earlier: the sections' defaults; one file (`find`); `DATABASE_URL`, `REDIS_URL`,
//! `RUST_LOG` and libpq's `PGSSL…`; `LANEKEEPER_<SECTION>__<KEY>`. A secret may instead be given as the path of a file
//! that holds it, by the same variable with `_FILE` appended; it is read again where the secret is used next.
//!
//! A loaded [`Config`] is possible: unknown keys, values of the wrong type and values that cannot
//! work together are refused by [`Config::load`], all of them at once and each with its source; [`Config::load_for_hook`] leaves them out.

mod check;
mod effective;
mod environment;
mod file;
mod find;
mod load;
mod mask;
mod problem;
mod reference;
mod schema;
mod settings;

pub use effective::Effective;
pub use find::{ConfigFile, Place};
pub use problem::{ConfigError, Origin, Origins, Problem, Refusal};
pub use reference::{Described, Section};
pub use settings::{Config, DevConfig, RetentionConfig, WorkerConfig};
