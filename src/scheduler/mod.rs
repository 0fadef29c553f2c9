//! Which task goes where next, and why the others wait. Reads the state, changes nothing: `apply` checks every placement
//! again.

mod explain;
mod reason;

use std::collections::{BTreeMap, BTreeSet};

pub use self::explain::{Explanation, explain, is_infeasible};
pub use self::reason::{Reasons, WaitReason};
use crate::{
    model::{AttemptId, Millis, Placement, Timestamp, WorkerId},
    state::State,
};

/// What the scheduler is told beside the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub now: Timestamp,
    /// The workers that this leader hears from: only they get placements.
    pub in_touch: BTreeSet<WorkerId>,
    /// When this leader began, and its lease: what `explain` says about giving up counts from them.
    pub leading_since: Timestamp,
    pub lease: Millis,
}

/// What the leader should propose next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// First to be served first.
    pub placements: Vec<Placement>,
    /// Prefetched attempts whose turn does not come although they could run elsewhere: their tasks should be requeued.
    pub recalls: Vec<AttemptId>,
    /// How many jobs with waiting tasks were left waiting, by reason.
    pub waiting: BTreeMap<WaitReason, usize>,
    /// When the mere passing of time may change the plan next (a begin time, the end of a backoff).
    pub next_change: Option<Timestamp>,
}

/// Decides what starts now: at most `budget` placements.
pub fn plan(state: &State, view: &View, budget: usize) -> Plan {
    let _ = (state, view, budget);
    Plan::default()
}
