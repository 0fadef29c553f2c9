//! Words on the wire: generated code, its conversion to the nouns, and the client that follows the leader.

pub mod api;
pub mod json;
pub mod offline;
pub mod session;

pub mod client;
pub mod hub_client;
pub mod server;

pub(crate) mod auth;
pub(crate) mod convert;
mod transport;

/// Generated from `proto/`. Named only by this room and by those that carry it (raft, and the services).
pub(crate) mod proto {
    #![allow(
        missing_debug_implementations,
        clippy::all,
        reason = "generated code follows its generator's style"
    )]
    tonic::include_proto!("drigs.v1");
}

#[cfg(test)]
mod tests;
