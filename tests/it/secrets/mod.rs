//! H1: secrets that stand in files, which are replaced while a worker runs.

mod adapters;
mod connections;
mod mounted;
