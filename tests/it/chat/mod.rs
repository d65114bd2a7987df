//! Chats through real workers: limits, order, edits, and the state that a dead worker leaves (G1, G5, E7).

mod ground;
mod group;
mod killed;
mod large;
mod pause;
mod waiting;
