//! How many workers share one database.

/// The workers over one database, as Postgres knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Workers that live, this one included.
    pub replicas: u32,
    /// Workers that live and started before this one.
    pub rank: u32,
}
