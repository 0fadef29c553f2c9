//! One of each, with every field said.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use uuid::Uuid;

use crate::model::{
    Array, AttemptId, Backend, Bytes, Checkpoint, ComputeCapability, Container, Dependency,
    DependencyKind, Distribution, EndReason, Ending, Epoch, Explanation, Gpu, GpuGrant, GpuHealth,
    GpuRequest, GpuUuid, IdempotencyKey, JobId, JobSpec, Layout, LostAfter, MilliCpus, Millis,
    Order, OrderStamp, Orders, Queue, QueueName, Request, Retry, RetryCause, Slice, Stop, TaskId,
    TaskState, Timestamp, UserName, WaitReason, WorkerId, WorkerName,
};
use crate::rpc::api::{
    ClusterView, EndingView, GpuView, JobDetail, JobFilter, JobPage, JobView, LogChunk, LogRequest,
    MemberView, QueueView, StatusView, SubmitRequest, Submitted, TaskCountsView, TaskFilter,
    TaskPage, TaskView, WaitAnswer, WorkerView,
};
use crate::state::RegisterWorker;

fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

pub fn spec() -> JobSpec {
    JobSpec {
        name: "train".into(),
        queue: QueueName::from("night"),
        priority: 7,
        request: Request {
            cpus: MilliCpus(2500),
            memory: Bytes::from_gib(3),
            gpus: GpuRequest {
                count: 2,
                memory: Some(Bytes::from_gib(16)),
                sharing: true,
                model: Some("A100".into()),
                min_compute_capability: Some(ComputeCapability { major: 8, minor: 6 }),
                topology_aware: true,
            },
        },
        layout: Layout::Nodes(3),
        backend: Backend::Distributed,
        command: vec!["python".into(), "train.py".into()],
        env: map("SEED", "1"),
        working_dir: Some("/data".into()),
        container: Some(Container { image: "torch:2".into(), volumes: map("/a", "/b") }),
        distribution: Some(Distribution {
            mode: "ddp".into(),
            world_size: 6,
            master_addr: Some("10.0.0.1".into()),
            master_port: Some(29500),
        }),
        checkpoint: Some(Checkpoint { interval: Millis::from_secs(60), dir: Some("/c".into()) }),
        time_limit: Some(Millis::from_hours(4)),
        retry: Retry { max: 3, on: BTreeSet::from([RetryCause::ExitCode(75), RetryCause::Signal]) },
        stop: Stop { signal: 10, grace: Millis::from_secs(5) },
        array: Some(Array { indices: "0-9,20".parse().unwrap(), max_running: Some(4) }),
        dependencies: vec![Dependency { kind: DependencyKind::AfterNotOk, job: JobId(3) }],
        begin: Some(Timestamp(9)),
        lost_after: Some(LostAfter::Keep),
        held: true,
        labels: map("zone", "b"),
    }
}

pub fn submit() -> SubmitRequest {
    SubmitRequest {
        spec: spec(),
        user: UserName::from("ann"),
        key: IdempotencyKey::from("k-1"),
        strict: true,
        dry_run: true,
    }
}

pub fn submitted() -> Submitted {
    Submitted { job_id: Some(JobId(12)), tasks: 11, warnings: vec!["no such GPU — yet".into()] }
}

pub fn filter() -> JobFilter {
    JobFilter {
        ids: vec![JobId(1), JobId(2)],
        states: vec![TaskState::Running, TaskState::Failed],
        user: Some("ann".into()),
        queue: Some("night".into()),
        name: Some("tr".into()),
        finished: true,
        limit: 50,
        before: Some(JobId(99)),
    }
}

fn counts() -> TaskCountsView {
    TaskCountsView {
        pending: 1,
        queued: 2,
        scheduled: 3,
        running: 4,
        recovering: 5,
        completed: 6,
        failed: 7,
        cancelled: 8,
    }
}

fn ended() -> EndingView {
    EndingView {
        reason: "EXIT".into(),
        exit_code: Some(-1),
        signal: Some(9),
        message: Some("lost".into()),
    }
}

pub fn job() -> JobView {
    JobView {
        job_id: JobId(12),
        name: "train".into(),
        user: UserName::from("ann"),
        queue: "night".into(),
        status: TaskState::Queued,
        reason: Some(WaitReason::Infeasible),
        priority: 7,
        submitted_at: Timestamp(1),
        started_at: Some(Timestamp(2)),
        completed_at: Some(Timestamp(3)),
        tasks: counts(),
        cpus: MilliCpus(2500),
        memory: Bytes(5),
        gpus: 2,
        nodes: 3,
        is_array: true,
        workers: vec!["gpu-1".into()],
        ended: Some(ended()),
        time_limit_ms: Some(4),
    }
}

pub fn page() -> JobPage {
    JobPage { jobs: vec![job(), job()], next: Some(JobId(12)) }
}

fn task() -> TaskView {
    TaskView {
        task_id: "12.3".into(),
        index: 3,
        status: TaskState::Recovering,
        attempt: 2,
        failures: 1,
        worker_names: vec!["gpu-1".into()],
        gpus: vec!["GPU-1".into()],
        placed_at: Some(Timestamp(1)),
        started_at: Some(Timestamp(2)),
        ended_at: Some(Timestamp(3)),
        stopping: true,
        ended: Some(ended()),
    }
}

pub fn detail() -> JobDetail {
    JobDetail {
        job: job(),
        spec: spec(),
        waits_for: vec![JobId(3)],
        held_by: Some(UserName::from("bob")),
        task_list: vec![task()],
    }
}

pub fn task_filter() -> TaskFilter {
    TaskFilter {
        job: JobId(12),
        index: Some(3),
        states: vec![TaskState::Pending],
        limit: 10_000,
        after: Some(2),
    }
}

pub fn task_page() -> TaskPage {
    TaskPage { tasks: vec![task()], next: Some(3) }
}

pub fn explanation() -> Explanation {
    Explanation {
        target: "12".into(),
        state: TaskState::Failed,
        reason: Some(WaitReason::Priority),
        ended: Some(EndReason::OutOfMemoryGpu),
        lines: vec!["It waits.".into()],
        ahead: Some(4),
        earliest_start: Some(Timestamp(5)),
    }
}

pub fn wait_answer() -> WaitAnswer {
    WaitAnswer { jobs: vec![job()], done: true }
}

pub fn log_request() -> LogRequest {
    LogRequest {
        task: TaskId { job: JobId(12), index: 3 },
        attempt: None,
        node: 1,
        follow: true,
        tail: Some(10),
        from: 0,
    }
}

pub fn attempt() -> AttemptId {
    AttemptId { task: TaskId { job: JobId(12), index: 3 }, number: 2 }
}

pub fn chunk(offset: u64, text: &str) -> LogChunk {
    LogChunk { attempt: attempt(), offset, bytes: text.into(), dropped: 0 }
}

pub fn worker() -> WorkerView {
    WorkerView {
        worker_id: "w1".into(),
        name: "gpu-1".into(),
        address: "10.0.0.9".into(),
        status: "DRAINING".into(),
        reason: Some("disk".into()),
        version: "0.2.0".into(),
        cpus: MilliCpus(8000),
        cpus_used: MilliCpus(1),
        memory: Bytes(2),
        memory_used: Bytes(3),
        gpus: 4,
        gpus_used: 5,
        running: 6,
        labels: map("zone", "b"),
        ephemeral: true,
        registered_at: Timestamp(7),
        heard_ms_ago: Some(8),
    }
}

pub fn gpu_view() -> GpuView {
    GpuView {
        worker: "gpu-1".into(),
        device_id: "0".into(),
        uuid: "GPU-1".into(),
        model_name: "A100".into(),
        total_memory_bytes: Bytes(80),
        available_memory_bytes: Bytes(79),
        compute_capability: Some(ComputeCapability { major: 8, minor: 0 }),
        state: "QUARANTINED".into(),
        reason: Some("ECC".into()),
        held_by: vec!["12.3.2".into()],
    }
}

pub fn queue() -> Queue {
    Queue { priority: 1, weight: 2, max_gpus: Some(3), open: true }
}

pub fn queue_view() -> QueueView {
    QueueView { name: "night".into(), queue: queue(), waiting_jobs: 1, active_tasks: 2 }
}

pub fn status() -> StatusView {
    StatusView {
        cluster_id: "c".into(),
        leader: Some(1),
        version: "0.2.0".into(),
        controllers: 3,
        controllers_reachable: 2,
        workers: 4,
        workers_ready: 5,
        cpus: MilliCpus(6),
        cpus_used: MilliCpus(7),
        memory: Bytes(8),
        memory_used: Bytes(9),
        gpus: 10,
        gpus_used: 11,
        jobs_submitted: 12,
        tasks: counts(),
    }
}

pub fn cluster() -> ClusterView {
    let member = MemberView {
        id: 2,
        address: "10.0.0.6:7070".into(),
        role: "VOTER".into(),
        reachable: Some(false),
        matched: Some(1),
        lag: Some(2),
        applied: Some(3),
        state_hash: Some("ab".into()),
        version: Some("0.2.0".into()),
    };
    ClusterView {
        cluster_id: "c".into(),
        answered_by: 1,
        leader: Some(1),
        term: 4,
        generation: 2,
        last_log: Some(3),
        members: vec![member, MemberView::default()],
    }
}

pub fn gpu() -> Gpu {
    Gpu {
        uuid: GpuUuid::from("GPU-1"),
        index: 0,
        model: "A100".into(),
        memory: Bytes::from_gib(80),
        compute_capability: Some(ComputeCapability { major: 8, minor: 0 }),
        health: GpuHealth::Quarantined { reason: "ECC".into() },
    }
}

pub fn registration() -> RegisterWorker {
    RegisterWorker {
        uuid: Uuid::from_u128(5),
        name: WorkerName::from("gpu-1"),
        epoch: Epoch(2),
        address: "10.0.0.9".into(),
        version: "0.2.0".into(),
        cpus: MilliCpus(8000),
        memory: Bytes::from_gib(64),
        gpus: vec![gpu()],
        labels: map("zone", "b"),
        backends: BTreeSet::from([Backend::Native, Backend::Docker]),
        ephemeral: true,
    }
}

pub fn ending() -> Ending {
    Ending {
        reason: EndReason::Exit,
        exit_code: Some(-3),
        signal: None,
        message: Some("no".into()),
        at: Timestamp(77),
    }
}

/// What a worker gets that runs all tasks of one array.
pub fn orders_of_array(spec: JobSpec, tasks: u32) -> Orders {
    let spec = Arc::new(spec);
    let orders = (0..tasks).map(|index| order(index, spec.clone())).collect();
    Orders { stamp: OrderStamp { term: 1, index: 2 }, orders, lease: Millis(10_000) }
}

pub fn order(index: u32, spec: Arc<JobSpec>) -> Order {
    Order {
        attempt: AttemptId { task: TaskId { job: JobId(12), index }, number: 1 },
        slice: Slice {
            worker: WorkerId(3),
            epoch: Epoch(2),
            cpus: MilliCpus(1000),
            memory: Bytes::from_gib(1),
            gpus: vec![
                GpuGrant { gpu: GpuUuid::from("GPU-1"), share: None },
                GpuGrant { gpu: GpuUuid::from("GPU-2"), share: Some(Bytes::from_gib(4)) },
            ],
            first_rank: 2,
            ranks: 2,
        },
        spec,
        lost_after: LostAfter::After(Millis::from_hours(1)),
        stop: None,
        prefetched: false,
        node: 1,
        nodes: 3,
        world_size: 6,
        begun: false,
    }
}
