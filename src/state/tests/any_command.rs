//! Any command in any order, valid and absurd: nothing that must always hold ever breaks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

use crate::{
    model::{
        Array, AttemptId, Backend, Bytes, Dependency, DependencyKind, EndReason, Ending, Epoch,
        Gpu, GpuGrant, GpuHealth, GpuRequest, GpuUuid, IndexSet, JobId, JobSpec, Layout, MilliCpus,
        Millis, Placement, Queue, QueueName, Request, Retry, Slice, TaskId, Timestamp, WorkerId,
    },
    scheduler::{self, View},
    state::{Command, RegisterWorker, SubmitJob, Target, testing::World},
};

#[derive(Clone, Debug)]
enum Step {
    Command(Box<Command>),
    Wait(Millis),
    /// The scheduler's own placements and recalls: what a leader would propose now.
    Plan,
    /// The worker of some attempt says that it runs, or how it ended.
    Report {
        place: usize,
        ending: Option<EndReason>,
    },
}

fn job_id() -> impl Strategy<Value = JobId> {
    prop_oneof![9 => 1u64..9, 1 => any::<u64>()].prop_map(JobId)
}

fn task_id() -> impl Strategy<Value = TaskId> {
    (job_id(), prop_oneof![9 => 0u32..4, 1 => any::<u32>()])
        .prop_map(|(job, index)| TaskId { job, index })
}

fn attempt_id() -> impl Strategy<Value = AttemptId> {
    (task_id(), prop_oneof![9 => 1u32..4, 1 => any::<u32>()])
        .prop_map(|(task, number)| AttemptId { task, number })
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![job_id().prop_map(Target::Job), task_id().prop_map(Target::Task)]
}

fn worker_id() -> impl Strategy<Value = WorkerId> {
    (1u64..5).prop_map(WorkerId)
}

fn epoch() -> impl Strategy<Value = Epoch> {
    prop_oneof![5 => Just(1), 1 => 0u64..4].prop_map(Epoch)
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0u64..5, 1 => any::<u64>()]
}

fn cpus() -> impl Strategy<Value = MilliCpus> {
    amount().prop_map(|cores| MilliCpus(cores.saturating_mul(1000)))
}

fn gib() -> impl Strategy<Value = Bytes> {
    amount().prop_map(|gib| Bytes(gib.saturating_mul(1 << 30)))
}

fn end_reason() -> impl Strategy<Value = EndReason> {
    prop::sample::select(vec![
        EndReason::Success,
        EndReason::Exit,
        EndReason::Signal,
        EndReason::Timeout,
        EndReason::NodeLost,
        EndReason::Preempted,
        EndReason::GpuFault,
        EndReason::GangFailed,
        EndReason::User,
    ])
}

fn gpus() -> impl Strategy<Value = Vec<Gpu>> {
    let gpu = (0u32..5, gib(), any::<bool>()).prop_map(|(index, memory, healthy)| Gpu {
        uuid: GpuUuid::from(format!("GPU-{index}").as_str()),
        index,
        model: String::from("T4"),
        memory,
        compute_capability: None,
        health: match healthy {
            true => GpuHealth::Healthy,
            false => GpuHealth::Quarantined { reason: String::from("Xid 79") },
        },
    });
    prop::collection::vec(gpu, 0..3)
}

fn registration() -> impl Strategy<Value = Command> {
    (1u128..5, 0u8..4, epoch(), cpus(), gib(), gpus()).prop_map(
        |(uuid, name, epoch, cpus, memory, gpus)| {
            Command::RegisterWorker(RegisterWorker {
                uuid: Uuid::from_u128(uuid),
                name: format!("worker-{name}").as_str().into(),
                epoch,
                address: String::new(),
                version: String::new(),
                cpus,
                memory,
                gpus,
                labels: Default::default(),
                backends: [Backend::Native].into(),
                ephemeral: false,
            })
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    (cpus(), gib(), 0u32..3, prop::option::of(gib()), any::<bool>()).prop_map(
        |(cpus, memory, count, vram, sharing)| {
            let gpus = GpuRequest { count, memory: vram, sharing, ..GpuRequest::default() };
            Request { cpus, memory, gpus }
        },
    )
}

fn dependency() -> impl Strategy<Value = Dependency> {
    let kinds = [DependencyKind::AfterOk, DependencyKind::AfterAny, DependencyKind::AfterNotOk];
    (prop::sample::select(kinds.to_vec()), job_id())
        .prop_map(|(kind, job)| Dependency { kind, job })
}

fn submission() -> impl Strategy<Value = Command> {
    let layout = prop_oneof![
        6 => Just(Layout::Single), 2 => (0u32..4).prop_map(Layout::Nodes), 1 => Just(Layout::Anywhere)
    ];
    let array = prop::option::of((0u32..5, prop::option::of(0u32..3)));
    let dependencies =
        prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(dependency(), 0..3)];
    let limits = (0u32..3, prop::option::of(0u64..100_000), prop::option::of(0u64..90_000_000));
    let who = (0u32..40, any::<bool>(), 0u32..3, prop_oneof![5 => Just("default"), 1 => Just("q")]);
    (request(), layout, array, dependencies, limits, who).prop_map(
        |(request, layout, array, dependencies, (retries, limit, begin), who)| {
            let (key, held, priority, queue) = who;
            let array = array.map(|(tasks, max_running)| Array {
                indices: (0..tasks).collect::<IndexSet>(),
                max_running,
            });
            let spec = JobSpec {
                queue: QueueName::from(queue),
                priority,
                request,
                layout,
                array,
                dependencies,
                time_limit: limit.map(Millis),
                begin: begin.map(Timestamp),
                held: held && key % 4 == 0,
                retry: Retry { max: retries, on: BTreeSet::new() },
                ..JobSpec::default()
            };
            let key = format!("key-{key}").as_str().into();
            Command::SubmitJob(Box::new(SubmitJob { spec, user: "ann".into(), key }))
        },
    )
}

fn placement() -> impl Strategy<Value = Command> {
    let grant = (0u32..5, prop::option::of(gib())).prop_map(|(index, share)| GpuGrant {
        gpu: GpuUuid::from(format!("GPU-{index}").as_str()),
        share,
    });
    let slice = (worker_id(), epoch(), cpus(), gib(), prop::collection::vec(grant, 0..3)).prop_map(
        |(worker, epoch, cpus, memory, gpus)| Slice {
            worker,
            epoch,
            cpus,
            memory,
            gpus,
            first_rank: 0,
            ranks: 1,
        },
    );
    (task_id(), prop::collection::vec(slice, 0..3), any::<bool>()).prop_map(
        |(task, slices, prefetch)| Command::PlaceTask(Placement { task, slices, prefetch }),
    )
}

fn ending(reason: EndReason) -> Ending {
    Ending::new(reason, Timestamp(7))
}

fn people() -> impl Strategy<Value = Command> {
    let queue = (0u32..3, prop::option::of(0u32..4), any::<bool>()).prop_map(
        |(priority, max_gpus, open)| Command::PutQueue {
            name: QueueName::from("q"),
            queue: Queue { priority, max_gpus, open, ..Queue::default() },
        },
    );
    prop_oneof![
        6 => submission(),
        1 => target().prop_map(|target| Command::CancelTasks { target, by: "ann".into() }),
        1 => job_id().prop_map(|job| Command::HoldJob { job, by: "ann".into() }),
        1 => job_id().prop_map(|job| Command::ReleaseJob { job }),
        2 => target().prop_map(|target| Command::RequeueTasks { target }),
        1 => (job_id(), 0u32..3).prop_map(|(job, priority)| Command::SetPriority { job, priority }),
        1 => queue,
        1 => (0u32..4).prop_map(|level| Command::RaiseFeatureLevel { level }),
    ]
}

fn workers() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => registration(),
        1 => (attempt_id(), worker_id(), epoch())
            .prop_map(|(attempt, worker, epoch)| Command::StartPart { attempt, worker, epoch }),
        1 => (attempt_id(), worker_id(), epoch(), end_reason()).prop_map(
            |(attempt, worker, epoch, reason)| Command::EndPart {
                attempt, worker, epoch, ending: ending(reason)
            }
        ),
        1 => (worker_id(), epoch(), gpus())
            .prop_map(|(worker, epoch, gpus)| Command::UpdateGpus { worker, epoch, gpus }),
        1 => worker_id().prop_map(|worker| Command::DrainWorker {
            worker,
            reason: String::from("disk")
        }),
        2 => worker_id().prop_map(|worker| Command::ResumeWorker { worker }),
        1 => worker_id().prop_map(|worker| Command::ForgetWorker { worker }),
    ]
}

fn leader() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => placement(),
        1 => (worker_id(), epoch())
            .prop_map(|(worker, epoch)| Command::SilenceWorker { worker, epoch }),
        2 => (worker_id(), epoch())
            .prop_map(|(worker, epoch)| Command::ReconnectWorker { worker, epoch }),
        1 => (attempt_id(), worker_id()).prop_map(|(attempt, worker)| Command::GiveUpAttempt { attempt, worker }),
        1 => attempt_id().prop_map(|attempt| Command::RecallAttempt { attempt }),
        1 => prop::collection::btree_set(job_id(), 0..3)
            .prop_map(|jobs| Command::RetireJobs { jobs }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let command = prop_oneof![3 => people(), 3 => workers(), 2 => leader()];
    prop_oneof![
        8 => command.prop_map(|command| Step::Command(Box::new(command))),
        2 => Just(Step::Plan),
        4 => (any::<usize>(), prop::option::of(end_reason()))
            .prop_map(|(place, ending)| Step::Report { place, ending }),
        1 => (0u64..20_000).prop_map(|length| Step::Wait(Millis(length))),
        1 => (0u64..90_000_000).prop_map(|length| Step::Wait(Millis(length))),
    ]
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Command(command) => drop(world.apply(*command)),
        Step::Wait(length) => world.advance(world.now + length),
        Step::Plan => follow_the_plan(world),
        Step::Report { place, ending } => report(world, place, ending),
    }
}

/// A plan made from the present state is accepted as it is: nothing of it is refused.
fn follow_the_plan(world: &mut World) {
    let view = View {
        now: world.now,
        in_touch: world.state.workers.keys().copied().collect(),
        ..View::default()
    };
    let plan = scheduler::plan(&world.state, &view, 5);
    for attempt in plan.recalls {
        world.apply(Command::RecallAttempt { attempt }).expect("what is recalled waits");
    }
    for placement in plan.placements {
        let shown = format!("{placement:?}");
        let outcome = world.apply(Command::PlaceTask(placement));
        assert!(outcome.is_ok(), "{shown} is refused: {outcome:?}");
    }
}

fn report(world: &mut World, place: usize, reason: Option<EndReason>) {
    let parts: Vec<(AttemptId, WorkerId, Epoch)> = world
        .state
        .workers
        .keys()
        .flat_map(|worker| world.state.attempts_on(*worker).map(move |id| (id, *worker)))
        .filter_map(|(id, worker)| {
            let part = world.state.live_attempt(id)?.part_on(worker)?;
            Some((id, worker, part.slice.epoch))
        })
        .collect();
    if parts.is_empty() {
        return;
    }
    let (attempt, worker, epoch) = parts[place % parts.len()];
    let _ = world.apply(match reason {
        None => Command::StartPart { attempt, worker, epoch },
        Some(reason) => Command::EndPart { attempt, worker, epoch, ending: ending(reason) },
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_must_hold_ever_breaks(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::default();
        for step in steps {
            take(&mut world, step);
        }
    }
}
