//! DRIGS: a lightweight, highly available scheduler for GPU work.
//!
//! The rooms, in reading order. What DRIGS *knows* is one value, [`state::State`], changed only by commands that every
//! controller applies in log order. What it *decides* is pure: [`scheduler`] and the two `reconcile` modules. Everything
//! else carries things. `docs/ARCHITECTURE.md` is the map.

// The core: no I/O, no clock, no dice, no async. Clippy's lists are in clippy.toml.
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod model;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod scheduler;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod state;

// The shells.
pub mod cli;
pub mod controller;
pub mod raft;
pub mod role;
pub mod rpc;
pub mod store;
pub mod telemetry;
pub mod worker;
