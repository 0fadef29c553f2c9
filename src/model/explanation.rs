//! Why somebody waits, and what would end the wait.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{EndReason, TaskState, Timestamp};

/// The answer to `drigs explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The job or task that was asked about.
    pub target: String,
    pub state: TaskState,
    /// One word: why it waits, …
    pub reason: Option<WaitReason>,
    /// … or how it ended.
    pub ended: Option<EndReason>,
    /// The whole answer for a person, a sentence a line: what is missing, how many workers said so, who holds it.
    pub lines: Vec<String>,
    /// How many waiting jobs are served before this one.
    pub ahead: Option<u64>,
    /// The earliest start that follows from known time limits.
    pub earliest_start: Option<Timestamp>,
}

/// Why a task is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WaitReason {
    Held,
    Dependency,
    BeginTime,
    /// Its queue is at a limit.
    Quota,
    /// Its array runs as many tasks as it may.
    MaxRunning,
    /// Waits a while before it is tried again.
    Backoff,
    /// Somebody holds what it needs.
    Resources,
    /// Others are served first.
    Priority,
    /// There is room, but it is kept for a job that has waited longer.
    Reserved,
    /// No worker of this cluster could ever run it.
    Infeasible,
    /// No worker is there that takes work.
    NoWorkers,
    /// Its worker is out of touch, and it may still run there.
    Recovering,
    /// It has its allocation and starts in a moment.
    Starting,
}

impl WaitReason {
    pub fn as_str(self) -> &'static str {
        match self {
            WaitReason::Held => "HELD",
            WaitReason::Dependency => "DEPENDENCY",
            WaitReason::BeginTime => "BEGIN_TIME",
            WaitReason::Quota => "QUOTA",
            WaitReason::MaxRunning => "MAX_RUNNING",
            WaitReason::Backoff => "BACKOFF",
            WaitReason::Resources => "RESOURCES",
            WaitReason::Priority => "PRIORITY",
            WaitReason::Reserved => "RESERVED",
            WaitReason::Infeasible => "INFEASIBLE",
            WaitReason::NoWorkers => "NO_WORKERS",
            WaitReason::Recovering => "RECOVERING",
            WaitReason::Starting => "STARTING",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
