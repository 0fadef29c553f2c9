//! Real clients and servers over loopback, with made-up controllers behind them.

mod calls;
mod failover;
mod fake;
pub(super) mod samples;
mod streams;
