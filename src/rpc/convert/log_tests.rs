//! What once entered a log must be read for ever: a golden file per command.

use std::{collections::BTreeMap, fs, path::PathBuf};

use uuid::Uuid;

use super::{decode_batch, encode_commands, join_commands};
use crate::model::{
    Array, AttemptId, Backend, Bytes, Checkpoint, ComputeCapability, Container, Dependency,
    DependencyKind, Distribution, EndReason, Ending, Epoch, Gpu, GpuGrant, GpuHealth, GpuRequest,
    GpuUuid, IdempotencyKey, JobId, JobSpec, Layout, LostAfter, MilliCpus, Millis, Placement,
    Queue, QueueName, Request, Retry, RetryCause, Slice, Stop, TaskId, Timestamp, UserName,
    WorkerId, WorkerName,
};
use crate::rpc::convert::Malformed;
use crate::state::{Batch, Command, RegisterWorker, SubmitJob, Target};

#[test]
fn every_command_reads_back_from_its_golden_file() {
    for (name, command) in samples() {
        let bytes = encode_commands(std::slice::from_ref(&command));
        let golden = golden_file(name);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&golden, &bytes).unwrap();
        }
        let kept =
            fs::read(&golden).unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
        let batch = decode_batch(&kept).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(batch.commands, [command], "{name} means something else now");
        assert_eq!(bytes, kept, "{name} is written differently now");
    }
}

#[test]
fn no_command_is_without_a_sample() {
    let named: Vec<&str> = samples().iter().map(|(_, command)| name_of(command)).collect();
    let files: Vec<&str> = samples().iter().map(|(name, _)| *name).collect();
    for (name, file) in named.iter().zip(&files) {
        assert!(file.starts_with(name), "{file} holds a {name}");
    }
    let mut kinds = named;
    kinds.dedup();
    assert_eq!(kinds.len(), 23, "a new command needs a sample, and a golden file");
}

#[test]
fn parts_of_several_proposers_are_one_batch() {
    let commands: Vec<Command> = samples().into_iter().map(|(_, command)| command).collect();
    let (first, second) = commands.split_at(3);
    let parts = [encode_commands(first), encode_commands(&[]), encode_commands(second)];
    let bytes = join_commands(Timestamp(17), parts.iter().map(|part| &part[..]));
    assert_eq!(decode_batch(&bytes).unwrap(), Batch { at: Timestamp(17), commands });
}

#[test]
fn what_a_newer_version_wrote_is_refused_and_named() {
    // A command of the unknown kind 999, and a spec without a layout.
    let unknown = [0x12, 0x03, 0xBA, 0x3E, 0x00];
    assert!(matches!(decode_batch(&unknown), Err(Malformed::UnknownCommand)));
    let bare = [0x12, 0x04, 0x0A, 0x02, 0x0A, 0x00];
    let fault = decode_batch(&bare).unwrap_err().to_string();
    assert_eq!(fault, "field `command` is missing");
    assert!(matches!(decode_batch(&[0xFF]), Err(Malformed::Bytes(_))));
}

fn golden_file(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/rpc/convert/golden");
    dir.join(format!("{name}.bin"))
}

/// Every kind of command, with every field that it can have.
fn samples() -> Vec<(&'static str, Command)> {
    let task = TaskId { job: JobId(12), index: 3 };
    let attempt = AttemptId { task, number: 2 };
    let (worker, epoch) = (WorkerId(7), Epoch(4));
    let ada = || UserName::from("ada");
    vec![
        ("submit_job", submission(full_spec())),
        ("submit_job_minimal", submission(JobSpec::default())),
        ("cancel_tasks", Command::CancelTasks { target: Target::Task(task), by: ada() }),
        (
            "cancel_tasks_of_a_job",
            Command::CancelTasks { target: Target::Job(JobId(1)), by: ada() },
        ),
        ("hold_job", Command::HoldJob { job: JobId(12), by: ada() }),
        ("release_job", Command::ReleaseJob { job: JobId(12) }),
        ("requeue_tasks", Command::RequeueTasks { target: Target::Task(task) }),
        ("set_priority", Command::SetPriority { job: JobId(12), priority: 500 }),
        ("register_worker", Command::RegisterWorker(registration())),
        ("start_part", Command::StartPart { attempt, worker, epoch }),
        ("end_part", Command::EndPart { attempt, worker, epoch, ending: ending() }),
        ("update_gpus", Command::UpdateGpus { worker, epoch, gpus: gpus() }),
        ("place_task", Command::PlaceTask(placement(task))),
        ("silence_worker", Command::SilenceWorker { worker, epoch }),
        ("reconnect_worker", Command::ReconnectWorker { worker, epoch }),
        ("give_up_attempt", Command::GiveUpAttempt { attempt, worker }),
        ("recall_attempt", Command::RecallAttempt { attempt }),
        ("retire_jobs", Command::RetireJobs { jobs: [JobId(1), JobId(300)].into() }),
        ("drain_worker", Command::DrainWorker { worker, reason: "new disk".to_owned() }),
        ("resume_worker", Command::ResumeWorker { worker }),
        ("forget_worker", Command::ForgetWorker { worker }),
        ("put_queue", Command::PutQueue { name: QueueName::from("night"), queue: queue() }),
        ("begin_generation", Command::BeginGeneration { adopted: None }),
        (
            "begin_generation_adopting",
            Command::BeginGeneration { adopted: Some("6f0c".to_owned()) },
        ),
        ("settle_worker", Command::SettleWorker { worker, epoch }),
        ("raise_feature_level", Command::RaiseFeatureLevel { level: 2 }),
    ]
}

/// Matches without a catch-all: a new command does not compile until it has a name here.
fn name_of(command: &Command) -> &'static str {
    match command {
        Command::SubmitJob(_) => "submit_job",
        Command::CancelTasks { .. } => "cancel_tasks",
        Command::HoldJob { .. } => "hold_job",
        Command::ReleaseJob { .. } => "release_job",
        Command::RequeueTasks { .. } => "requeue_tasks",
        Command::SetPriority { .. } => "set_priority",
        Command::RegisterWorker(_) => "register_worker",
        Command::StartPart { .. } => "start_part",
        Command::EndPart { .. } => "end_part",
        Command::UpdateGpus { .. } => "update_gpus",
        Command::PlaceTask(_) => "place_task",
        Command::SilenceWorker { .. } => "silence_worker",
        Command::ReconnectWorker { .. } => "reconnect_worker",
        Command::GiveUpAttempt { .. } => "give_up_attempt",
        Command::RecallAttempt { .. } => "recall_attempt",
        Command::RetireJobs { .. } => "retire_jobs",
        Command::DrainWorker { .. } => "drain_worker",
        Command::ResumeWorker { .. } => "resume_worker",
        Command::ForgetWorker { .. } => "forget_worker",
        Command::PutQueue { .. } => "put_queue",
        Command::BeginGeneration { .. } => "begin_generation",
        Command::SettleWorker { .. } => "settle_worker",
        Command::RaiseFeatureLevel { .. } => "raise_feature_level",
    }
}

fn submission(spec: JobSpec) -> Command {
    let key = IdempotencyKey::from("a key of the client's");
    Command::SubmitJob(Box::new(SubmitJob { spec, user: UserName::from("ada"), key }))
}

fn full_spec() -> JobSpec {
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    JobSpec {
        name: "train".to_owned(),
        queue: QueueName::from("night"),
        priority: 40,
        request: Request {
            cpus: MilliCpus(1500),
            memory: Bytes::from_gib(8),
            gpus: GpuRequest {
                count: 4,
                memory: Some(Bytes::from_gib(16)),
                sharing: true,
                model: Some("A100".to_owned()),
                min_compute_capability: Some(ComputeCapability { major: 8, minor: 6 }),
                topology_aware: true,
            },
        },
        layout: Layout::Nodes(2),
        backend: Backend::Distributed,
        command: vec!["python".to_owned(), "train.py".to_owned()],
        env: map("NCCL_DEBUG", "INFO"),
        working_dir: Some("/work".to_owned()),
        container: Some(Container { image: "pytorch".to_owned(), volumes: map("/data", "/mnt") }),
        distribution: Some(Distribution {
            mode: "torchrun".to_owned(),
            world_size: 8,
            master_addr: Some("10.0.0.1".to_owned()),
            master_port: Some(29500),
        }),
        checkpoint: Some(Checkpoint { interval: Millis(60_000), dir: Some("/ckpt".to_owned()) }),
        time_limit: Some(Millis::from_hours(4)),
        retry: Retry {
            max: 3,
            on: [
                RetryCause::Failure,
                RetryCause::ExitCode(-3),
                RetryCause::Signal,
                RetryCause::OutOfMemory,
                RetryCause::Timeout,
                RetryCause::StartFailed,
            ]
            .into(),
        },
        stop: Stop { signal: 2, grace: Millis(5_000) },
        array: Some(Array { indices: "0-99,200".parse().unwrap(), max_running: Some(10) }),
        dependencies: [
            DependencyKind::AfterOk,
            DependencyKind::AfterAny,
            DependencyKind::AfterNotOk,
        ]
        .map(|kind| Dependency { kind, job: JobId(5) })
        .into(),
        begin: Some(Timestamp(1_700_000_000_000)),
        lost_after: Some(LostAfter::After(Millis(120_000))),
        held: true,
        labels: map("zone", "a"),
    }
}

fn registration() -> RegisterWorker {
    RegisterWorker {
        uuid: Uuid::from_u128(0x1234_5678_9abc),
        name: WorkerName::from("gpu-1"),
        epoch: Epoch(4),
        address: "10.0.0.9".to_owned(),
        version: "0.2.0".to_owned(),
        cpus: MilliCpus(64_000),
        memory: Bytes::from_gib(512),
        gpus: gpus(),
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        backends: [Backend::Native, Backend::Docker].into(),
        ephemeral: true,
    }
}

fn gpus() -> Vec<Gpu> {
    let gpu = |index, health, compute_capability| Gpu {
        uuid: GpuUuid::new(format!("GPU-{index}")),
        index,
        model: "NVIDIA A100".to_owned(),
        memory: Bytes::from_gib(80),
        compute_capability,
        health,
    };
    vec![
        gpu(0, GpuHealth::Healthy, Some(ComputeCapability { major: 8, minor: 0 })),
        gpu(1, GpuHealth::Quarantined { reason: "XID 79".to_owned() }, None),
    ]
}

fn placement(task: TaskId) -> Placement {
    let whole = GpuGrant { gpu: GpuUuid::from("GPU-0"), share: None };
    let shared = GpuGrant { gpu: GpuUuid::from("GPU-1"), share: Some(Bytes::from_gib(16)) };
    let slice = |worker, first_rank, gpus| Slice {
        worker: WorkerId(worker),
        epoch: Epoch(4),
        cpus: MilliCpus(1500),
        memory: Bytes::from_gib(8),
        gpus,
        first_rank,
        ranks: 1,
    };
    let slices = vec![slice(7, 0, vec![whole]), slice(8, 1, vec![shared])];
    Placement { task, slices, prefetch: true }
}

fn ending() -> Ending {
    Ending {
        reason: EndReason::OutOfMemoryGpu,
        exit_code: Some(-1),
        signal: Some(9),
        message: Some("CUDA out of memory".to_owned()),
        at: Timestamp(1_700_000_000_123),
    }
}

fn queue() -> Queue {
    Queue { priority: 5, weight: 3, max_gpus: Some(16), open: true }
}
