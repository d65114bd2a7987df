//! Hook calls of agent CLIs, on their way into the `hooks` stream.
//!
//! ```text
//! stdin or argv ─ payload ─► parse ─► allowlist ─► Record ─► spool ─► lanekeeper.enqueue
//!                  (text)   (name, session, JSON)              (until it is stored)
//! ```
//!
//! Invariants kept here:
//! - The payload is never parsed into a tree: it stays text, whatever its depth or size, and is
//!   changed only where Postgres would refuse it or where it names a person ([`json`], [`redact`](lanekeeper_core::redact)).
//! - A call whose payload cannot be read becomes an event that says so; none is passed over in
//!   silence, except the types that the allowlist drops ([`config::HookConfig`]).
//! - Equality of payloads is never taken for a repeated delivery: two equal `Stop` calls of one
//!   session are two events. The one duplicate that is recognised, Cursor running the hooks of
//!   Claude Code beside its own, is recognised by what Cursor says of itself ([`double_fire`]).
//!
//! What the events mean to their sessions is told by [`registry`], once they are stored.
//!
//! Left out on purpose: any answer to the CLI. A hook call only reports; it never allows, blocks or
//! rewrites anything.

pub mod call;
pub mod class;
pub mod config;
pub mod double_fire;
pub mod emit;
pub mod event_type;
pub mod json;
pub mod members;
pub mod origin;
pub mod registry;
pub mod sent;
pub mod shape;
pub mod string;
pub mod transcript;

use lanekeeper_producer::spool::SpooledStream;

use class::Class;

/// The stream's name.
pub const STREAM: &str = "hooks";

/// What the spool knows of it.
pub const SPOOLED: SpooledStream = SpooledStream {
    name: STREAM,
    is_critical: |event_type| Class::of(event_type) == Class::Critical,
};
