use serde::{Deserialize, Serialize};

use crate::{
    model::{JobId, JobSpec, TaskState},
    scheduler::{View, WaitReason},
    state::{State, Target},
};

/// Why the tasks of a job stand where they stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub job: JobId,
    pub state: TaskState,
    pub reason: Option<WaitReason>,
    /// The answer in one line.
    pub summary: String,
    /// What a person reads below it.
    pub details: Vec<String>,
}

/// `None` when the job or the task is not in memory.
pub fn explain(state: &State, view: &View, target: Target) -> Option<Explanation> {
    let _ = (state, view, target);
    None
}

/// Whether no registered worker, whatever its present state, could ever meet the request.
pub fn is_infeasible(state: &State, spec: &JobSpec) -> bool {
    let _ = (state, spec);
    false
}
