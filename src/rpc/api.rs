//! What clients may ask and what they are answered, in plain types. The same objects, with the same field names, are
//! the JSON of the CLI and of the REST interface; how they travel over gRPC is `convert`'s business.

use std::{collections::BTreeMap, time::Duration};

use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::model::{
    AttemptId, Bytes, ComputeCapability, Explanation, IdempotencyKey, JobId, JobSpec, MilliCpus,
    Queue, TaskId, TaskState, Timestamp, UserName, WaitReason,
};

use crate::state::Rejection;

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub kind: ErrorKind,
    /// One line for a person: what was wrong, where, and what would be right.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself is wrong; asking again changes nothing.
    Invalid,
    NotFound,
    /// It does not fit the present state (already finished, name taken, …).
    Conflict,
    Denied,
    /// No leader could be reached in time; asking again may help, and is safe.
    Unavailable,
    /// Too much at once; ask again a little later.
    Overloaded,
    Internal,
}

/// Whether an answer must be the latest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Nothing that was acknowledged before the question is missing.
    #[default]
    Linearizable,
    /// Whatever the asked controller knows, which may be old; works without a leader.
    Stale,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitRequest {
    pub spec: JobSpec,
    pub user: UserName,
    pub key: IdempotencyKey,
    /// Refuse what no present worker could ever run.
    pub strict: bool,
    /// Check and explain only.
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// `None` for a dry run.
    pub job_id: Option<JobId>,
    pub tasks: u64,
    /// What a person should know at once, such as that no worker could ever run it.
    pub warnings: Vec<String>,
}

/// Which jobs; everything left out matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub ids: Vec<JobId>,
    pub states: Vec<TaskState>,
    pub user: Option<String>,
    pub queue: Option<String>,
    /// Part of the name.
    pub name: Option<String>,
    /// Also jobs that are over. Asking by id or by a final state includes them anyway.
    pub finished: bool,
    /// At most so many, newest first; 1 to 10,000.
    pub limit: u32,
    /// Only jobs older than this one: the `next` of the page before.
    pub before: Option<JobId>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobPage {
    pub jobs: Vec<JobView>,
    /// Where the next page starts, if there is one.
    pub next: Option<JobId>,
}

/// A job as a person sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    pub job_id: JobId,
    pub name: String,
    pub user: UserName,
    pub queue: String,
    pub status: TaskState,
    /// While it waits.
    pub reason: Option<WaitReason>,
    pub priority: u32,
    pub submitted_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub tasks: TaskCountsView,
    /// Of the whole request, each node.
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: u32,
    pub nodes: u32,
    pub is_array: bool,
    /// Names of the workers that run it now; the first few of a large array.
    pub workers: Vec<String>,
    /// How its first failing task ended.
    pub ended: Option<EndingView>,
    pub time_limit_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCountsView {
    pub pending: u64,
    pub queued: u64,
    pub scheduled: u64,
    pub running: u64,
    pub recovering: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndingView {
    pub reason: String,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub message: Option<String>,
}

/// Everything about one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    #[serde(flatten)]
    pub job: JobView,
    pub spec: JobSpec,
    pub waits_for: Vec<JobId>,
    pub held_by: Option<UserName>,
    /// The first tasks, started ones first.
    pub task_list: Vec<TaskView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    pub task_id: String,
    pub index: u32,
    pub status: TaskState,
    pub attempt: u32,
    pub failures: u32,
    pub worker_names: Vec<String>,
    pub gpus: Vec<String>,
    pub placed_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub stopping: bool,
    pub ended: Option<EndingView>,
}

/// Which tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFilter {
    pub job: JobId,
    pub index: Option<u32>,
    pub states: Vec<TaskState>,
    pub limit: u32,
    /// Only tasks with a higher index.
    pub after: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPage {
    pub tasks: Vec<TaskView>,
    pub next: Option<u32>,
}

/// One job, or one task of it, as people write it: `12`, `12.3`, `12_3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetRef {
    Job(JobId),
    Task(TaskId),
}

/// What a person does to jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    Cancel,
    Hold,
    Release,
    Requeue,
    SetPriority(u32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    pub worker_id: String,
    pub name: String,
    pub address: String,
    /// READY, DRAINING (its tasks may end), DRAINED, SILENT.
    pub status: String,
    /// Why it is not READY.
    pub reason: Option<String>,
    pub version: String,
    pub cpus: MilliCpus,
    pub cpus_used: MilliCpus,
    pub memory: Bytes,
    pub memory_used: Bytes,
    pub gpus: u32,
    pub gpus_used: u32,
    pub running: u64,
    pub labels: BTreeMap<String, String>,
    pub ephemeral: bool,
    pub registered_at: Timestamp,
    /// How long ago the leader heard from it, in milliseconds; `None` when it never did.
    pub heard_ms_ago: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerAction {
    Drain { reason: String },
    Resume,
    Forget,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuView {
    pub worker: String,
    pub device_id: String,
    pub uuid: String,
    pub model_name: String,
    pub total_memory_bytes: Bytes,
    pub available_memory_bytes: Bytes,
    pub compute_capability: Option<ComputeCapability>,
    /// HEALTHY, QUARANTINED or OFFLINE (its worker is silent).
    pub state: String,
    pub reason: Option<String>,
    /// The attempts that hold it.
    pub held_by: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    pub name: String,
    #[serde(flatten)]
    pub queue: Queue,
    pub waiting_jobs: u64,
    pub active_tasks: u64,
}

/// The cluster at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    pub cluster_id: String,
    pub leader: Option<u64>,
    pub version: String,
    pub controllers: u32,
    pub controllers_reachable: u32,
    pub workers: u32,
    pub workers_ready: u32,
    pub cpus: MilliCpus,
    pub cpus_used: MilliCpus,
    pub memory: Bytes,
    pub memory_used: Bytes,
    pub gpus: u32,
    pub gpus_used: u32,
    pub jobs_submitted: u64,
    pub tasks: TaskCountsView,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    pub cluster_id: String,
    /// The controller that answered.
    pub answered_by: u64,
    pub leader: Option<u64>,
    pub term: u64,
    /// 2 and more for a cluster that was recovered from a lost majority.
    pub generation: u64,
    /// The last log entry of the controller that answered.
    pub last_log: Option<u64>,
    pub members: Vec<MemberView>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    pub id: u64,
    pub address: String,
    /// LEADER, VOTER or LEARNER.
    pub role: String,
    pub reachable: Option<bool>,
    /// The last log entry it is known to have, and how many it lacks; only the leader knows.
    pub matched: Option<u64>,
    pub lag: Option<u64>,
    pub applied: Option<u64>,
    /// Hash of the state at `applied`.
    pub state_hash: Option<String>,
    pub version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// As a learner, which is sent everything and does not vote yet.
    Add {
        id: u64,
        address: String,
    },
    /// Lets a learner that has caught up vote.
    Promote {
        id: u64,
    },
    /// The same controller is at another address from now on.
    Move {
        id: u64,
        address: String,
    },
    Remove {
        id: u64,
    },
    /// To the one named, or to the most caught-up.
    TransferLeader {
        to: Option<u64>,
    },
}

/// Which part of whose output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    pub task: TaskId,
    /// The latest one unless said.
    pub attempt: Option<u32>,
    /// For gangs; the first one unless said.
    pub node: u32,
    /// Go on as it is written, until the attempt is over.
    pub follow: bool,
    /// Only the last so many lines, to begin with.
    pub tail: Option<u64>,
    /// Bytes to skip, to resume a broken stream.
    pub from: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    pub attempt: AttemptId,
    /// Where in the whole output `bytes` starts.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Bytes before `offset` that were dropped to keep the output within its limit.
    pub dropped: u64,
}

/// Answers of `wait`: how the jobs stand.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitAnswer {
    pub jobs: Vec<JobView>,
    /// Whether all of them are over.
    pub done: bool,
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let kind = match &rejection {
            Rejection::UnknownJob(_) | Rejection::UnknownTask(..) | Rejection::UnknownWorker(_) => {
                ErrorKind::NotFound
            }
            Rejection::UnknownQueue(_)
            | Rejection::QueueClosed(_)
            | Rejection::UnknownDependency(_) => ErrorKind::Invalid,
            Rejection::KeyReused { .. }
            | Rejection::JobFinished(_)
            | Rejection::NothingToRequeue(_)
            | Rejection::StaleEpoch(_)
            | Rejection::StaleAttempt(_)
            | Rejection::NoSuchPart(..)
            | Rejection::TaskNotQueued(_)
            | Rejection::NoRoom { .. }
            | Rejection::WorkerNotReady(_)
            | Rejection::AtMaxRunning(_)
            | Rejection::NameTaken(_)
            | Rejection::WorkerConnected(_)
            | Rejection::WorkerNotSilent(_)
            | Rejection::GpuClaimed(_)
            | Rejection::WorkerEstranged(_)
            | Rejection::InDoubt(_)
            | Rejection::StaleFeatureLevel(_) => ErrorKind::Conflict,
        };
        ApiError::new(kind, rejection.to_string())
    }
}

impl ApiError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ApiError { kind, message: message.into() }
    }
}

/// Everything a client may ask. A controller implements it with its state, `Client` by
/// asking a controller; so a follower that forwards is the one implementing it through the other.
pub trait Api: Send + Sync + 'static {
    fn submit(&self, request: SubmitRequest) -> Answer<Submitted>;
    fn jobs(&self, filter: JobFilter, consistency: Consistency) -> Answer<JobPage>;
    fn job(&self, id: JobId, consistency: Consistency) -> Answer<JobDetail>;
    fn tasks(&self, filter: TaskFilter, consistency: Consistency) -> Answer<TaskPage>;
    fn explain(&self, target: TargetRef, consistency: Consistency) -> Answer<Explanation>;
    fn act(&self, target: TargetRef, action: JobAction, by: UserName) -> Answer<()>;
    /// Answers when all of the jobs are over, or after `patience` (at most a minute) with how they stand.
    fn wait(&self, jobs: Vec<JobId>, patience: Duration) -> Answer<WaitAnswer>;
    fn logs(&self, request: LogRequest) -> Answer<LogStream>;
    fn workers(&self, consistency: Consistency) -> Answer<Vec<WorkerView>>;
    /// `worker` is a name or an id (`w3`).
    fn act_on_worker(&self, worker: String, action: WorkerAction) -> Answer<()>;
    fn gpus(&self, consistency: Consistency) -> Answer<Vec<GpuView>>;
    fn queues(&self, consistency: Consistency) -> Answer<Vec<QueueView>>;
    fn put_queue(&self, name: String, queue: Queue) -> Answer<()>;
    fn status(&self, consistency: Consistency) -> Answer<StatusView>;
    fn cluster(&self) -> Answer<ClusterView>;
    fn act_on_members(&self, action: MemberAction) -> Answer<()>;
    /// A backup of what the asked controller has applied, as the bytes of its file.
    fn backup(&self) -> Answer<BackupStream>;
}

/// What every call returns: boxed, so that a controller can choose at run time who answers.
pub type Answer<T> = futures::future::BoxFuture<'static, Result<T, ApiError>>;
pub type BackupStream = BoxStream<'static, Result<bytes::Bytes, ApiError>>;
pub type LogStream = BoxStream<'static, Result<LogChunk, ApiError>>;
