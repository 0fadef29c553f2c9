//! Whatever is asked of whatever cluster: all that can run does run in the end, and nobody is passed for ever.

use proptest::prelude::*;

use super::Stage;
use crate::{
    model::{AttemptId, JobId, WorkerId},
    scheduler::infeasible,
};

fn worker() -> impl Strategy<Value = String> {
    (1u32..5, 1u32..5, 0u32..3, 1u32..3).prop_map(|(cpus, memory, gpus, vram)| {
        format!("cpus {cpus} mem {memory}G gpus {gpus}xT4:{}G", vram * 8)
    })
}

fn job() -> impl Strategy<Value = String> {
    let shape =
        prop::sample::select(vec!["", "", "nodes 2", "anywhere", "array 0-3", "array 0-5%2"]);
    let gpus = prop::sample::select(vec![
        "",
        "gpus 1",
        "gpus 2",
        "gpus 1 vram 6G shared",
        "gpus 1 vram 12G",
    ]);
    let limit = prop::sample::select(vec!["", "limit 10s", "limit 1h"]);
    (1u32..5, 0u32..5, shape, gpus, limit, 0u32..3).prop_map(
        |(cpus, memory, shape, gpus, limit, priority)| {
            format!("cpus {cpus} mem {memory}G {shape} {gpus} {limit} prio {priority}")
        },
    )
}

/// Ends one attempt, and says whether there was one.
fn end_one(stage: &mut Stage, place: usize) -> bool {
    let attempts = running(stage);
    let attempt = attempts.get(place % attempts.len().max(1)).copied();
    attempt.is_some_and(|attempt| end(stage, attempt))
}

fn end_oldest(stage: &mut Stage) -> bool {
    let oldest = running(stage).into_iter().min();
    oldest.is_some_and(|attempt| end(stage, attempt))
}

fn running(stage: &Stage) -> Vec<(AttemptId, WorkerId)> {
    let state = &stage.world.state;
    let on = |id: &WorkerId| {
        let id = *id;
        state.attempts_on(id).map(move |attempt| (attempt, id)).collect::<Vec<_>>()
    };
    state
        .workers
        .keys()
        .flat_map(on)
        .filter(|(id, _)| state.live_attempt(*id).is_some_and(|it| !it.prefetched))
        .collect()
}

fn end(stage: &mut Stage, (attempt, worker): (AttemptId, WorkerId)) -> bool {
    let name = stage.world.state.workers.get(&worker).unwrap().name.to_string();
    stage.run(&format!("end {attempt} on {name} ok"));
    true
}

fn is_started(stage: &Stage, id: u64) -> bool {
    stage.world.state.jobs.get(&JobId(id)).unwrap().queued.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn all_that_can_run_runs_in_the_end(
        workers in prop::collection::vec(worker(), 1..4),
        jobs in prop::collection::vec(job(), 1..8),
        places in prop::collection::vec(any::<usize>(), 1..8),
    ) {
        let mut stage = Stage::default();
        for (number, worker) in workers.iter().enumerate() {
            stage.run(&format!("worker w-{number} {worker}"));
        }
        for job in &jobs {
            stage.run(&format!("job any {job}"));
        }
        for turn in 0.. {
            stage.run("+20ms");
            stage.follow();
            if !end_one(&mut stage, places[turn % places.len()]) {
                break;
            }
            prop_assert!(turn < 1000, "it never ends");
        }
        for (id, job) in stage.world.state.jobs.iter() {
            let hopeless = infeasible(&stage.world.state, &job.spec).is_some();
            prop_assert!(job.is_finished() || hopeless, "job {id} was left over: {job:?}");
        }
    }

    /// Small jobs keep coming, one for each that ends; the big one starts when those before it have ended.
    #[test]
    fn a_stream_of_small_jobs_does_not_starve_a_big_one(
        big in job().prop_filter("that can run", |job| !job.contains("nodes")),
        places in prop::collection::vec(any::<usize>(), 1..8),
        small in prop::collection::vec(job(), 1..4),
    ) {
        let mut stage = Stage::default();
        stage.run("worker a cpus 4 mem 4G gpus 2xT4:16G");
        stage.run("worker b cpus 4 mem 4G gpus 2xT4:16G");
        (0..8).for_each(|_| drop(stage.run("job filler cpus 1")));
        stage.follow();
        stage.run(&format!("job big {big} prio 1"));
        for turn in 0.. {
            // Of no higher standing, and without limits: here it is ends that free room, not time.
            let small = small[turn % small.len()].replace("prio 2", "prio 1");
            let small = small.replace("limit 10s", "").replace("limit 1h", "");
            stage.run(&format!("job small {small}"));
            stage.follow();
            if is_started(&stage, 9) {
                break;
            }
            // Whatever else ends, nothing runs for ever: every other time it is the oldest that does.
            let ended = match turn % 2 {
                0 => end_oldest(&mut stage),
                _ => end_one(&mut stage, places[turn % places.len()]),
            };
            prop_assert!(ended);
            prop_assert!(turn < 100, "job 9 ({big}) is still not started");
        }
    }
}
