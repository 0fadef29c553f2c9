//! The state as people see it.

use std::collections::BTreeSet;

use crate::controller::{hub::Sessions, leader::Term, reconcile};
use crate::model::{
    Attempt, Bytes, Ending, Gpu, GpuHealth, Job, JobId, Link, Mode, Task, TaskId, TaskState,
    TaskStatus, Timestamp, Worker, WorkerId,
};
use crate::rpc::api::{
    EndingView, GpuView, JobView, QueueView, StatusView, TaskCountsView, TaskView, WorkerView,
};
use crate::scheduler::{Reasons, View};
use crate::state::{State, TaskCounts};

/// Worker names shown for one job.
const MOST_WORKERS_SHOWN: usize = 8;

/// What the scheduler sees on this controller: on the leader its leases, elsewhere what was last agreed on.
pub fn scheduler_view(state: &State, term: Option<&Term>, now: Timestamp) -> View {
    match term {
        Some(term) => reconcile::view(state, &term.leases(), now),
        None => View {
            now,
            leading_since: now,
            lease: crate::model::Millis(0),
            in_touch: state
                .workers
                .iter()
                .filter(|(_, worker)| worker.is_connected())
                .map(|(id, _)| *id)
                .collect(),
        },
    }
}

/// A job in memory.
pub fn job(state: &State, reasons: &Reasons, id: JobId, job: &Job) -> JobView {
    let counts = state.counts(id, job, reasons.now());
    let mut shown = job_row(id, job, counts);
    if matches!(shown.status, TaskState::Pending | TaskState::Queued | TaskState::Recovering) {
        shown.reason = reasons.of(id);
    }
    let mut workers = BTreeSet::new();
    for (_, task) in state.tasks_of(id) {
        let parts = task.attempt().into_iter().flat_map(|attempt| &attempt.parts);
        workers.extend(parts.filter(|part| part.is_live()).map(|part| part.slice.worker));
        if workers.len() > MOST_WORKERS_SHOWN {
            break;
        }
    }
    shown.workers =
        workers.into_iter().take(MOST_WORKERS_SHOWN).map(|id| worker_name(state, id)).collect();
    shown
}

/// A job whose tasks are all over, as the store remembers it.
pub fn finished_job(id: JobId, job: &Job) -> JobView {
    let counts = TaskCounts {
        completed: job.completed.len(),
        failed: job.failed.len(),
        cancelled: job.cancelled.len(),
        ..TaskCounts::default()
    };
    job_row(id, job, counts)
}

fn job_row(id: JobId, job: &Job, counts: TaskCounts) -> JobView {
    let spec = &job.spec;
    JobView {
        job_id: id,
        name: spec.name.clone(),
        user: job.user.clone(),
        queue: spec.queue.to_string(),
        status: counts.summary(),
        reason: None,
        priority: spec.priority,
        submitted_at: job.submitted_at,
        started_at: job.started_at,
        completed_at: job.finished_at,
        tasks: task_counts(counts),
        cpus: spec.request.cpus,
        memory: spec.request.memory,
        gpus: spec.request.gpus.count,
        nodes: spec.nodes(),
        is_array: spec.array.is_some(),
        workers: Vec::new(),
        ended: job.first_failure.as_ref().map(|failure| ending(&failure.ending)),
        time_limit_ms: spec.time_limit.map(|limit| limit.0),
    }
}

pub fn task_counts(counts: TaskCounts) -> TaskCountsView {
    TaskCountsView {
        pending: counts.pending,
        queued: counts.queued,
        scheduled: counts.scheduled,
        running: counts.running,
        recovering: counts.recovering,
        completed: counts.completed,
        failed: counts.failed,
        cancelled: counts.cancelled,
    }
}

fn ending(ending: &Ending) -> EndingView {
    EndingView {
        reason: ending.reason.to_string(),
        exit_code: ending.exit_code,
        signal: ending.signal,
        message: ending.message.clone(),
    }
}

/// A task that was started.
pub fn task(state: &State, id: TaskId, task: &Task) -> TaskView {
    let (attempt, last): (Option<&Attempt>, Option<&Ending>) = match &task.status {
        TaskStatus::Queued { last, .. } => (None, last.as_ref()),
        TaskStatus::Active(attempt) => (Some(attempt), None),
        TaskStatus::Ended { attempt, ending } => (attempt.as_ref(), Some(ending)),
    };
    let parts = || attempt.into_iter().flat_map(|attempt| &attempt.parts);
    TaskView {
        task_id: id.to_string(),
        index: id.index,
        status: state.task_state(task),
        attempt: task.attempts,
        failures: task.failures + task.cluster_failures,
        worker_names: parts().map(|part| worker_name(state, part.slice.worker)).collect(),
        gpus: parts()
            .flat_map(|part| &part.slice.gpus)
            .map(|grant| grant.gpu.to_string())
            .collect(),
        placed_at: attempt.map(|attempt| attempt.placed_at),
        started_at: attempt.and_then(|attempt| attempt.started_at),
        ended_at: match &task.status {
            TaskStatus::Ended { ending, .. } => Some(ending.at),
            TaskStatus::Queued { .. } | TaskStatus::Active(_) => None,
        },
        stopping: attempt.is_some_and(|attempt| attempt.stop.is_some()) && last.is_none(),
        ended: last.map(ending),
    }
}

/// A task that was never started.
pub fn waiting_task(id: TaskId, status: TaskState) -> TaskView {
    TaskView {
        task_id: id.to_string(),
        index: id.index,
        status,
        attempt: 0,
        failures: 0,
        worker_names: Vec::new(),
        gpus: Vec::new(),
        placed_at: None,
        started_at: None,
        ended_at: None,
        stopping: false,
        ended: None,
    }
}

fn worker_name(state: &State, id: WorkerId) -> String {
    state.workers.get(&id).map_or_else(|| format!("{id} (forgotten)"), |row| row.name.to_string())
}

pub fn worker(
    state: &State,
    id: WorkerId,
    row: &Worker,
    sessions: &Sessions,
    term: Option<&Term>,
    now: Timestamp,
) -> WorkerView {
    let (cpus_used, memory_used) = state.held(id);
    let running = state.attempts_on(id).count() as u64;
    let (status, mut reason) = worker_status(row, running, now);
    let live = sessions.live(id);
    if let Some(live) = live.as_ref().filter(|live| live.clock_ahead.unsigned_abs() > 60_000) {
        let off = crate::model::Millis(live.clock_ahead.unsigned_abs());
        let side = if live.clock_ahead > 0 { "ahead" } else { "behind" };
        let note = format!("its clock is {off} {side}");
        reason = Some(reason.map_or(note.clone(), |reason| format!("{reason}; {note}")));
    }
    let silent = term.map(|term| now.since(term.leases().silent_since(id)).0);
    WorkerView {
        worker_id: id.to_string(),
        name: row.name.to_string(),
        address: live.as_ref().map_or_else(|| row.address.clone(), |live| live.peer.clone()),
        status: status.to_owned(),
        reason,
        version: row.version.clone(),
        cpus: row.cpus,
        cpus_used,
        memory: row.memory,
        memory_used,
        gpus: row.gpus.len() as u32,
        gpus_used: row.gpus.iter().filter(|gpu| !state.holders_of(id, &gpu.uuid).is_empty()).count()
            as u32,
        running,
        labels: row.labels.clone(),
        ephemeral: row.ephemeral,
        registered_at: row.registered_at,
        heard_ms_ago: live
            .map(|live| u64::try_from(live.heard.elapsed().as_millis()).unwrap_or(u64::MAX))
            .or(silent),
    }
}

fn worker_status(row: &Worker, running: u64, now: Timestamp) -> (&'static str, Option<String>) {
    match (&row.link, &row.mode) {
        (Link::Silent { since }, _) => {
            ("SILENT", Some(format!("not heard from for {}", now.since(*since))))
        }
        (Link::Connected, Mode::Draining { reason, .. }) if running > 0 => {
            ("DRAINING", Some(reason.clone()))
        }
        (Link::Connected, Mode::Draining { reason, .. }) => ("DRAINED", Some(reason.clone())),
        (Link::Connected, Mode::Active) => ("READY", None),
    }
}

pub fn gpus(state: &State) -> Vec<GpuView> {
    let rows = state.workers.iter();
    rows.flat_map(|(id, worker)| worker.gpus.iter().map(|card| gpu(state, *id, worker, card)))
        .collect()
}

fn gpu(state: &State, id: WorkerId, worker: &Worker, gpu: &Gpu) -> GpuView {
    let holders = state.holders_of(id, &gpu.uuid);
    let (health, reason) = match (&gpu.health, &worker.link) {
        (_, Link::Silent { .. }) => ("OFFLINE", Some(String::from("its worker is silent"))),
        (GpuHealth::Healthy, Link::Connected) => ("HEALTHY", None),
        (GpuHealth::Quarantined { reason }, Link::Connected) => {
            ("QUARANTINED", Some(reason.clone()))
        }
    };
    let free = state.free(id).and_then(|free| free.gpus.get(&gpu.uuid).copied());
    GpuView {
        worker: worker.name.to_string(),
        device_id: format!("gpu-{}", gpu.index),
        uuid: gpu.uuid.to_string(),
        model_name: gpu.model.clone(),
        total_memory_bytes: gpu.memory,
        available_memory_bytes: free.unwrap_or(Bytes(0)),
        compute_capability: gpu.compute_capability,
        state: health.to_owned(),
        reason,
        held_by: holders.into_iter().map(|(attempt, _)| attempt.to_string()).collect(),
    }
}

pub fn queues(state: &State) -> Vec<QueueView> {
    let waiting = |name: &str| {
        let jobs = state.pending().filter_map(|place| state.jobs.get(&place.job));
        jobs.filter(|job| job.spec.queue.as_str() == name).count() as u64
    };
    let active = |name: &str| {
        state
            .active_tasks()
            .filter_map(|(id, _, _)| state.jobs.get(&id.job))
            .filter(|job| job.spec.queue.as_str() == name)
            .count() as u64
    };
    state
        .queues
        .iter()
        .map(|(name, queue)| QueueView {
            name: name.to_string(),
            queue: queue.clone(),
            waiting_jobs: waiting(name.as_str()),
            active_tasks: active(name.as_str()),
        })
        .collect()
}

/// Everything that one look at the state can say of the cluster.
pub fn status(state: &State, now: Timestamp) -> StatusView {
    let mut shown = StatusView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        jobs_submitted: state.counters.jobs_submitted,
        ..StatusView::default()
    };
    for (id, worker) in state.workers.iter() {
        shown.workers += 1;
        shown.workers_ready += u32::from(worker.is_ready());
        if !worker.is_connected() {
            continue;
        }
        let (cpus, memory) = state.held(*id);
        shown.cpus += worker.cpus;
        shown.cpus_used += cpus;
        shown.memory += worker.memory;
        shown.memory_used += memory;
        shown.gpus += worker.gpus.len() as u32;
        let held = |gpu: &&Gpu| !state.holders_of(*id, &gpu.uuid).is_empty();
        shown.gpus_used += worker.gpus.iter().filter(held).count() as u32;
    }
    shown.tasks = all_counts(state, now);
    shown
}

/// How all tasks stand; those that are over since the cluster began.
pub fn all_counts(state: &State, now: Timestamp) -> TaskCountsView {
    let mut counts = TaskCountsView {
        completed: state.counters.tasks_completed,
        failed: state.counters.tasks_failed,
        cancelled: state.counters.tasks_cancelled,
        ..TaskCountsView::default()
    };
    for place in state.pending() {
        let Some(job) = state.jobs.get(&place.job) else { continue };
        match state.is_eligible(job, now) {
            true => counts.queued += job.queued.len(),
            false => counts.pending += job.queued.len(),
        }
    }
    for (_, task) in state.tasks.iter() {
        match state.task_state(task) {
            TaskState::Queued => counts.queued += 1,
            TaskState::Scheduled => counts.scheduled += 1,
            TaskState::Running => counts.running += 1,
            TaskState::Recovering => counts.recovering += 1,
            TaskState::Pending
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Cancelled => {}
        }
    }
    counts
}
