//! A cluster that answers from a script and remembers what it was asked.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future, stream};

use crate::model::{
    AttemptId, Bytes, ComputeCapability, EndReason, Explanation, JobId, JobSpec, MilliCpus, Queue,
    TaskId, TaskState, Timestamp, UserName, WaitReason,
};
use crate::rpc::api::{
    Answer, Api, ApiError, BackupStream, ClusterView, Consistency, EndingView, ErrorKind, GpuView,
    JobAction, JobDetail, JobFilter, JobPage, JobView, LogChunk, LogRequest, LogStream,
    MemberAction, MemberView, QueueView, StatusView, SubmitRequest, Submitted, TargetRef,
    TaskCountsView, TaskFilter, TaskPage, TaskView, WaitAnswer, WorkerAction, WorkerView,
};
use crate::rpc::offline::{
    BackupView, LostMember, Offline, RecoveredView, RestoreRequest, RestoredView, SurvivorView,
};

/// 2026-01-31 12:00:00 UTC.
pub const NOW: Timestamp = Timestamp(1_769_860_800_000);

#[derive(Clone, Debug, Default)]
pub struct Fake {
    pub asked: Arc<Mutex<Vec<String>>>,
    /// What calls answer before they begin to succeed.
    pub faults: Arc<Mutex<VecDeque<ErrorKind>>>,
}

impl Fake {
    pub fn failing(faults: impl IntoIterator<Item = ErrorKind>) -> Fake {
        let faults = Arc::new(Mutex::new(faults.into_iter().collect()));
        Fake { faults, ..Fake::default() }
    }

    fn answer<T: Send + 'static>(&self, asked: String, answer: T) -> Answer<T> {
        self.asked.lock().unwrap().push(asked);
        let fault = self.faults.lock().unwrap().pop_front();
        let answer = match fault {
            Some(kind) => Err(ApiError::new(kind, format!("the cluster says {kind:?}"))),
            None => Ok(answer),
        };
        future::ready(answer).boxed()
    }
}

fn before(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 - seconds * 1000)
}

/// A job in each state that looks different.
pub fn jobs() -> Vec<JobView> {
    let job = |id, name: &str, status| JobView {
        job_id: JobId(id),
        name: name.to_owned(),
        user: UserName::from("ada"),
        queue: String::from("default"),
        status,
        reason: None,
        priority: 0,
        submitted_at: before(7200),
        started_at: None,
        completed_at: None,
        tasks: TaskCountsView::default(),
        cpus: MilliCpus::from_cores(1),
        memory: Bytes(0),
        gpus: 0,
        nodes: 1,
        is_array: false,
        workers: Vec::new(),
        ended: None,
        time_limit_ms: None,
    };
    let ended = |reason: &str, exit_code, signal| EndingView {
        reason: reason.to_owned(),
        exit_code,
        signal,
        message: None,
    };
    vec![
        JobView { reason: Some(WaitReason::Held), ..job(16, "held", TaskState::Pending) },
        JobView {
            reason: Some(WaitReason::Resources),
            gpus: 8,
            nodes: 2,
            priority: 5,
            cpus: MilliCpus(1500),
            memory: Bytes::from_gib(64),
            time_limit_ms: Some(14_400_000),
            ..job(15, "a-very-long-name-of-a-job-that-somebody-chose", TaskState::Queued)
        },
        JobView {
            tasks: TaskCountsView {
                running: 4,
                queued: 93,
                completed: 2,
                failed: 1,
                ..Default::default()
            },
            is_array: true,
            workers: ["gpu-box-1", "gpu-box-2", "gpu-box-3", "gpu-box-4", "gpu-box-5"]
                .map(String::from)
                .into(),
            started_at: Some(before(3661)),
            gpus: 1,
            ..job(14, "sweep", TaskState::Running)
        },
        JobView {
            started_at: Some(before(100)),
            completed_at: Some(before(98)),
            ..job(13, "true", TaskState::Completed)
        },
        JobView {
            started_at: Some(before(100)),
            completed_at: Some(before(40)),
            ended: Some(ended("EXIT", Some(3), None)),
            ..job(12, "exits", TaskState::Failed)
        },
        JobView {
            started_at: Some(before(100)),
            completed_at: Some(before(40)),
            ended: Some(ended("SIGNAL", None, Some(9))),
            ..job(11, "dies", TaskState::Failed)
        },
        JobView {
            completed_at: Some(before(40)),
            ended: Some(ended("USER", None, None)),
            ..job(10, "unwanted", TaskState::Cancelled)
        },
    ]
}

fn task(index: u32, status: TaskState) -> TaskView {
    TaskView {
        task_id: format!("14.{index}"),
        index,
        status,
        attempt: 1,
        failures: 0,
        worker_names: vec![String::from("gpu-box-1")],
        gpus: vec![String::from("GPU-1")],
        placed_at: Some(before(62)),
        started_at: Some(before(61)),
        ended_at: None,
        stopping: false,
        ended: None,
    }
}

impl Api for Fake {
    fn submit(&self, request: SubmitRequest) -> Answer<Submitted> {
        let asked = format!(
            "submit {:?} as {}{}{}{}",
            request.spec.command,
            request.user,
            if request.strict { " strict" } else { "" },
            if request.dry_run { " dry" } else { "" },
            if request.key.as_str().len() == 36 {
                String::new()
            } else {
                format!(" key {}", request.key)
            },
        );
        let warned = request.spec.request.gpus.count > 100;
        self.answer(
            asked,
            Submitted {
                job_id: (!request.dry_run).then_some(JobId(12)),
                tasks: request.spec.tasks(),
                warnings: warned
                    .then(|| String::from("no worker has 101 GPUs"))
                    .into_iter()
                    .collect(),
            },
        )
    }

    fn jobs(&self, filter: JobFilter, consistency: Consistency) -> Answer<JobPage> {
        let first = filter.before.is_none();
        let asked = format!("jobs {filter:?} {consistency:?}");
        let jobs = jobs().into_iter().filter(|job| filter.finished || !job.status.is_final());
        let jobs = jobs.filter(|job| first == (job.job_id > JobId(14)));
        self.answer(asked, JobPage { jobs: jobs.collect(), next: first.then_some(JobId(15)) })
    }

    fn job(&self, id: JobId, _: Consistency) -> Answer<JobDetail> {
        let Some(job) = jobs().into_iter().find(|job| job.job_id == id) else {
            let error = ApiError::new(
                ErrorKind::NotFound,
                format!("no job {id}; `drigs jobs -a` lists them"),
            );
            return future::ready(Err(error)).boxed();
        };
        let mut spec = JobSpec {
            command: ["python", "train.py", "--name", "a b"].map(String::from).into(),
            env: BTreeMap::from([("HF_HOME".to_owned(), "/data".to_owned())]),
            time_limit: job.time_limit_ms.map(crate::model::Millis),
            ..JobSpec::default()
        };
        spec.request.gpus.count = job.gpus;
        spec.array = job.is_array.then(|| crate::model::Array {
            indices: crate::model::IndexSet::from_range(0, 99),
            max_running: Some(4),
        });
        let task_list = if job.is_array { vec![task(3, TaskState::Running)] } else { Vec::new() };
        let detail = JobDetail { job, spec, waits_for: vec![JobId(3)], held_by: None, task_list };
        self.answer(format!("job {id}"), detail)
    }

    fn tasks(&self, filter: TaskFilter, _: Consistency) -> Answer<TaskPage> {
        let tasks = match filter.index {
            Some(index) if index < 100 => vec![task(index, TaskState::Running)],
            _ => Vec::new(),
        };
        self.answer(
            format!("tasks {} {:?}", filter.job, filter.index),
            TaskPage { tasks, next: None },
        )
    }

    fn explain(&self, target: TargetRef, _: Consistency) -> Answer<Explanation> {
        if target == TargetRef::Job(JobId(2)) {
            let recovering = Explanation {
                target: String::from("2"),
                state: TaskState::Recovering,
                reason: Some(WaitReason::Recovering),
                ended: None,
                lines: vec![String::from("2.0.1 may still run on worker gpu-box-1.")],
                ahead: None,
                earliest_start: None,
            };
            return self.answer(format!("explain {target:?}"), recovering);
        }
        self.answer(
            format!("explain {target:?}"),
            Explanation {
                target: String::from("15"),
                state: TaskState::Queued,
                reason: Some(WaitReason::Resources),
                ended: None::<EndReason>,
                lines: vec![
                    String::from("It needs 8 GPUs on each of 2 workers."),
                    String::from(
                        "3 of 3 workers have too few free GPUs: job 14 holds 4 of gpu-box-1.",
                    ),
                ],
                ahead: Some(2),
                earliest_start: Some(Timestamp(NOW.0 + 600_000)),
            },
        )
    }

    fn act(&self, target: TargetRef, action: JobAction, by: UserName) -> Answer<()> {
        self.answer(format!("act {target:?} {action:?} by {by}"), ())
    }

    fn wait(&self, ids: Vec<JobId>, _: Duration) -> Answer<WaitAnswer> {
        let jobs: Vec<JobView> =
            ids.iter().flat_map(|id| jobs().into_iter().find(|job| job.job_id == *id)).collect();
        let done = jobs.iter().all(|job| job.status.is_final());
        self.answer(format!("wait {ids:?}"), WaitAnswer { jobs, done })
    }

    fn logs(&self, request: LogRequest) -> Answer<LogStream> {
        let from = request.from;
        let chunk = move |offset: u64, text: &str| LogChunk {
            attempt: AttemptId { task: TaskId { job: JobId(14), index: 3 }, number: 2 },
            offset,
            bytes: text.as_bytes().to_vec(),
            dropped: if offset == 0 { 2048 } else { 0 },
        };
        let broken = Err(ApiError::new(ErrorKind::Unavailable, "the stream broke"));
        // The first time it breaks in the middle.
        let chunks = match from {
            0 => vec![Ok(chunk(0, "epoch 1\n")), broken],
            from => vec![Ok(chunk(from, "epoch 2\n"))],
        };
        self.answer(format!("logs {request:?}"), stream::iter(chunks).boxed())
    }

    fn workers(&self, _: Consistency) -> Answer<Vec<WorkerView>> {
        let worker = |id: &str, name: &str, status: &str, reason: Option<&str>| WorkerView {
            worker_id: id.to_owned(),
            name: name.to_owned(),
            address: String::from("10.0.0.5"),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            version: String::from("0.2.0"),
            cpus: MilliCpus::from_cores(64),
            cpus_used: MilliCpus(1500),
            memory: Bytes::from_gib(512),
            memory_used: Bytes::from_gib(64),
            gpus: 8,
            gpus_used: 1,
            running: 1,
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            ephemeral: false,
            registered_at: before(100_000),
            heard_ms_ago: Some(1200),
        };
        self.answer(
            String::from("workers"),
            vec![
                worker("w1", "gpu-box-1", "READY", None),
                worker("w2", "gpu-box-2", "DRAINING", Some("new driver\non monday")),
            ],
        )
    }

    fn act_on_worker(&self, worker: String, action: WorkerAction) -> Answer<()> {
        self.answer(format!("worker {worker} {action:?}"), ())
    }

    fn gpus(&self, _: Consistency) -> Answer<Vec<GpuView>> {
        let gpu = |index: u32, held_by: &[&str]| GpuView {
            worker: String::from("gpu-box-1"),
            device_id: format!("gpu-{index}"),
            uuid: format!("GPU-0000-{index}"),
            model_name: String::from("NVIDIA A100-SXM4-80GB"),
            total_memory_bytes: Bytes::from_gib(80),
            available_memory_bytes: Bytes::from_gib(if held_by.is_empty() { 80 } else { 0 }),
            compute_capability: Some(ComputeCapability { major: 8, minor: 0 }),
            state: String::from("HEALTHY"),
            reason: None,
            held_by: held_by.iter().map(|it| (*it).to_owned()).collect(),
        };
        self.answer(String::from("gpus"), vec![gpu(0, &["14.3.1"]), gpu(1, &[])])
    }

    fn queues(&self, _: Consistency) -> Answer<Vec<QueueView>> {
        let queue = Queue { max_gpus: Some(4), ..Queue::default() };
        let view = |name: &str, queue| QueueView {
            name: name.into(),
            queue,
            waiting_jobs: 2,
            active_tasks: 4,
        };
        self.answer(
            String::from("queues"),
            vec![view("default", Queue::default()), view("night", queue)],
        )
    }

    fn put_queue(&self, name: String, queue: Queue) -> Answer<()> {
        self.answer(format!("queue {name} {queue:?}"), ())
    }

    fn status(&self, _: Consistency) -> Answer<StatusView> {
        self.answer(
            String::from("status"),
            StatusView {
                cluster_id: String::from("c-1"),
                leader: Some(2),
                version: String::from("0.2.0"),
                controllers: 3,
                controllers_reachable: 2,
                workers: 3,
                workers_ready: 2,
                cpus: MilliCpus::from_cores(64),
                cpus_used: MilliCpus(1500),
                gpus: 8,
                gpus_used: 1,
                jobs_submitted: 16,
                ..StatusView::default()
            },
        )
    }

    fn cluster(&self) -> Answer<ClusterView> {
        let member = |id, role: &str, lag: Option<u64>| MemberView {
            id,
            address: format!("10.0.0.{id}:7070"),
            role: role.to_owned(),
            reachable: lag.map(|_| true),
            matched: Some(100),
            lag,
            applied: Some(100),
            state_hash: Some(String::from("5f3759df00112233")),
            version: Some(String::from("0.2.0")),
        };
        let joins = self.asked.lock().unwrap().iter().any(|asked| asked.contains("Add { id: 4"));
        let newcomer = joins.then(|| member(4, "LEARNER", Some(0)));
        self.answer(
            String::from("cluster"),
            ClusterView {
                cluster_id: String::from("c-1"),
                answered_by: 1,
                leader: Some(2),
                term: 7,
                generation: 1,
                last_log: Some(100),
                members: vec![
                    member(1, "VOTER", Some(0)),
                    member(2, "LEADER", Some(0)),
                    member(3, "VOTER", None),
                ]
                .into_iter()
                .chain(newcomer)
                .collect(),
            },
        )
    }

    fn backup(&self) -> Answer<BackupStream> {
        let chunks = ["a ", "backup"].map(|text| Ok(bytes::Bytes::from(text)));
        self.answer(String::from("backup"), stream::iter(chunks).boxed())
    }

    fn act_on_members(&self, action: MemberAction) -> Answer<()> {
        self.answer(format!("member {action:?}"), ())
    }
}

/// Files that are all sound.
#[derive(Clone, Copy, Debug)]
pub struct FakeFiles;

fn backup(file: &std::path::Path) -> BackupView {
    BackupView {
        file: file.display().to_string(),
        file_bytes: 4096,
        cluster_id: String::from("c-1"),
        generation: 1,
        controller: 2,
        version: String::from("0.2.0"),
        taken_at: before(3600),
        applied_index: 100,
        applied_term: 7,
        state_hash: String::from("5f3759df00112233"),
        feature_level: 1,
        jobs_submitted: 16,
        active_tasks: 3,
        workers: 2,
        entries_beyond: 0,
    }
}

impl Offline for FakeFiles {
    fn backup(
        &self,
        _: &std::path::Path,
        target: &std::path::Path,
    ) -> Result<BackupView, ApiError> {
        Ok(BackupView { entries_beyond: 5, ..backup(target) })
    }

    fn inspect(&self, file: &std::path::Path) -> Result<BackupView, ApiError> {
        Ok(backup(file))
    }

    fn restore(&self, request: RestoreRequest) -> Result<RestoredView, ApiError> {
        Ok(RestoredView {
            cluster_id: String::from("c-2"),
            controller: request.id,
            address: request.address,
            data_dir: request.data_dir.display().to_string(),
            backup: backup(&request.file),
        })
    }

    fn survey(&self, _: &std::path::Path) -> Result<SurvivorView, ApiError> {
        Ok(SurvivorView {
            cluster_id: String::from("c-1"),
            controller: 1,
            address: String::from("10.0.0.1:7070"),
            others: vec![LostMember { id: 2, address: String::from("10.0.0.2:7070") }],
            last_index: 100,
            last_term: 7,
            last_written_at: Some(before(60)),
            known_committed: Some(98),
            begun: false,
        })
    }

    fn recover(
        &self,
        data_dir: &std::path::Path,
        cluster_id: &str,
    ) -> Result<RecoveredView, ApiError> {
        let survivor = self.survey(data_dir)?;
        Ok(RecoveredView { cluster_id: format!("{cluster_id}-g2"), generation: 2, survivor })
    }
}
