//! What a user asks for. Complete and checked: every default is filled in before a spec enters the log.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::{
    Bytes, ComputeCapability, IndexSet, JobId, MilliCpus, Millis, QueueName, Timestamp,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    pub queue: QueueName,
    /// 0 to 1,000,000; higher goes first.
    pub priority: u32,
    /// What each node of the layout needs.
    pub request: Request,
    pub layout: Layout,
    pub backend: Backend,
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub working_dir: Option<String>,
    pub container: Option<Container>,
    pub distribution: Option<Distribution>,
    pub checkpoint: Option<Checkpoint>,
    pub time_limit: Option<Millis>,
    pub retry: Retry,
    pub stop: Stop,
    pub array: Option<Array>,
    pub dependencies: Vec<Dependency>,
    pub begin: Option<Timestamp>,
    /// `None` leaves it to the worker: an hour on standing machines, two minutes on ephemeral ones.
    pub lost_after: Option<LostAfter>,
    /// Submitted on hold.
    pub held: bool,
    /// Only workers that carry all of these labels.
    pub labels: BTreeMap<String, String>,
}

/// What one node must give.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
pub struct Request {
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: GpuRequest,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
pub struct GpuRequest {
    pub count: u32,
    /// Declared VRAM of each: the least a GPU must have, and with `sharing` what is taken of it.
    pub memory: Option<Bytes>,
    /// Others may use the same GPU beside it.
    pub sharing: bool,
    /// Part of the model's name, without regard to case.
    pub model: Option<String>,
    pub min_compute_capability: Option<ComputeCapability>,
    /// Asks for well-connected GPUs.
    pub topology_aware: bool,
}

/// How an attempt spreads over workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// On one worker.
    Single,
    /// On exactly so many workers, each giving the whole request.
    Nodes(u32),
    /// The request's GPUs anywhere within one reachability group.
    Anywhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    Native,
    Docker,
    Distributed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub image: String,
    /// Host path → path in the container.
    pub volumes: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    pub mode: String,
    pub world_size: u32,
    pub master_addr: Option<String>,
    pub master_port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub interval: Millis,
    pub dir: Option<String>,
}

/// How often, and after which ends, a task is tried again. Ends that are the cluster's fault are retried anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// 0 to 100.
    pub max: u32,
    /// Empty: after every failure.
    pub on: BTreeSet<RetryCause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryCause {
    /// Any exit code but 0.
    Failure,
    ExitCode(i32),
    Signal,
    OutOfMemory,
    Timeout,
    StartFailed,
}

/// How a running task is asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// A signal number; 15 (SIGTERM) unless said otherwise.
    pub signal: i32,
    /// From the signal to SIGKILL.
    pub grace: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    pub indices: IndexSet,
    /// How many of its tasks may run at one time.
    pub max_running: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub kind: DependencyKind,
    pub job: JobId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DependencyKind {
    /// Every task of it completed.
    AfterOk,
    /// It is over, however it ended.
    AfterAny,
    /// At least one task of it failed or was cancelled.
    AfterNotOk,
}

/// For how long an attempt runs on while its worker hears from no leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostAfter {
    After(Millis),
    /// Without limit: only the worker's own word, or `drigs worker forget`, ends it.
    Keep,
}

impl LostAfter {
    /// The most that passes, once an attempt has run on for as long as it may, between the signal and the kill. What its
    /// spec grants for other stops may be hours; here somebody waits for certainty.
    pub const GRACE: Millis = Millis::from_secs(5);
}

impl JobSpec {
    /// The most tasks that one array may have.
    pub const MAX_TASKS: u64 = 1_000_000;
    /// The most ranges that its indices may fall into: every event of a job writes them all.
    pub const MAX_RANGES: usize = 1_000;
    pub const MAX_PRIORITY: u32 = 1_000_000;
    pub const DEFAULT_GRACE: Millis = Millis::from_secs(30);
    pub const SIGTERM: i32 = 15;

    /// The indices of all its tasks.
    pub fn indices(&self) -> IndexSet {
        match &self.array {
            Some(array) => array.indices.clone(),
            None => IndexSet::from_range(0, 0),
        }
    }

    /// How many tasks it has.
    pub fn tasks(&self) -> u64 {
        self.array.as_ref().map_or(1, |array| array.indices.len())
    }

    /// How many workers one attempt needs at least.
    pub fn nodes(&self) -> u32 {
        match self.layout {
            Layout::Single | Layout::Anywhere => 1,
            Layout::Nodes(nodes) => nodes,
        }
    }
}

impl Default for Request {
    fn default() -> Self {
        Request { cpus: MilliCpus::from_cores(1), memory: Bytes(0), gpus: GpuRequest::default() }
    }
}

impl Default for Stop {
    fn default() -> Self {
        Stop { signal: JobSpec::SIGTERM, grace: JobSpec::DEFAULT_GRACE }
    }
}

/// A minimal spec: what is not said here is what a user gets who says nothing.
impl Default for JobSpec {
    fn default() -> Self {
        JobSpec {
            name: String::from("job"),
            queue: QueueName::default(),
            priority: 0,
            request: Request::default(),
            layout: Layout::Single,
            backend: Backend::Native,
            command: vec![String::from("true")],
            env: BTreeMap::new(),
            working_dir: None,
            container: None,
            distribution: None,
            checkpoint: None,
            time_limit: None,
            retry: Retry::default(),
            stop: Stop::default(),
            array: None,
            dependencies: Vec::new(),
            begin: None,
            lost_after: None,
            held: false,
            labels: BTreeMap::new(),
        }
    }
}

impl DependencyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            DependencyKind::AfterOk => "afterok",
            DependencyKind::AfterAny => "afterany",
            DependencyKind::AfterNotOk => "afternotok",
        }
    }
}
