//! What the seed streams add to the engine: policy and vocabulary, no delivery of their own.

pub mod hooks;
