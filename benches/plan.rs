//! What a plan, an explanation and a command cost. `cargo bench --bench plan`; as a test, each runs once.

use std::collections::BTreeMap;

use divan::{Bencher, black_box, counter::ItemsCount};
use drigs::{
    model::{
        Array, AttemptId, Backend, Bytes, EndReason, Ending, Epoch, Gpu, GpuHealth, GpuUuid,
        IndexSet, JobId, JobSpec, MilliCpus, Placement, Timestamp, WorkerId,
    },
    scheduler::{Reasons, View, explain, plan},
    state::{Command, RegisterWorker, State, SubmitJob},
};
use uuid::Uuid;

fn main() {
    divan::main();
}

fn register(state: &mut State, number: u64, cores: u64, gpus: u32) {
    let gpu = |index| Gpu {
        uuid: GpuUuid::from(format!("GPU-{number:08x}-4d1f-9a52-{index:012x}").as_str()),
        index,
        model: String::from("NVIDIA A100-SXM4-80GB"),
        memory: Bytes::from_gib(80),
        compute_capability: "8.0".parse().ok(),
        health: GpuHealth::Healthy,
    };
    let registration = RegisterWorker {
        uuid: Uuid::from_u128(number.into()),
        name: format!("node-{number}").as_str().into(),
        epoch: Epoch(1),
        address: String::new(),
        version: String::from("0.2.0"),
        cpus: MilliCpus::from_cores(cores),
        memory: Bytes::from_gib(512),
        gpus: (0..gpus).map(gpu).collect(),
        labels: BTreeMap::new(),
        backends: [Backend::Native].into(),
        ephemeral: false,
    };
    state.apply(Command::RegisterWorker(registration)).expect("a fresh worker");
}

fn submit(state: &mut State, spec: JobSpec) {
    let key = format!("key-{}", state.counters.jobs_submitted).as_str().into();
    let submission = SubmitJob { spec, user: "ann".into(), key };
    state.apply(Command::SubmitJob(Box::new(submission))).expect("a plain job");
}

fn job(gpus: u32, mebibytes: u64) -> JobSpec {
    let mut spec = JobSpec::default();
    spec.request.gpus.count = gpus;
    spec.request.memory = Bytes::from_mib(mebibytes);
    spec
}

fn array(tasks: u32) -> JobSpec {
    let indices = IndexSet::from_range(0, tasks - 1);
    JobSpec { array: Some(Array { indices, max_running: None }), ..JobSpec::default() }
}

fn cluster(workers: u64, gpus: u32) -> State {
    let mut state = State::default();
    state.advance(Timestamp(1_000_000));
    (1..=workers).for_each(|number| register(&mut state, number, 64, gpus));
    state
}

fn view(state: &State) -> View {
    View {
        now: state.counters.now,
        in_touch: state.workers.keys().copied().collect(),
        ..View::default()
    }
}

fn follow(state: &mut State) {
    let plan = plan(state, &view(state), usize::MAX);
    for placement in plan.placements {
        state.apply(Command::PlaceTask(placement)).expect("planned for this state");
    }
}

/// Thirty workers, every CPU and GPU held, and behind them `queued` jobs of `classes` different requests.
fn full(queued: u64, classes: u64) -> State {
    let mut state = cluster(30, 8);
    (0..240).for_each(|_| submit(&mut state, job(1, 1024)));
    submit(&mut state, array(30 * 56));
    follow(&mut state);
    (0..queued).for_each(|number| submit(&mut state, job(1, 1024 + number % classes)));
    state
}

#[divan::bench(args = [1, 30, 10_000])]
fn plan_10000_jobs_on_30_full_workers(bencher: Bencher, classes: u64) {
    let state = full(10_000, classes);
    let view = view(&state);
    assert!(plan(&state, &view, 1000).placements.is_empty());
    bencher.bench_local(|| plan(black_box(&state), &view, 1000));
}

#[divan::bench]
fn plan_an_array_of_a_million_on_30_full_workers(bencher: Bencher) {
    let mut state = full(0, 1);
    submit(&mut state, array(1_000_000));
    let view = view(&state);
    bencher.bench_local(|| plan(black_box(&state), &view, 1000));
}

#[divan::bench(args = [30, 1000, 5000])]
fn plan_1000_jobs_on_empty_workers(bencher: Bencher, workers: u64) {
    let mut state = cluster(workers, 8);
    (0..1000).for_each(|number| submit(&mut state, job(u32::from(number % 5 == 0), 1024)));
    let view = view(&state);
    assert_eq!(plan(&state, &view, 1000).placements.len(), 1000);
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| plan(black_box(&state), &view, 1000));
}

#[divan::bench]
fn plan_1000_tasks_of_an_array_on_30_empty_workers(bencher: Bencher) {
    let mut state = cluster(30, 8);
    submit(&mut state, array(1_000_000));
    let view = view(&state);
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| plan(black_box(&state), &view, 1000));
}

#[divan::bench]
fn explain_the_last_of_10000_jobs(bencher: Bencher) {
    let state = full(10_000, 30);
    let view = view(&state);
    let last = JobId(state.counters.jobs_submitted);
    bencher.bench_local(|| explain(black_box(&state), &view, last, None));
}

#[divan::bench]
fn reasons_of_1000_jobs_among_10000(bencher: Bencher) {
    let state = full(10_000, 30);
    let view = view(&state);
    let last = state.counters.jobs_submitted;
    bencher.bench_local(|| {
        let reasons = Reasons::new(black_box(&state), &view);
        (last - 999..=last).filter_map(|id| reasons.of(JobId(id))).count()
    });
}

#[divan::bench]
fn apply_1000_submissions(bencher: Bencher) {
    let state = full(10_000, 30);
    bencher.counter(ItemsCount::new(1000u32)).with_inputs(|| state.clone()).bench_local_values(
        |mut state| {
            (0..1000).for_each(|_| submit(&mut state, job(1, 1024)));
            state
        },
    );
}

/// Placed, started and ended: three commands for each task.
#[divan::bench]
fn apply_the_lives_of_1000_array_tasks(bencher: Bencher) {
    let mut state = cluster(30, 8);
    submit(&mut state, array(1_000_000));
    let placements = plan(&state, &view(&state), 1000).placements;
    let lives: Vec<Command> = placements.into_iter().flat_map(life).collect();
    bencher
        .counter(ItemsCount::new(lives.len()))
        .with_inputs(|| (state.clone(), lives.clone()))
        .bench_local_values(|(mut state, lives)| {
            for command in lives {
                state.apply(command).expect("one after the other");
            }
            state
        });
}

fn life(placement: Placement) -> [Command; 3] {
    let attempt = AttemptId { task: placement.task, number: 1 };
    let worker: WorkerId = placement.slices[0].worker;
    let epoch = Epoch(1);
    let ending = Ending::new(EndReason::Success, Timestamp(0));
    [
        Command::PlaceTask(placement),
        Command::StartPart { attempt, worker, epoch },
        Command::EndPart { attempt, worker, epoch, ending },
    ]
}
