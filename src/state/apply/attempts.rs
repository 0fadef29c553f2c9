//! From a placement to its end.

use std::collections::BTreeSet;

use crate::model::{
    Attempt, AttemptId, EndReason, Ending, Epoch, Job, Millis, Part, PartStatus, Placement, Retry,
    RetryCause, Slice, StopReason, Task, TaskId, TaskStatus, Timestamp, Worker, WorkerId,
};
use crate::state::{Event, Rejection, State, apply::Outcome};

/// How often a task is run again after ends that were not its own fault.
const MOST_CLUSTER_FAILURES: u32 = 16;
/// How many attempts may wait on one worker for their turn.
pub const MOST_PREFETCHED: usize = 256;

impl State {
    pub(super) fn place_task(&mut self, placement: Placement) -> Outcome {
        let Placement { task: id, slices, prefetch } = placement;
        let job = self.job(id.job)?;
        let task = self.waiting_task(id, job)?;
        if let Some(array) = &job.spec.array
            && array.max_running.is_some_and(|most| self.active_of(id.job) >= most)
        {
            return Err(Rejection::AtMaxRunning(id.job));
        }
        self.check_doubt(id.job)?;
        let prefetched = self.check_slices(id, &slices, prefetch)?;

        let number = task.attempts.max(self.counters.doubtful_attempts) + 1;
        let attempt = Attempt {
            number,
            placed_at: self.now(),
            started_at: None,
            parts: slices
                .into_iter()
                .map(|slice| Part { slice, status: PartStatus::Assigned })
                .collect(),
            stop: None,
            prefetched,
        };
        let mut job = job.clone();
        job.queued.remove(id.index);
        job.highest_attempt = job.highest_attempt.max(number);
        self.put_task(id, Task { attempts: number, status: TaskStatus::Active(attempt), ..task });
        self.put_job(id.job, job);
        Ok(vec![Event::AttemptPlaced(AttemptId { task: id, number })])
    }

    /// The task as it waits: its row, or a fresh one for a task that was never started.
    fn waiting_task(&self, id: TaskId, job: &Job) -> Result<Task, Rejection> {
        if !self.is_eligible(job, self.now()) {
            return Err(Rejection::TaskNotQueued(id));
        }
        match self.tasks.get(&id) {
            Some(task) if task.attempt().is_none() => Ok(task.clone()),
            Some(_) => Err(Rejection::TaskNotQueued(id)),
            None if job.queued.contains(id.index) => Ok(Task {
                attempts: job.attempt_base,
                failures: 0,
                cluster_failures: 0,
                avoid: BTreeSet::new(),
                status: TaskStatus::Queued { not_before: Timestamp(0), last: None },
            }),
            None => Err(Rejection::TaskNotQueued(id)),
        }
    }

    /// All of it fits, or none of it is taken. Says whether it has to wait for its turn: room that came free meanwhile is
    /// taken at once.
    fn check_slices(
        &self,
        task: TaskId,
        slices: &[Slice],
        prefetch: bool,
    ) -> Result<bool, Rejection> {
        let mut waits = false;
        let mut workers = BTreeSet::new();
        for slice in slices {
            let id = slice.worker;
            let worker = self.workers.get(&id).ok_or(Rejection::UnknownWorker(id))?;
            if worker.epoch != slice.epoch {
                return Err(Rejection::StaleEpoch(id));
            }
            if !worker.is_ready() {
                return Err(Rejection::WorkerNotReady(id));
            }
            let free = self.free(id).expect("looked up above");
            let fits = free.has_room_for(slice, worker);
            let may_wait = prefetch && slices.len() == 1 && self.may_wait_on(task, slice);
            if !(fits || may_wait) || !workers.insert(id) {
                return Err(Rejection::NoRoom { task, worker: id });
            }
            waits = !fits;
        }
        match slices.is_empty() {
            true => Err(Rejection::TaskNotQueued(task)),
            false => Ok(waits),
        }
    }

    /// A task may wait on a worker only behind one of its own job that holds as much, and with no other job's: then its
    /// turn surely comes.
    fn may_wait_on(&self, task: TaskId, slice: &Slice) -> bool {
        let ahead = |id: AttemptId| {
            let Some(attempt) = self.live_attempt(id) else { return false };
            let Some(part) = attempt.part_on(slice.worker) else { return false };
            id.task.job == task.job
                && !attempt.prefetched
                && part.slice.cpus >= slice.cpus
                && part.slice.memory >= slice.memory
        };
        slice.gpus.is_empty()
            && self.prefetched_on(slice.worker) < MOST_PREFETCHED
            && self.prefetched(slice.worker).all(|other| other.task.job == task.job)
            && self.attempts_on(slice.worker).any(ahead)
    }

    pub(super) fn start_part(&mut self, id: AttemptId, worker: WorkerId, epoch: Epoch) -> Outcome {
        let mut task = self.task_with_live_part(id, worker, epoch)?;
        let now = self.now();
        let TaskStatus::Active(attempt) = &mut task.status else { unreachable!("checked above") };
        if attempt.prefetched && !self.fits_now(part_mut(attempt, worker)) {
            return Err(Rejection::NoRoom { task: id.task, worker });
        }
        let first = attempt.started_at.is_none();
        attempt.started_at.get_or_insert(now);
        attempt.prefetched = false;
        let part = part_mut(attempt, worker);
        if part.status == PartStatus::Running {
            return Ok(Vec::new());
        }
        part.status = PartStatus::Running;
        self.put_task(id.task, task);
        let job = self.jobs.get(&id.task.job).expect("a task's job is in memory");
        if job.started_at.is_none() {
            self.put_job(id.task.job, Job { started_at: Some(now), ..job.clone() });
        }
        Ok(if first { vec![Event::AttemptStarted(id)] } else { Vec::new() })
    }

    pub(super) fn end_part(
        &mut self,
        id: AttemptId,
        worker: WorkerId,
        epoch: Epoch,
        ending: Ending,
    ) -> Outcome {
        self.task_with_live_part(id, worker, epoch)?;
        let mut events = Vec::new();
        self.close_part(id, worker, ending, &mut events);
        self.promote_prefetched(worker, &mut events);
        Ok(events)
    }

    /// Only the part on `worker`: another part's worker may be silent as well, but not for long enough yet.
    pub(super) fn give_up_attempt(&mut self, id: AttemptId, worker: WorkerId) -> Outcome {
        let attempt = self.live_attempt(id).ok_or(Rejection::StaleAttempt(id))?;
        if !attempt.part_on(worker).is_some_and(Part::is_live) {
            return Err(Rejection::NoSuchPart(id, worker));
        }
        if self.workers.get(&worker).is_some_and(Worker::is_connected) {
            return Err(Rejection::WorkerNotSilent(worker));
        }
        if self.workers.get(&worker).is_some_and(|row| row.estranged) {
            return Err(Rejection::WorkerEstranged(worker));
        }
        let mut events = Vec::new();
        let ending = self.node_lost("its worker was out of touch for too long");
        self.close_part(id, worker, ending, &mut events);
        self.promote_prefetched(worker, &mut events);
        Ok(events)
    }

    /// Only one that still waits for its turn can be recalled. Should its worker have begun it meanwhile and bring it to
    /// a good end, that end counts.
    pub(super) fn recall_attempt(&mut self, id: AttemptId) -> Outcome {
        let attempt = self.live_attempt(id).filter(|attempt| attempt.prefetched);
        attempt.ok_or(Rejection::StaleAttempt(id))?;
        let mut events = Vec::new();
        self.stop_attempt(id.task, StopReason::Preempted, &mut events);
        Ok(events)
    }

    /// Everything on `worker` is gone for certain.
    pub(super) fn lose_attempts_on(
        &mut self,
        worker: WorkerId,
        why: &str,
        events: &mut Vec<Event>,
    ) {
        for id in self.attempts_on(worker).collect::<Vec<_>>() {
            self.close_part(id, worker, self.node_lost(why), events);
        }
    }

    fn node_lost(&self, why: &str) -> Ending {
        Ending { message: Some(why.to_owned()), ..Ending::new(EndReason::NodeLost, self.now()) }
    }

    /// Records the end of one part and, when it was the last, of the attempt.
    fn close_part(
        &mut self,
        id: AttemptId,
        worker: WorkerId,
        ending: Ending,
        events: &mut Vec<Event>,
    ) {
        let mut task = self.tasks.get(&id.task).expect("a live attempt has a row").clone();
        let TaskStatus::Active(attempt) = &mut task.status else { unreachable!("it is live") };
        // Workers' clocks may be wrong; the log's is the same for all.
        let ending = Ending { at: self.now(), ..ending };
        let failed = ending.reason != EndReason::Success;
        part_mut(attempt, worker).status = PartStatus::Ended(ending);
        if attempt.parts.iter().any(Part::is_live) {
            self.put_task(id.task, task);
            if failed {
                self.stop_attempt(id.task, StopReason::GangFailed, events);
            }
            return;
        }
        let attempt = attempt.clone();
        self.put_task(id.task, task);
        self.close_attempt(id, attempt, events);
    }

    /// The attempt is over on every worker: the task ends with it, or waits for the next one.
    fn close_attempt(&mut self, id: AttemptId, attempt: Attempt, events: &mut Vec<Event>) {
        let mut ending = ending_of(&attempt);
        events.push(Event::AttemptEnded(id, ending.clone()));
        let succeeded = ending.reason == EndReason::Success;
        if attempt.stop == Some(StopReason::User) && !succeeded {
            ending.reason = EndReason::User;
        }
        let mut task = self.tasks.get(&id.task).expect("put by the caller").clone();
        let job = self.jobs.get(&id.task.job).expect("a task's job is in memory");
        match next_try(&mut task, &attempt, &ending, &job.spec.retry, self.now()) {
            Some(not_before) => {
                task.status = TaskStatus::Queued { not_before, last: Some(ending) };
                self.put_task(id.task, task);
                events.push(Event::TaskRequeued(id.task));
            }
            None => {
                self.put_task(id.task, task);
                self.end_task(id.task, Some(attempt), ending, events);
            }
        }
    }

    /// Room came free on `worker`: those that wait there get it in their order.
    pub(super) fn promote_prefetched(&mut self, worker: WorkerId, events: &mut Vec<Event>) {
        loop {
            let Some(id) = self.prefetched(worker).next() else { return };
            let mut task = self.tasks.get(&id.task).expect("a live attempt has a row").clone();
            let TaskStatus::Active(attempt) = &mut task.status else { unreachable!("it is live") };
            if !self.fits_now(part_mut(attempt, worker)) {
                return;
            }
            attempt.prefetched = false;
            self.put_task(id.task, task);
            events.push(Event::AttemptPromoted(id));
        }
    }

    /// Whether what the part needs is free on its worker.
    fn fits_now(&self, part: &Part) -> bool {
        let id = part.slice.worker;
        let (Some(worker), Some(free)) = (self.workers.get(&id), self.free(id)) else {
            return false;
        };
        free.has_room_for(&part.slice, worker)
    }

    fn task_with_live_part(
        &self,
        id: AttemptId,
        worker: WorkerId,
        epoch: Epoch,
    ) -> Result<Task, Rejection> {
        let attempt = self.live_attempt(id).ok_or(Rejection::StaleAttempt(id))?;
        let part = attempt.part_on(worker).ok_or(Rejection::NoSuchPart(id, worker))?;
        if part.slice.epoch != epoch {
            return Err(Rejection::StaleEpoch(worker));
        }
        if !part.is_live() {
            return Err(Rejection::StaleAttempt(id));
        }
        Ok(self.tasks.get(&id.task).expect("a live attempt has a row").clone())
    }
}

fn part_mut(attempt: &mut Attempt, worker: WorkerId) -> &mut Part {
    attempt
        .parts
        .iter_mut()
        .find(|part| part.slice.worker == worker)
        .expect("the caller found it there")
}

/// An attempt ended as its first part to fail by itself did; parts that only followed say less.
fn ending_of(attempt: &Attempt) -> Ending {
    let endings = || {
        attempt.parts.iter().filter_map(|part| match &part.status {
            PartStatus::Ended(ending) => Some(ending),
            PartStatus::Assigned | PartStatus::Running => None,
        })
    };
    let rank = |ending: &&Ending| match ending.reason {
        EndReason::Success => 2,
        EndReason::GangFailed => 1,
        _ => 0,
    };
    endings().min_by_key(|ending| (rank(ending), ending.at)).expect("every part ended").clone()
}

/// When the task may be tried again, if at all; counts the failure.
fn next_try(
    task: &mut Task,
    attempt: &Attempt,
    ending: &Ending,
    retry: &Retry,
    now: Timestamp,
) -> Option<Timestamp> {
    match attempt.stop {
        Some(StopReason::User) => return None,
        Some(StopReason::Requeue) => return Some(now),
        Some(StopReason::Preempted) if ending.reason != EndReason::Success => return Some(now),
        Some(StopReason::Preempted | StopReason::GangFailed) | None => {}
    }
    if ending.reason.is_clusters_fault() {
        task.cluster_failures += 1;
        task.avoid = attempt.parts.iter().filter(failed_there).map(|it| it.slice.worker).collect();
        let tries = task.cluster_failures;
        return (tries <= MOST_CLUSTER_FAILURES).then(|| now + backoff(tries - 1, 10_000, 600_000));
    }
    if ending.reason == EndReason::Success || !is_retried(ending, retry) {
        return None;
    }
    task.failures += 1;
    (task.failures <= retry.max).then(|| now + backoff(task.failures, 500, 60_000))
}

/// Whether the part's worker is better avoided the next time.
fn failed_there(part: &&Part) -> bool {
    match &part.status {
        PartStatus::Ended(ending) => matches!(
            ending.reason,
            EndReason::NodeLost | EndReason::GpuFault | EndReason::SupervisorLost
        ),
        PartStatus::Assigned | PartStatus::Running => false,
    }
}

/// Nothing for zero failures, then doubling from `first` up to `most` milliseconds.
fn backoff(failures: u32, first: u64, most: u64) -> Millis {
    match failures {
        0 => Millis(0),
        _ => Millis(first.saturating_mul(1 << (failures - 1).min(20)).min(most)),
    }
}

fn is_retried(ending: &Ending, retry: &Retry) -> bool {
    let matches = |cause: &RetryCause| match cause {
        RetryCause::Failure => ending.reason == EndReason::Exit,
        RetryCause::ExitCode(code) => ending.exit_code == Some(*code),
        RetryCause::Signal => ending.reason == EndReason::Signal,
        RetryCause::OutOfMemory => {
            matches!(ending.reason, EndReason::OutOfMemoryHost | EndReason::OutOfMemoryGpu)
        }
        RetryCause::Timeout => ending.reason == EndReason::Timeout,
        RetryCause::StartFailed => ending.reason == EndReason::StartFailed,
    };
    retry.on.is_empty() || retry.on.iter().any(matches)
}
