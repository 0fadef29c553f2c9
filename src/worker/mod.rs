//! A worker: dials out to the controllers, runs what they order, and reports until it is acknowledged.

// Pure, like the core.
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod reconcile;
