//! Which task goes where next, and why the others wait. Reads the state, changes nothing: `apply` checks every placement
//! again.
//!
//! The line: queues of higher priority first, then jobs of higher priority, then the order of submission. The place: the
//! worker that fits best. What keeps the first who finds no room from starving stands in `reservation`.

mod class;
mod explain;
mod prefetch;
mod reason;
mod reservation;
mod room;
mod round;

use std::collections::{BTreeMap, BTreeSet};

pub use self::explain::{explain, infeasible};
pub use self::reason::Reasons;
use self::round::Round;
use crate::{
    model::{AttemptId, JobId, Millis, Placement, Timestamp, WaitReason, WorkerId},
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
    /// First to be served first. They are meant to be applied in this order.
    pub placements: Vec<Placement>,
    /// Prefetched attempts whose turn does not come although there is room elsewhere.
    pub recalls: Vec<AttemptId>,
    /// How many jobs are left with waiting tasks, by reason, as far as the round had to look: jobs that could not be placed
    /// anyway count as waiting for room, and those behind a spent budget not at all.
    pub waiting: BTreeMap<WaitReason, usize>,
    /// What is kept free for the first job that finds no room.
    pub reserved: Option<Reserved>,
    /// When the mere passing of time may change the plan next (a begin time, the end of a backoff).
    pub next_change: Option<Timestamp>,
}

/// Room that jobs behind `job` leave alone until it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub job: JobId,
    pub workers: Vec<WorkerId>,
    /// When it starts at the latest, if all that it waits for has a time limit.
    pub at: Option<Timestamp>,
}

/// Decides what starts now: at most `budget` placements.
pub fn plan(state: &State, view: &View, budget: usize) -> Plan {
    let round = Round::new(state, view, budget);
    let recalls = round.stalled();
    Plan { recalls, ..round.run(|_, _| {}).plan }
}

#[cfg(test)]
mod tests;
