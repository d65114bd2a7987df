//! The two kinds of connections that claim lanes.

/// What kind of destinations a connection serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Adapters,
    Handlers,
}
