//! A job and where its tasks stand.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::model::{DependencyKind, Ending, IndexSet, JobId, JobSpec, Timestamp, UserName};

/// One row per job, whatever the size of its array: tasks that wait or are over are ranges here, and only those in
/// between have rows of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Never changes but for its priority, so readers share it.
    pub spec: Arc<JobSpec>,
    pub user: UserName,
    pub submitted_at: Timestamp,
    pub hold: Option<Hold>,
    /// The jobs whose end it still waits for.
    pub waits_for: BTreeMap<JobId, DependencyKind>,
    /// Tasks that were never started.
    pub queued: IndexSet,
    pub completed: IndexSet,
    pub failed: IndexSet,
    pub cancelled: IndexSet,
    pub started_at: Option<Timestamp>,
    /// Set when the last task ended.
    pub finished_at: Option<Timestamp>,
    /// The highest attempt number any of its tasks had: a task that is run again after its end starts above it.
    pub highest_attempt: u32,
    /// What tasks from `queued` count their attempts from.
    pub attempt_base: u32,
    /// The first task that failed for good, which is what `drigs wait` reports.
    pub first_failure: Option<FirstFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub by: UserName,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstFailure {
    pub index: u32,
    pub ending: Ending,
}

impl Job {
    pub fn is_finished(&self) -> bool {
        self.finished_at.is_some()
    }

    /// How many of its tasks are over.
    pub fn ended(&self) -> u64 {
        self.completed.len() + self.failed.len() + self.cancelled.len()
    }
}
