//! Tasks that have left their job's queue, and their attempts.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::model::{Slice, Timestamp, WorkerId};

/// A task that was started at least once. Tasks that never were live as ranges in their [`Job`](crate::model::Job).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The highest attempt number given so far.
    pub attempts: u32,
    /// Ends that count against the job's own retries.
    pub failures: u32,
    /// Ends that were the cluster's fault; capped too, but apart from the job's own.
    pub cluster_failures: u32,
    /// Where it failed to run through no fault of its own: other workers are preferred.
    pub avoid: BTreeSet<WorkerId>,
    pub status: TaskStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Its last attempt ended in a way that gives it another one, not before the time given.
    Queued {
        not_before: Timestamp,
        last: Option<Ending>,
    },
    Active(Attempt),
    /// Over for good. Such a row leaves memory at once and stays in the store.
    Ended {
        attempt: Option<Attempt>,
        ending: Ending,
    },
}

/// One try of a task, and what it holds while it lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub number: u32,
    pub placed_at: Timestamp,
    /// When its first part reported that it runs.
    pub started_at: Option<Timestamp>,
    /// One per worker; more than one for a gang.
    pub parts: Vec<Part>,
    /// Set once it was decided that this attempt must end; its workers are ordered to stop it.
    pub stop: Option<StopReason>,
    /// Waits on its worker for an earlier attempt to end; holds nothing until then.
    pub prefetched: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub slice: Slice,
    pub status: PartStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartStatus {
    Assigned,
    Running,
    Ended(Ending),
}

/// How a part, an attempt or a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub reason: EndReason,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub message: Option<String>,
    pub at: Timestamp,
}

/// Why it ended. Kept apart from the exit code and the signal, which say how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EndReason {
    /// Exit code 0.
    Success,
    /// Ended by itself with another exit code.
    Exit,
    /// Ended by a signal that DRIGS did not send.
    Signal,
    /// Ran into its time limit.
    Timeout,
    /// The machine ran out of memory, by the kernel's own evidence.
    OutOfMemoryHost,
    OutOfMemoryGpu,
    VramLimit,
    GpuFault,
    /// Its worker is gone: given up, rebooted or forgotten.
    NodeLost,
    Preempted,
    /// It could not be started at all (no such command, no such directory, …).
    StartFailed,
    /// Its supervisor died under it.
    SupervisorLost,
    Rendezvous,
    /// Another part of its gang ended.
    GangFailed,
    /// A person cancelled it.
    User,
    /// A job that it depended on did not end as asked.
    DependencyFailed,
}

/// Why an attempt was ordered to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StopReason {
    User,
    Preempted,
    /// A person wants it run again from the start.
    Requeue,
    /// Another part of its gang ended.
    GangFailed,
}

/// What a person sees of a task or a job, in the words of the original DRIGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// Held, or waits for a dependency or its begin time.
    Pending,
    Queued,
    /// Has an allocation, not yet started.
    Scheduled,
    Running,
    /// Its worker is out of touch, or its attempt was lost and it will run again.
    Recovering,
    Completed,
    Failed,
    Cancelled,
}

impl Task {
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.status {
            TaskStatus::Active(attempt) => Some(attempt),
            TaskStatus::Queued { .. } | TaskStatus::Ended { .. } => None,
        }
    }
}

impl Attempt {
    pub fn part_on(&self, worker: WorkerId) -> Option<&Part> {
        self.parts.iter().find(|part| part.slice.worker == worker)
    }
}

impl Part {
    pub fn is_live(&self) -> bool {
        match self.status {
            PartStatus::Assigned | PartStatus::Running => true,
            PartStatus::Ended(_) => false,
        }
    }
}

impl Ending {
    pub fn new(reason: EndReason, at: Timestamp) -> Self {
        Ending { reason, exit_code: None, signal: None, message: None, at }
    }
}

impl EndReason {
    /// Whether the cluster, not the job, is to blame: such an end does not count against the job's retries.
    pub fn is_clusters_fault(self) -> bool {
        match self {
            EndReason::NodeLost
            | EndReason::Preempted
            | EndReason::GpuFault
            | EndReason::SupervisorLost
            | EndReason::GangFailed => true,
            EndReason::Success
            | EndReason::Exit
            | EndReason::Signal
            | EndReason::Timeout
            | EndReason::OutOfMemoryHost
            | EndReason::OutOfMemoryGpu
            | EndReason::VramLimit
            | EndReason::StartFailed
            | EndReason::Rendezvous
            | EndReason::User
            | EndReason::DependencyFailed => false,
        }
    }

    /// The task's state once it ended so for good.
    pub fn final_state(self) -> TaskState {
        match self {
            EndReason::Success => TaskState::Completed,
            EndReason::User => TaskState::Cancelled,
            EndReason::Exit
            | EndReason::Signal
            | EndReason::Timeout
            | EndReason::OutOfMemoryHost
            | EndReason::OutOfMemoryGpu
            | EndReason::VramLimit
            | EndReason::GpuFault
            | EndReason::NodeLost
            | EndReason::Preempted
            | EndReason::StartFailed
            | EndReason::SupervisorLost
            | EndReason::Rendezvous
            | EndReason::GangFailed
            | EndReason::DependencyFailed => TaskState::Failed,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            EndReason::Success => "SUCCESS",
            EndReason::Exit => "EXIT",
            EndReason::Signal => "SIGNAL",
            EndReason::Timeout => "TIMEOUT",
            EndReason::OutOfMemoryHost => "OUT_OF_MEMORY_HOST",
            EndReason::OutOfMemoryGpu => "OUT_OF_MEMORY_GPU",
            EndReason::VramLimit => "VRAM_LIMIT",
            EndReason::GpuFault => "GPU_FAULT",
            EndReason::NodeLost => "NODE_LOST",
            EndReason::Preempted => "PREEMPTED",
            EndReason::StartFailed => "START_FAILED",
            EndReason::SupervisorLost => "SUPERVISOR_LOST",
            EndReason::Rendezvous => "RENDEZVOUS",
            EndReason::GangFailed => "GANG_FAILED",
            EndReason::User => "USER",
            EndReason::DependencyFailed => "DEPENDENCY_FAILED",
        }
    }
}

impl TaskState {
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Pending => "PENDING",
            TaskState::Queued => "QUEUED",
            TaskState::Scheduled => "SCHEDULED",
            TaskState::Running => "RUNNING",
            TaskState::Recovering => "RECOVERING",
            TaskState::Completed => "COMPLETED",
            TaskState::Failed => "FAILED",
            TaskState::Cancelled => "CANCELLED",
        }
    }

    pub fn is_final(self) -> bool {
        match self {
            TaskState::Completed | TaskState::Failed | TaskState::Cancelled => true,
            TaskState::Pending
            | TaskState::Queued
            | TaskState::Scheduled
            | TaskState::Running
            | TaskState::Recovering => false,
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
