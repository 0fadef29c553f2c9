//! What a leader tells a worker, and what the worker answers. Both are whole sets, never changes to one: a lost message
//! heals itself with the next.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{AttemptId, Ending, Epoch, JobSpec, LostAfter, Millis, Slice, StopReason};

/// All attempts that a worker should have now, in the order in which waiting ones get their turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    pub stamp: OrderStamp,
    pub orders: Vec<Order>,
    /// How long the worker may go on without hearing from a leader before it must assume itself forgotten, at least.
    pub lease: Millis,
}

/// Which leader speaks, and from which state. A worker never goes back to an earlier one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct OrderStamp {
    pub term: u64,
    /// The index of the last log entry applied to the state that these orders follow from.
    pub index: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub attempt: AttemptId,
    pub slice: Slice,
    pub spec: Arc<JobSpec>,
    /// How long it runs on when no leader is heard from.
    pub lost_after: LostAfter,
    /// Set: end it.
    pub stop: Option<StopReason>,
    /// Starts when those before it leave room, not at once.
    pub prefetched: bool,
    /// Which of the attempt's nodes this worker is, and of how many.
    pub node: u32,
    pub nodes: u32,
    pub world_size: u32,
    /// Placed before the cluster was recovered or restored: it runs or has ended here, or is lost. Never started anew.
    pub begun: bool,
}

/// What a worker says about one attempt it has, until its orders no longer name the attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    pub attempt: AttemptId,
    pub epoch: Epoch,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Running,
    Ended(Ending),
}
