//! Why tasks stand where they stand, in sentences for a person.

mod active;
mod infeasible;
mod obstacle;
mod waiting;

use self::active::{describe_active, describe_recovering};
pub use self::infeasible::infeasible;
use self::waiting::Waiting;
use crate::{
    model::{
        EndReason, Explanation, Job, JobId, MilliCpus, TaskId, TaskState, TaskStatus, Timestamp,
        WaitReason, WorkerId,
    },
    scheduler::{Reasons, View},
    state::{Rejection, State, TaskCounts},
};

/// Why the tasks of a job, or one of them, stand where they stand.
///
/// # Errors
/// No such job is in memory, or it has no such task.
pub fn explain(
    state: &State,
    view: &View,
    id: JobId,
    index: Option<u32>,
) -> Result<Explanation, Rejection> {
    let job = state.jobs.get(&id).ok_or(Rejection::UnknownJob(id))?;
    match index {
        None => Ok(explain_job(state, view, id, job)),
        Some(index) if job.spec.indices().contains(index) => {
            Ok(explain_task(state, view, TaskId { job: id, index }, job))
        }
        Some(index) => Err(Rejection::UnknownTask(id, index)),
    }
}

fn explain_job(state: &State, view: &View, id: JobId, job: &Job) -> Explanation {
    let counts = state.counts(id, job, view.now);
    let status = counts.summary();
    let mut told = blank(id.to_string(), status);
    if job.is_finished() {
        told.ended = ended_as(job, None, status);
        told.lines = vec![over(status)];
        return told;
    }
    if job.spec.tasks() > 1 {
        told.lines.push(count_tasks(&counts));
    }
    let reasons = Reasons::new(state, view);
    told.reason = reasons.of(id);
    tell_of_waiting(&mut told, &reasons, id, job);
    told.lines.extend(describe_recovering(state, view, id));
    told.lines.extend(describe_active(state, view, id, None));
    told
}

fn explain_task(state: &State, view: &View, task: TaskId, job: &Job) -> Explanation {
    let id = task.job;
    let row = state.tasks.get(&task);
    let eligible = state.is_eligible(job, view.now);
    let status = match row {
        Some(row) => state.task_state(row),
        None if job.completed.contains(task.index) => TaskState::Completed,
        None if job.cancelled.contains(task.index) => TaskState::Cancelled,
        None if job.failed.contains(task.index) => TaskState::Failed,
        None if eligible => TaskState::Queued,
        None => TaskState::Pending,
    };
    let mut told = blank(task.to_string(), status);
    if status.is_final() {
        told.ended = ended_as(job, Some(task.index), status);
        told.lines = vec![over(status)];
        return told;
    }
    if row.is_some_and(|row| row.attempt().is_some()) {
        told.reason = match status {
            TaskState::Recovering => Some(WaitReason::Recovering),
            TaskState::Scheduled => Some(WaitReason::Starting),
            TaskState::Pending
            | TaskState::Queued
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Cancelled => None,
        };
        told.lines = describe_active(state, view, id, Some(task.index));
        return told;
    }
    let reasons = Reasons::new(state, view);
    told.reason = reasons.of(id);
    if let Some(TaskStatus::Queued { not_before, .. }) = row.map(|row| &row.status)
        && *not_before > view.now
        && eligible
    {
        told.reason = Some(WaitReason::Backoff);
    }
    tell_of_waiting(&mut told, &reasons, id, job);
    told
}

fn tell_of_waiting(told: &mut Explanation, reasons: &Reasons, id: JobId, job: &Job) {
    let Some(reason) = told.reason else { return };
    let waits = !job.queued.is_empty() || reasons.state.requeued_of(id).next().is_some();
    if !waits {
        return;
    }
    let waiting = Waiting { reasons, id, job };
    told.lines.extend(waiting.describe(reason));
    told.ahead = waiting.ahead();
    told.earliest_start = waiting.earliest_start(reason);
}

fn blank(target: String, state: TaskState) -> Explanation {
    Explanation {
        target,
        state,
        reason: None,
        ended: None,
        lines: Vec::new(),
        ahead: None,
        earliest_start: None,
    }
}

/// How it ended, as far as memory knows: of a job's failures only the first is kept there.
fn ended_as(job: &Job, index: Option<u32>, status: TaskState) -> Option<EndReason> {
    let failure = job.first_failure.as_ref();
    let failure = failure.filter(|failure| index.is_none_or(|index| index == failure.index));
    match status {
        TaskState::Completed => Some(EndReason::Success),
        TaskState::Cancelled => Some(EndReason::User),
        TaskState::Failed => failure.map(|failure| failure.ending.reason),
        TaskState::Pending
        | TaskState::Queued
        | TaskState::Scheduled
        | TaskState::Running
        | TaskState::Recovering => None,
    }
}

fn over(status: TaskState) -> String {
    format!("it is over: {status}; `drigs inspect` shows how it ended")
}

fn count_tasks(counts: &TaskCounts) -> String {
    let groups = [
        (counts.running, "running"),
        (counts.scheduled, "about to start"),
        (counts.recovering, "recovering"),
        (counts.queued, "queued"),
        (counts.pending, "pending"),
        (counts.completed, "completed"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
    ];
    let groups = groups.iter().filter(|(count, _)| *count > 0);
    let groups: Vec<String> = groups.map(|(count, word)| format!("{count} {word}")).collect();
    format!("{} tasks: {}", counts.total(), groups.join(", "))
}

fn worker_name(state: &State, id: WorkerId) -> String {
    state.workers.get(&id).map_or_else(|| id.to_string(), |worker| worker.name.to_string())
}

/// `5m ago`, or `in 5m` when it lies ahead.
fn when(at: Timestamp, now: Timestamp) -> String {
    match at <= now {
        true => format!("{} ago", now.since(at)),
        false => format!("in {}", at.since(now)),
    }
}

fn cpus(amount: MilliCpus) -> String {
    match amount {
        MilliCpus(1000) => String::from("1 CPU"),
        _ => format!("{amount} CPUs"),
    }
}

fn plural(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}
