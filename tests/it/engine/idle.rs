//! idle
