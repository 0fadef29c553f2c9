//! What must stay cheap, and what must not break, at the largest sizes that are allowed.

use crate::{
    model::{Array, Dependency, DependencyKind, IndexSet, JobId, JobSpec, TaskState},
    state::{Command, Outcome, State, SubmitJob, Target},
};

fn submit(state: &mut State, spec: JobSpec) -> Outcome {
    let key = format!("key-{}", state.counters.jobs_submitted).as_str().into();
    let submission = SubmitJob { spec, user: "ann".into(), key };
    state.apply(Command::SubmitJob(Box::new(submission)))
}

fn array(indices: IndexSet) -> JobSpec {
    let array = Some(Array { indices, max_running: None });
    JobSpec { array, ..JobSpec::default() }
}

#[test]
fn an_array_of_a_million_tasks_is_one_row() {
    let mut state = State::default();
    submit(&mut state, array(IndexSet::from_range(0, 999_999))).unwrap();
    assert_eq!((state.jobs.len(), state.tasks.len()), (1, 0));
    assert_eq!(state.jobs.get(&JobId(1)).unwrap().queued.ranges().count(), 1);
    let target = Target::Job(JobId(1));
    let events = state.apply(Command::CancelTasks { target, by: "ann".into() }).unwrap();
    assert_eq!(events.len(), 1, "one event, not a million");
    let events = state.apply(Command::RequeueTasks { target }).unwrap();
    assert_eq!(events.len(), 1, "one event, not a million");
    state.check_invariants();
}

#[test]
fn an_array_with_half_a_million_gaps_is_cancelled_in_linear_time() {
    let mut state = State::default();
    submit(&mut state, array("0-999999:2".parse().unwrap())).unwrap();
    let target = Target::Job(JobId(1));
    state.apply(Command::CancelTasks { target, by: "ann".into() }).unwrap();
    let job = state.jobs.get(&JobId(1)).unwrap();
    assert_eq!(job.cancelled.len(), 500_000);
    assert!(job.is_finished());
}

/// A chain is followed without recursion: a stack that overflows would take every controller down, and again at
/// each replay.
#[test]
fn a_chain_of_fifty_thousand_jobs_fails_from_end_to_end() {
    let mut state = State::default();
    let length = 50_000;
    submit(&mut state, JobSpec::default()).unwrap();
    for before in 1..length {
        let dependencies = vec![Dependency { kind: DependencyKind::AfterOk, job: JobId(before) }];
        submit(&mut state, JobSpec { dependencies, ..JobSpec::default() }).unwrap();
    }
    let target = Target::Job(JobId(1));
    let events = state.apply(Command::CancelTasks { target, by: "ann".into() }).unwrap();
    assert_eq!(events.len() as u64, length);
    let last = state.jobs.get(&JobId(length)).unwrap();
    let counts = state.counts(JobId(length), last, state.counters.now);
    assert_eq!(counts.summary(), TaskState::Failed);
}
