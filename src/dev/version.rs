//! The majors of PostgreSQL that Lanekeeper is tested with.

pub const MIN_MAJOR: u32 = 14;
pub const MAX_MAJOR: u32 = 18;
