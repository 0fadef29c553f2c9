//! Tasks that have a place: those that run, and those whose worker is out of touch.

use super::{plural, when, worker_name};
use crate::{
    model::{
        Attempt, AttemptId, JobId, Link, LostAfter, Part, PartStatus, StopReason, Task, TaskId,
        Timestamp, Worker, WorkerId,
    },
    scheduler::{View, reservation::latest_end},
    state::State,
};

/// Tasks told of one by one; of the others only how many they are.
const MOST_TOLD: usize = 5;

/// One line for each of the first tasks that have a place.
pub(super) fn describe_active(
    state: &State,
    view: &View,
    id: JobId,
    index: Option<u32>,
) -> Vec<String> {
    let wanted = |task: &TaskId| index.is_none_or(|index| task.index == index);
    let active: Vec<_> = state
        .tasks_of(id)
        .filter(|(task, _)| wanted(task))
        .filter_map(|(task, row)| Some((*task, row.attempt()?)))
        .collect();
    let mut lines: Vec<String> = active
        .iter()
        .take(MOST_TOLD)
        .flat_map(|(task, attempt)| {
            let id = AttemptId { task: *task, number: attempt.number };
            describe_attempt(state, view, id, attempt)
        })
        .collect();
    if active.len() > MOST_TOLD {
        lines.push(format!("and {} more in such a place", active.len() - MOST_TOLD));
    }
    lines
}

fn describe_attempt(state: &State, view: &View, id: AttemptId, attempt: &Attempt) -> Vec<String> {
    let mut lines = Vec::new();
    let (lost, present): (Vec<&Part>, Vec<&Part>) = attempt
        .parts
        .iter()
        .filter(|part| part.is_live())
        .partition(|part| silent_since(state, part.slice.worker).is_some());
    lines.extend(lost.iter().map(|part| describe_lost(state, view, id, part)));
    let names: Vec<String> =
        present.iter().map(|part| worker_name(state, part.slice.worker)).collect();
    if names.is_empty() {
        return lines;
    }
    let running = present.iter().any(|part| part.status == PartStatus::Running);
    let mut line = match (attempt.started_at, attempt.prefetched) {
        (Some(at), _) if running => {
            format!("{id} runs on {}, started {}", names.join(", "), when(at, view.now))
        }
        (_, true) => format!("{id} waits on {} for one before it to end", names.join(", ")),
        _ => format!(
            "{id} has had its place on {} for {} and starts in a moment",
            names.join(", "),
            view.now.since(attempt.placed_at)
        ),
    };
    let end = latest_end(state, id.task.job, attempt.started_at, None, view.now);
    if let Some(end) = end.filter(|_| running) {
        line += &format!(", ends by its time limit {}", when(end, view.now));
    }
    if let Some(stop) = attempt.stop {
        line += match stop {
            StopReason::User => "; it was cancelled and is being stopped",
            StopReason::Preempted => "; it is being stopped to make room",
            StopReason::Requeue => "; it is being stopped, to run again",
            StopReason::GangFailed => "; it is being stopped: another part of its gang ended",
        };
    }
    lines.push(line);
    lines
}

/// What a part on a worker that is out of touch waits for.
fn describe_lost(state: &State, view: &View, id: AttemptId, part: &Part) -> String {
    let worker_id = part.slice.worker;
    let name = worker_name(state, worker_id);
    let since = silent_since(state, worker_id).unwrap_or(view.now);
    let silence = view.now.since(since);
    let lost_after = state
        .workers
        .get(&worker_id)
        .map_or(LostAfter::Keep, |worker| lost_after(state, id.task.job, worker));
    let estranged = state.workers.get(&worker_id).is_some_and(|worker| worker.estranged);
    let given_up = match lost_after {
        _ if estranged => String::from(
            "the cluster was recovered or restored meanwhile, so it is never given up by itself, but",
        ),
        LostAfter::Keep => String::from("it is never given up by itself (lost_after keep), but"),
        LostAfter::After(length) => {
            // The worker counts from when it last heard a leader, a lease before it was called silent.
            let heard = Timestamp(since.0.saturating_sub(view.lease.0)).max(view.leading_since);
            let at = heard + length + view.lease;
            format!("it is given up {} (lost_after {length}), or", when(at.max(view.now), view.now))
        }
    };
    format!(
        "{id} may still run on worker {name}, which is silent for {silence}: it goes on when the worker returns; \
         {given_up} at once by `drigs worker forget {name}`"
    )
}

fn lost_after(state: &State, job: JobId, worker: &Worker) -> LostAfter {
    let asked = state.jobs.get(&job).and_then(|job| job.spec.lost_after);
    asked.unwrap_or_else(|| worker.default_lost_after())
}

fn silent_since(state: &State, worker: WorkerId) -> Option<Timestamp> {
    match state.workers.get(&worker)?.link {
        Link::Connected => None,
        Link::Silent { since } => Some(since),
    }
}

/// Tasks that were lost and wait for another place.
pub(super) fn describe_recovering(state: &State, view: &View, id: JobId) -> Option<String> {
    let lost = |task: &Task| task.attempt().is_none() && task.cluster_failures > 0;
    let count = state.tasks_of(id).filter(|(_, task)| lost(task)).count() as u64;
    let soonest = state.requeued_of(id).filter_map(|task| super::waiting::not_before(state, task));
    let soonest = soonest.filter(|at| *at > view.now).min();
    let again =
        soonest.map_or(String::new(), |at| format!(", the first of them {}", when(at, view.now)));
    (count > 0).then(|| {
        format!(
            "{} ended through no fault of the job and will run again{again}",
            plural(count, "task")
        )
    })
}
