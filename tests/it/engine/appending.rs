//! appending
