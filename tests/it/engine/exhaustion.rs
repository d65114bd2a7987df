//! exhaustion
