//! Chats through real workers: limits, order, edits, and what is left when a worker dies (G1, G5, E7).

mod ground;
mod group;
mod killed;
mod large;
mod pause;
mod waiting;
