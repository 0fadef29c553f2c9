//! All that may enter the log.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::model::{
    AttemptId, Backend, Bytes, Ending, Epoch, Gpu, IdempotencyKey, JobId, JobSpec, MilliCpus,
    Placement, Queue, QueueName, TaskId, Timestamp, UserName, WorkerId, WorkerName,
};

/// One log entry: commands that were proposed together, and when. A leader's fence covers all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Stamped by the proposer. `State` never lets its own time go backwards.
    pub at: Timestamp,
    pub commands: Vec<Command>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    // People.
    SubmitJob(Box<SubmitJob>),
    CancelTasks {
        target: Target,
        by: UserName,
    },
    HoldJob {
        job: JobId,
        by: UserName,
    },
    ReleaseJob {
        job: JobId,
    },
    RequeueTasks {
        target: Target,
    },
    SetPriority {
        job: JobId,
        priority: u32,
    },

    // Workers, in their own words.
    RegisterWorker(RegisterWorker),
    StartPart {
        attempt: AttemptId,
        worker: WorkerId,
        epoch: Epoch,
    },
    EndPart {
        attempt: AttemptId,
        worker: WorkerId,
        epoch: Epoch,
        ending: Ending,
    },
    UpdateGpus {
        worker: WorkerId,
        epoch: Epoch,
        gpus: Vec<Gpu>,
    },

    // The leader's decisions.
    PlaceTask(Placement),
    SilenceWorker {
        worker: WorkerId,
        epoch: Epoch,
    },
    ReconnectWorker {
        worker: WorkerId,
        epoch: Epoch,
    },
    /// This worker was silent for longer than the attempt would run on there: its part on it is over.
    GiveUpAttempt {
        attempt: AttemptId,
        worker: WorkerId,
    },
    /// This attempt waits on its worker for a turn that does not come: its task is to be placed elsewhere.
    RecallAttempt {
        attempt: AttemptId,
    },
    /// Finished jobs leave memory; their rows stay in the store.
    RetireJobs {
        jobs: BTreeSet<JobId>,
    },

    // Operators.
    DrainWorker {
        worker: WorkerId,
        reason: String,
    },
    ResumeWorker {
        worker: WorkerId,
    },
    /// An operator's word that the worker and all that ran on it are gone.
    ForgetWorker {
        worker: WorkerId,
    },
    PutQueue {
        name: QueueName,
        queue: Queue,
    },
    /// The first entry after a recovery or a restoration: what followed elsewhere is not known.
    BeginGeneration {
        /// The cluster whose workers may come over by themselves.
        adopted: Option<String>,
    },
    /// This worker was estranged, and runs nothing now that the state does not know of.
    SettleWorker {
        worker: WorkerId,
        epoch: Epoch,
    },
    /// Every member has announced that it understands commands up to this level.
    RaiseFeatureLevel {
        level: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitJob {
    pub spec: JobSpec,
    pub user: UserName,
    pub key: IdempotencyKey,
}

/// A whole job, or one of its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Job(JobId),
    Task(TaskId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterWorker {
    pub uuid: Uuid,
    pub name: WorkerName,
    pub epoch: Epoch,
    pub address: String,
    pub version: String,
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: Vec<Gpu>,
    pub labels: BTreeMap<String, String>,
    pub backends: BTreeSet<Backend>,
    pub ephemeral: bool,
}

impl Target {
    pub fn job(self) -> JobId {
        match self {
            Target::Job(job) => job,
            Target::Task(task) => task.job,
        }
    }
}
