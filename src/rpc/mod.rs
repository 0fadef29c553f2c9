//! Words on the wire: generated code, its conversion to the nouns, and the client that follows the leader.

pub mod api;
pub mod session;

pub mod auth;
pub mod client;
pub mod hub_client;
pub mod server;
