//! Questions about the state.

use std::ops::RangeInclusive;

use crate::model::{
    Attempt, AttemptId, Bytes, GpuUuid, Job, JobId, Link, MilliCpus, PartStatus, Task, TaskId,
    TaskState, TaskStatus, Timestamp, Worker, WorkerId,
};
use crate::state::{
    State,
    derived::{Free, QueuePlace, Used},
};

/// How many tasks of a job are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub pending: u64,
    pub queued: u64,
    pub scheduled: u64,
    pub running: u64,
    pub recovering: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl State {
    /// The jobs with tasks that wait to be started, first to be served first. Some may be held or blocked.
    pub fn pending(&self) -> impl Iterator<Item = QueuePlace> + '_ {
        self.derived.pending.iter().copied()
    }

    /// Every task of `job` that was started and is not over.
    pub fn tasks_of(&self, job: JobId) -> impl Iterator<Item = (&TaskId, &Task)> {
        self.tasks.range(task_range(job))
    }

    /// The tasks of `job` that wait for another attempt.
    pub fn requeued_of(&self, job: JobId) -> impl Iterator<Item = TaskId> + '_ {
        self.derived.requeued.range(task_range(job)).copied()
    }

    /// Whether a worker that was not heard since the cluster was recovered or restored may run `job` already.
    pub fn is_in_doubt(&self, job: JobId) -> bool {
        job.0 <= self.counters.doubtful_jobs && self.estranged().next().is_some()
    }

    /// The workers that were not heard since.
    pub fn estranged(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        let estranged = self.workers.iter().filter(|(_, worker)| worker.estranged);
        estranged.map(|(id, worker)| (*id, worker))
    }

    /// Whether the attempt was placed before the cluster was recovered or restored, so that its worker may know more of
    /// it than the state.
    pub fn is_of_before(&self, id: AttemptId) -> bool {
        id.number <= self.counters.doubtful_attempts
    }

    /// How many tasks of `job` have an attempt now.
    pub fn active_of(&self, job: JobId) -> u32 {
        self.derived.active.get(&job).copied().unwrap_or(0)
    }

    /// The active attempts with a live part on `worker`.
    pub fn attempts_on(&self, worker: WorkerId) -> impl Iterator<Item = AttemptId> + '_ {
        self.derived.on_worker.get(&worker).into_iter().flatten().copied()
    }

    /// Grows whenever what `worker` is ordered to run changes.
    pub fn orders_version(&self, worker: WorkerId) -> u64 {
        self.orders_versions.get(&worker).copied().unwrap_or(0)
    }

    /// How many attempts wait on `worker` for their turn.
    pub fn prefetched_on(&self, worker: WorkerId) -> usize {
        self.derived.prefetched.get(&worker).map_or(0, |waiting| waiting.len())
    }

    /// The attempts that wait on `worker` for their turn, in the order in which they get it.
    pub fn prefetched(&self, worker: WorkerId) -> impl Iterator<Item = AttemptId> + '_ {
        self.derived.prefetched.get(&worker).into_iter().flatten().map(|(_, attempt)| *attempt)
    }

    /// Every task with an attempt, in the order of ids.
    pub fn active_tasks(&self) -> impl Iterator<Item = (TaskId, &Task, &Attempt)> {
        self.tasks.iter().filter_map(|(id, task)| Some((*id, task, task.attempt()?)))
    }

    /// What nobody holds on `worker`, whether or not it takes new work.
    pub fn free(&self, worker: WorkerId) -> Option<Free> {
        let row = self.workers.get(&worker)?;
        Some(self.derived.used.get(&worker).unwrap_or(&Used::default()).left_of(row))
    }

    /// CPU and memory held on `worker`.
    pub fn held(&self, worker: WorkerId) -> (MilliCpus, Bytes) {
        self.derived
            .used
            .get(&worker)
            .map_or_else(Default::default, |used| (used.cpus, used.memory))
    }

    /// The attempts that hold `gpu` of `worker`, with the share of each (`None` = the whole).
    pub fn holders_of(&self, worker: WorkerId, gpu: &GpuUuid) -> Vec<(AttemptId, Option<Bytes>)> {
        self.attempts_on(worker)
            .filter_map(|id| {
                let attempt = self.live_attempt(id)?;
                let part = attempt.part_on(worker).filter(|_| !attempt.prefetched)?;
                let grant = part.slice.gpus.iter().find(|grant| grant.gpu == *gpu)?;
                Some((id, grant.share))
            })
            .collect()
    }

    /// The attempt, if it is its task's present one.
    pub fn live_attempt(&self, id: AttemptId) -> Option<&Attempt> {
        self.tasks.get(&id.task)?.attempt().filter(|attempt| attempt.number == id.number)
    }

    /// The jobs that are finished and still in memory, oldest end first.
    pub fn finished(&self) -> impl DoubleEndedIterator<Item = (Timestamp, JobId)> + '_ {
        self.derived.finished.iter().copied()
    }

    pub fn finished_count(&self) -> usize {
        self.derived.finished.len()
    }

    /// Whether nothing but room (and its turn) keeps the job's waiting tasks from starting.
    pub fn is_eligible(&self, job: &Job, now: Timestamp) -> bool {
        job.hold.is_none()
            && job.waits_for.is_empty()
            && job.spec.begin.is_none_or(|begin| begin <= now)
    }

    pub fn worker_named(&self, name: &str) -> Option<(WorkerId, &Worker)> {
        self.workers
            .iter()
            .find(|(_, worker)| worker.name.as_str() == name)
            .map(|(id, worker)| (*id, worker))
    }

    /// What a person is told about a started task.
    pub fn task_state(&self, task: &Task) -> TaskState {
        match &task.status {
            TaskStatus::Queued { last: Some(ending), .. } if ending.reason.is_clusters_fault() => {
                TaskState::Recovering
            }
            TaskStatus::Queued { .. } => TaskState::Queued,
            TaskStatus::Ended { ending, .. } => ending.reason.final_state(),
            TaskStatus::Active(attempt) => self.attempt_state(attempt),
        }
    }

    fn attempt_state(&self, attempt: &Attempt) -> TaskState {
        let out_of_touch = |worker: &WorkerId| {
            self.workers.get(worker).is_none_or(|worker| matches!(worker.link, Link::Silent { .. }))
        };
        let live = || attempt.parts.iter().filter(|part| part.is_live());
        if live().any(|part| out_of_touch(&part.slice.worker)) {
            return TaskState::Recovering;
        }
        match live().any(|part| part.status == PartStatus::Running) {
            true => TaskState::Running,
            false => TaskState::Scheduled,
        }
    }

    /// How the tasks of `job` stand, at `now` (which decides whether its begin time has come).
    pub fn counts(&self, id: JobId, job: &Job, now: Timestamp) -> TaskCounts {
        let mut counts = TaskCounts {
            completed: job.completed.len(),
            failed: job.failed.len(),
            cancelled: job.cancelled.len(),
            ..TaskCounts::default()
        };
        match self.is_eligible(job, now) {
            true => counts.queued = job.queued.len(),
            false => counts.pending = job.queued.len(),
        }
        for (_, task) in self.tasks_of(id) {
            *counts.of(self.task_state(task)) += 1;
        }
        counts
    }
}

impl TaskCounts {
    fn of(&mut self, state: TaskState) -> &mut u64 {
        match state {
            TaskState::Pending => &mut self.pending,
            TaskState::Queued => &mut self.queued,
            TaskState::Scheduled => &mut self.scheduled,
            TaskState::Running => &mut self.running,
            TaskState::Recovering => &mut self.recovering,
            TaskState::Completed => &mut self.completed,
            TaskState::Failed => &mut self.failed,
            TaskState::Cancelled => &mut self.cancelled,
        }
    }

    /// One word for the whole job: what is most alive, and at the end the worst that happened.
    pub fn summary(&self) -> TaskState {
        let order = [
            (self.running, TaskState::Running),
            (self.scheduled, TaskState::Scheduled),
            (self.recovering, TaskState::Recovering),
            (self.queued, TaskState::Queued),
            (self.pending, TaskState::Pending),
            (self.failed, TaskState::Failed),
            (self.cancelled, TaskState::Cancelled),
        ];
        order.iter().find(|(count, _)| *count > 0).map_or(TaskState::Completed, |(_, state)| *state)
    }

    pub fn total(&self) -> u64 {
        self.pending
            + self.queued
            + self.scheduled
            + self.running
            + self.recovering
            + self.completed
            + self.failed
            + self.cancelled
    }
}

pub(super) fn task_range(job: JobId) -> RangeInclusive<TaskId> {
    TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX }
}
