//! H1: secrets in files that are replaced while a worker runs.

mod adapters;
mod connections;
mod mounted;
