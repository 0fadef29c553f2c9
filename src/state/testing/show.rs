//! Events and the state, each in a line.

use std::fmt::Write as _;

use crate::{
    model::{
        Attempt, Ending, GpuHealth, Job, JobId, Link, Mode, Part, PartStatus, Slice, Task, TaskId,
        TaskStatus, Timestamp, Worker, WorkerId,
    },
    state::{Event, State},
};

/// The time of day.
pub(crate) fn clock(at: Timestamp) -> String {
    let seconds = at.0 / 1000;
    let day = match seconds / 86_400 {
        0 => String::new(),
        day => format!("day {day} "),
    };
    let time = format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match at.0 % 1000 {
        0 => format!("{day}{time}"),
        millis => format!("{day}{time}.{millis:03}"),
    }
}

pub(super) fn event(event: &Event, state: &State) -> String {
    let name = |id: &WorkerId| worker_name(state, *id);
    match event {
        Event::JobSubmitted(job) => format!("job {job} submitted"),
        Event::JobHeld(job) => format!("job {job} held"),
        Event::JobReleased(job) => format!("job {job} released"),
        Event::JobUnblocked(job) => format!("job {job} unblocked"),
        Event::JobFinished(job, state) => format!("job {job} is over: {state}"),
        Event::JobRetired(job) => format!("job {job} retired"),
        Event::PriorityChanged(job) => format!("job {job} has another priority"),
        Event::TaskRequeued(task) => format!("task {task} waits again"),
        Event::TasksQueuedAgain(job, tasks) => format!("tasks {job}.{tasks} are queued again"),
        Event::TaskEnded(task, ending) => format!("task {task} is over: {}", how(ending)),
        Event::AttemptPlaced(attempt) => format!("{attempt} placed"),
        Event::AttemptPromoted(attempt) => format!("{attempt} has its turn"),
        Event::AttemptStarted(attempt) => format!("{attempt} started"),
        Event::AttemptEnded(attempt, ending) => format!("{attempt} ended: {}", how(ending)),
        Event::AttemptStopping(attempt) => format!("{attempt} must stop"),
        Event::WorkerRegistered(id) => format!("worker {} registered", name(id)),
        Event::WorkerSilent(id) => format!("worker {} is silent", name(id)),
        Event::WorkerBack(id) => format!("worker {} is back", name(id)),
        Event::WorkerDraining(id) => format!("worker {} drains", name(id)),
        Event::WorkerResumed(id) => format!("worker {} resumed", name(id)),
        Event::WorkerForgotten(id) => format!("worker {id} forgotten"),
        Event::GpusUpdated(id) => format!("GPUs of {} updated", name(id)),
        Event::QueueChanged(queue) => format!("queue {queue} changed"),
        Event::FeatureLevelRaised(level) => format!("feature level {level}"),
        Event::GenerationBegun => String::from("a new generation"),
        Event::WorkerSettled(id) => format!("{} settled", name(id)),
    }
}

fn how(ending: &Ending) -> String {
    let mut text = ending.reason.to_string();
    if let Some(number) = ending.exit_code.filter(|code| *code != 0).or(ending.signal) {
        let _ = write!(text, " {number}");
    }
    if let Some(message) = &ending.message {
        let _ = write!(text, " ({message})");
    }
    text
}

fn worker_name(state: &State, id: WorkerId) -> String {
    state.workers.get(&id).map_or_else(|| id.to_string(), |worker| worker.name.to_string())
}

/// Everything that is in memory, a line for each row.
pub(super) fn show_state(state: &State) -> String {
    let mut text = String::new();
    for (id, job) in state.jobs.iter() {
        let _ = writeln!(text, "{}", show_job(state, *id, job));
    }
    for (id, task) in state.tasks.iter() {
        let _ = writeln!(text, "{}", show_task(state, *id, task));
    }
    for (id, worker) in state.workers.iter() {
        let _ = writeln!(text, "{}", show_worker(state, *id, worker));
    }
    text
}

fn show_job(state: &State, id: JobId, job: &Job) -> String {
    let summary = state.counts(id, job, state.counters.now).summary();
    let mut text = format!("job {id} {}: {summary}", job.spec.name);
    let sets = [
        ("queued", &job.queued),
        ("completed", &job.completed),
        ("failed", &job.failed),
        ("cancelled", &job.cancelled),
    ];
    for (name, set) in sets.iter().filter(|(_, set)| !set.is_empty()) {
        let _ = write!(text, ", {name} {set}");
    }
    if let Some(hold) = &job.hold {
        let _ = write!(text, ", held by {}", hold.by);
    }
    for (on, kind) in &job.waits_for {
        let _ = write!(text, ", waits {}:{on}", kind.as_str());
    }
    if let Some(failure) = &job.first_failure {
        let _ = write!(text, ", first failure {} {}", failure.index, how(&failure.ending));
    }
    text
}

fn show_task(state: &State, id: TaskId, task: &Task) -> String {
    let mut text = format!("task {id}: {}", state.task_state(task));
    match &task.status {
        TaskStatus::Queued { not_before, .. } if *not_before > state.counters.now => {
            let _ = write!(text, " not before {}", clock(*not_before));
        }
        TaskStatus::Queued { .. } | TaskStatus::Ended { .. } => {}
        TaskStatus::Active(attempt) => text += &show_attempt(state, attempt),
    }
    if task.failures + task.cluster_failures > 0 {
        let _ = write!(text, ", {} own failures, {} others", task.failures, task.cluster_failures);
    }
    for worker in &task.avoid {
        let _ = write!(text, ", avoids {}", worker_name(state, *worker));
    }
    text
}

fn show_attempt(state: &State, attempt: &Attempt) -> String {
    let mut text = format!(" as {}", attempt.number);
    for part in &attempt.parts {
        let _ = write!(text, " on {}", show_part(state, part));
    }
    if attempt.prefetched {
        text += " in its turn";
    }
    if let Some(stop) = attempt.stop {
        let _ = write!(text, ", stopping ({stop:?})");
    }
    text
}

fn show_part(state: &State, part: &Part) -> String {
    let place = show_slice(state, &part.slice);
    match &part.status {
        PartStatus::Assigned => place,
        PartStatus::Running => format!("{place} running"),
        PartStatus::Ended(ending) => format!("{place} ended {}", how(ending)),
    }
}

pub(crate) fn show_slice(state: &State, slice: &Slice) -> String {
    let mut text = worker_name(state, slice.worker);
    let worker = state.workers.get(&slice.worker);
    for grant in &slice.gpus {
        let place = worker.and_then(|it| it.gpus.iter().position(|gpu| gpu.uuid == grant.gpu));
        let _ = match place {
            Some(place) => write!(text, " gpu {place}"),
            None => write!(text, " gpu {}", grant.gpu),
        };
        if let Some(share) = grant.share {
            let _ = write!(text, " ({share})");
        }
    }
    if (slice.first_rank, slice.ranks) != (0, 1) {
        let _ = write!(text, " ranks {}..{}", slice.first_rank, slice.first_rank + slice.ranks);
    }
    text
}

fn show_worker(state: &State, id: WorkerId, worker: &Worker) -> String {
    let free = state.free(id).expect("listed by the caller");
    let mut text = format!("worker {} {id} {}:", worker.name, worker.epoch);
    let _ = write!(text, " {}/{} CPUs", free.cpus, worker.cpus);
    let _ = write!(text, ", {}/{} memory", free.memory, worker.memory);
    for (place, gpu) in worker.gpus.iter().enumerate() {
        let left = free.gpus.get(&gpu.uuid).copied().unwrap_or_default();
        let _ = match &gpu.health {
            GpuHealth::Healthy => write!(text, ", gpu {place} {left}/{}", gpu.memory),
            GpuHealth::Quarantined { reason } => write!(text, ", gpu {place} sick ({reason})"),
        };
    }
    text += &mode(&worker.mode);
    if worker.estranged {
        text += " estranged";
    }
    match worker.link {
        Link::Connected => text,
        Link::Silent { since } => format!("{text} silent since {}", clock(since)),
    }
}

fn mode(mode: &Mode) -> String {
    match mode {
        Mode::Active => String::new(),
        Mode::Draining { reason, .. } => format!(" draining ({reason})"),
    }
}
