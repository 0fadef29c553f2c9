use serde::{Deserialize, Serialize};

use crate::{model::JobId, scheduler::View, state::State};

/// Why a task does not run, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WaitReason {
    Held,
    Dependency,
    BeginTime,
    /// Its queue holds as many GPUs as it may.
    Quota,
    /// Its array runs as many tasks as it may.
    MaxRunning,
    /// It failed and waits a little before the next try.
    Backoff,
    NoWorkers,
    /// No registered worker could ever run it.
    Infeasible,
    /// Workers that could run it are drained, silent or sick.
    Unavailable,
    /// No worker has room.
    Resources,
    /// There is room, but jobs ahead of it in line take it.
    Priority,
    /// There is room, but a job ahead of it waits for it.
    Reserved,
    /// Its turn is now: the leader places it in its next round.
    Next,
    /// Its worker is out of touch.
    Recovering,
}

/// The reason of every waiting job, found in one pass over the queue.
#[derive(Debug)]
pub struct Reasons {}

impl Reasons {
    pub fn new(state: &State, view: &View) -> Reasons {
        let _ = (state, view);
        Reasons {}
    }

    /// Why the job's waiting tasks wait; `None` when none does.
    pub fn of(&self, job: JobId) -> Option<WaitReason> {
        let _ = job;
        None
    }
}
