//! A controller: replicates the state, answers people and workers, and, while it leads, decides.

// Pure, like the core: they decide, and leave the acting to others.
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod lease;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod reconcile;
