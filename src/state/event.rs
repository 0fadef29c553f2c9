//! What a command caused, or why it no longer fits.

use crate::model::{
    AttemptId, Ending, IdempotencyKey, IndexSet, JobId, QueueName, TaskId, TaskState, WorkerId,
    WorkerName,
};

/// What a command caused, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Also the answer to a repeated submission, with the first one's id.
    JobSubmitted(JobId),
    JobHeld(JobId),
    JobReleased(JobId),
    /// Every dependency ended as asked.
    JobUnblocked(JobId),
    JobFinished(JobId, TaskState),
    JobRetired(JobId),
    PriorityChanged(JobId),
    TaskRequeued(TaskId),
    /// Tasks that were over wait again, because a person wants it.
    TasksQueuedAgain(JobId, IndexSet),
    TaskEnded(TaskId, Ending),
    AttemptPlaced(AttemptId),
    /// Its turn came: it now holds what it was promised.
    AttemptPromoted(AttemptId),
    AttemptStarted(AttemptId),
    AttemptEnded(AttemptId, Ending),
    /// Its workers are ordered to stop it.
    AttemptStopping(AttemptId),
    WorkerRegistered(WorkerId),
    WorkerSilent(WorkerId),
    WorkerBack(WorkerId),
    WorkerDraining(WorkerId),
    WorkerResumed(WorkerId),
    WorkerForgotten(WorkerId),
    GpusUpdated(WorkerId),
    QueueChanged(QueueName),
    FeatureLevelRaised(u32),
    GenerationBegun,
    WorkerSettled(WorkerId),
}

/// Why a command does not fit the state. Every replica rejects it alike, and it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("no job {0}; `drigs jobs -a` lists them")]
    UnknownJob(JobId),
    #[error("job {0} has no task {1}")]
    UnknownTask(JobId, u32),
    #[error("no worker {0}; `drigs workers` lists them")]
    UnknownWorker(WorkerId),
    #[error("no queue `{0}`; `drigs queues` lists them")]
    UnknownQueue(QueueName),
    #[error("queue `{0}` is closed to new jobs")]
    QueueClosed(QueueName),
    #[error("no job {0} to depend on")]
    UnknownDependency(JobId),
    #[error("the idempotency key `{key}` was already used, for another submission (job {job})")]
    KeyReused { key: IdempotencyKey, job: JobId },
    #[error("job {0} is already finished")]
    JobFinished(JobId),
    #[error("{0} is not over and not running: there is nothing to run again")]
    NothingToRequeue(JobId),
    #[error("worker {0} is in a newer life than this speaks of")]
    StaleEpoch(WorkerId),
    #[error("attempt {0} is over or was replaced")]
    StaleAttempt(AttemptId),
    #[error("attempt {0} has no part on worker {1}")]
    NoSuchPart(AttemptId, WorkerId),
    #[error("task {0} is not waiting for a placement")]
    TaskNotQueued(TaskId),
    #[error("the room planned for task {task} on worker {worker} is taken")]
    NoRoom { task: TaskId, worker: WorkerId },
    #[error("worker {0} takes no new work")]
    WorkerNotReady(WorkerId),
    #[error("job {0} already runs as many tasks as it may")]
    AtMaxRunning(JobId),
    #[error(
        "another worker is called `{0}`; choose another --name, or `drigs worker forget {0}` if it is gone"
    )]
    NameTaken(WorkerName),
    #[error("worker {0} is connected; only one that is gone can be forgotten")]
    WorkerConnected(WorkerId),
    #[error("worker {0} is in touch: nothing of it is given up")]
    WorkerNotSilent(WorkerId),
    #[error(
        "worker {0} was not heard since the cluster was recovered or restored: nothing of it is given up by itself"
    )]
    WorkerEstranged(WorkerId),
    #[error(
        "job {0} may run already, on a worker that was not heard since the cluster was recovered or restored"
    )]
    InDoubt(JobId),
    #[error("GPU {0} is claimed by two workers")]
    GpuClaimed(String),
    #[error("feature level {0} is not above the present one")]
    StaleFeatureLevel(u32),
}
