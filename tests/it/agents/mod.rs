//! Frames between agents (C3, C7, C9): the endpoint, the adapter, and two Lanekeepers that talk.

mod adapter;
mod handled;
pub(crate) mod inbox;
mod pair;
mod peers;
mod receivers;
mod responses;
