//! Commands from dice: whatever they do, the store must give back what memory holds.

use proptest::prelude::*;
use uuid::Uuid;

use crate::model::{
    Array, AttemptId, Backend, Bytes, EndReason, Ending, Epoch, IdempotencyKey, IndexSet, JobId,
    JobSpec, MilliCpus, Placement, Queue, QueueName, Slice, TaskId, Timestamp, UserName, WorkerId,
    WorkerName,
};
use crate::state::{Batch, Command, RegisterWorker, SubmitJob, Target};

const WORKERS: u64 = 3;
const EPOCH: Epoch = Epoch(1);

/// Mostly commands that fit, some that do not.
pub fn batches(most: usize) -> impl Strategy<Value = Vec<Batch>> {
    let batch = (1u64..5_000, prop::collection::vec(command(), 0..8));
    prop::collection::vec(batch, 1..most).prop_map(|batches| {
        let mut at = 1_700_000_000_000;
        let setup = Batch { at: Timestamp(at), commands: (1..=WORKERS).map(register).collect() };
        let rest = batches.into_iter().map(|(pause, commands)| {
            at += pause;
            Batch { at: Timestamp(at), commands }
        });
        std::iter::once(setup).chain(rest.collect::<Vec<_>>()).collect()
    })
}

fn command() -> impl Strategy<Value = Command> {
    let job = || (1u64..12).prop_map(JobId);
    let task = || (1u64..12, 0u32..4).prop_map(|(job, index)| TaskId { job: JobId(job), index });
    let attempt = || (task(), 1u32..3).prop_map(|(task, number)| AttemptId { task, number });
    let worker = || (1..=WORKERS).prop_map(WorkerId);
    let by = || UserName::from("dice");
    prop_oneof![
        6 => (0u32..4, 0u32..20).prop_map(|(last, key)| submit(last, key)),
        8 => (task(), worker(), any::<bool>()).prop_map(|(task, worker, prefetch)| place(task, worker, prefetch)),
        5 => (attempt(), worker()).prop_map(|(attempt, worker)| Command::StartPart { attempt, worker, epoch: EPOCH }),
        8 => (attempt(), worker(), 0i32..3).prop_map(|(attempt, worker, code)| end(attempt, worker, code)),
        1 => task().prop_map(move |task| Command::CancelTasks { target: Target::Task(task), by: by() }),
        1 => job().prop_map(move |job| Command::CancelTasks { target: Target::Job(job), by: by() }),
        1 => job().prop_map(move |job| Command::HoldJob { job, by: by() }),
        1 => job().prop_map(|job| Command::ReleaseJob { job }),
        2 => task().prop_map(|task| Command::RequeueTasks { target: Target::Task(task) }),
        1 => (job(), 0u32..9).prop_map(|(job, priority)| Command::SetPriority { job, priority }),
        2 => prop::collection::btree_set(job(), 0..6).prop_map(|jobs| Command::RetireJobs { jobs }),
        1 => worker().prop_map(|worker| Command::SilenceWorker { worker, epoch: EPOCH }),
        1 => worker().prop_map(|worker| Command::ReconnectWorker { worker, epoch: EPOCH }),
        1 => attempt().prop_map(|attempt| Command::GiveUpAttempt { attempt, worker: WorkerId(1) }),
        1 => worker().prop_map(|worker| Command::DrainWorker { worker, reason: "dice".to_owned() }),
        1 => worker().prop_map(|worker| Command::ResumeWorker { worker }),
        1 => worker().prop_map(|worker| Command::ForgetWorker { worker }),
        1 => (0u32..3).prop_map(put_queue),
    ]
}

fn submit(last: u32, key: u32) -> Command {
    let array = Array { indices: IndexSet::from_range(0, last), max_running: Some(3) };
    let spec = JobSpec { array: (last > 0).then_some(array), ..JobSpec::default() };
    let key = IdempotencyKey::new(format!("key {key}"));
    Command::SubmitJob(Box::new(SubmitJob { spec, user: UserName::from("dice"), key }))
}

fn place(task: TaskId, worker: WorkerId, prefetch: bool) -> Command {
    let slice = Slice {
        worker,
        epoch: EPOCH,
        cpus: MilliCpus::from_cores(1),
        memory: Bytes::from_mib(10),
        gpus: Vec::new(),
        first_rank: 0,
        ranks: 1,
    };
    Command::PlaceTask(Placement { task, slices: vec![slice], prefetch })
}

fn end(attempt: AttemptId, worker: WorkerId, code: i32) -> Command {
    let reason = if code == 0 { EndReason::Success } else { EndReason::Exit };
    let ending =
        Ending { exit_code: Some(code), ..Ending::new(reason, Timestamp(1_700_000_000_500)) };
    Command::EndPart { attempt, worker, epoch: EPOCH, ending }
}

fn register(number: u64) -> Command {
    Command::RegisterWorker(RegisterWorker {
        uuid: Uuid::from_u128(number.into()),
        name: WorkerName::new(format!("worker-{number}")),
        epoch: EPOCH,
        address: String::new(),
        version: String::new(),
        cpus: MilliCpus::from_cores(4),
        memory: Bytes::from_gib(4),
        gpus: Vec::new(),
        labels: Default::default(),
        backends: [Backend::Native].into(),
        ephemeral: false,
    })
}

fn put_queue(number: u32) -> Command {
    let queue = Queue { priority: number, ..Queue::default() };
    Command::PutQueue { name: QueueName::new(format!("queue {number}")), queue }
}
