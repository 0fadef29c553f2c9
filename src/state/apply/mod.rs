//! What each command does, a file per family.

mod attempts;
mod generation;
mod jobs;
mod workers;

pub use self::attempts::MOST_PREFETCHED;
use crate::model::{IdempotencyKey, Job, JobId, Millis, Task, TaskId, TaskStatus, Timestamp};
use crate::state::{Batch, Command, Event, KeyUse, Rejection, State, derived};

/// What one command led to.
pub type Outcome = Result<Vec<Event>, Rejection>;

/// For how long a repeated submission finds the first one.
const KEY_LIFE: Millis = Millis::from_hours(24);
/// Old keys go a few at a time, so that no batch pays for a whole day's.
const MOST_KEYS_EXPIRED: usize = 256;

impl State {
    /// Applies one committed log entry: every replica calls this with the same batches in the same order.
    pub fn apply_batch(&mut self, batch: Batch) -> Vec<Outcome> {
        self.advance(batch.at);
        batch.commands.into_iter().map(|command| self.apply(command)).collect()
    }

    /// Moves the state's clock forward, never back, and drops what has aged out.
    pub fn advance(&mut self, at: Timestamp) {
        self.counters.now = self.counters.now.max(at);
        for _ in 0..MOST_KEYS_EXPIRED {
            let Some((at, key)) = self.derived.key_ages.first().cloned() else { return };
            if at + KEY_LIFE >= self.counters.now {
                return;
            }
            self.derived.key_ages.pop_first();
            self.keys.delete(&key);
        }
    }

    /// Applies one command.
    ///
    /// Never fails: a command that no longer fits is rejected and changes nothing, on every replica alike.
    ///
    /// # Errors
    /// Says why the command does not fit.
    pub fn apply(&mut self, command: Command) -> Outcome {
        match command {
            Command::SubmitJob(submission) => self.submit_job(*submission),
            Command::CancelTasks { target, by: _ } => self.cancel_tasks(target),
            Command::HoldJob { job, by } => self.hold_job(job, by),
            Command::ReleaseJob { job } => self.release_job(job),
            Command::RequeueTasks { target } => self.requeue_tasks(target),
            Command::SetPriority { job, priority } => self.set_priority(job, priority),
            Command::RegisterWorker(registration) => self.register_worker(registration),
            Command::StartPart { attempt, worker, epoch } => {
                self.start_part(attempt, worker, epoch)
            }
            Command::EndPart { attempt, worker, epoch, ending } => {
                self.end_part(attempt, worker, epoch, ending)
            }
            Command::UpdateGpus { worker, epoch, gpus } => self.update_gpus(worker, epoch, gpus),
            Command::PlaceTask(placement) => self.place_task(placement),
            Command::SilenceWorker { worker, epoch } => self.silence_worker(worker, epoch),
            Command::ReconnectWorker { worker, epoch } => self.reconnect_worker(worker, epoch),
            Command::GiveUpAttempt { attempt, worker } => self.give_up_attempt(attempt, worker),
            Command::RecallAttempt { attempt } => self.recall_attempt(attempt),
            Command::RetireJobs { jobs } => Ok(self.retire_jobs(jobs)),
            Command::DrainWorker { worker, reason } => self.drain_worker(worker, reason),
            Command::ResumeWorker { worker } => self.resume_worker(worker),
            Command::ForgetWorker { worker } => self.forget_worker(worker),
            Command::PutQueue { name, queue } => Ok(self.put_queue(name, queue)),
            Command::BeginGeneration { adopted } => self.begin_generation(adopted),
            Command::SettleWorker { worker, epoch } => self.settle_worker(worker, epoch),
            Command::RaiseFeatureLevel { level } => self.raise_feature_level(level),
        }
    }

    fn now(&self) -> Timestamp {
        self.counters.now
    }

    fn job(&self, id: JobId) -> Result<&Job, Rejection> {
        self.jobs.get(&id).ok_or(Rejection::UnknownJob(id))
    }

    pub(super) fn queue_priority(&self, job: &Job) -> u32 {
        self.queues.get(&job.spec.queue).map_or(0, |queue| queue.priority)
    }

    /// The only way a job's row changes, so that no index can be forgotten.
    fn put_job(&mut self, id: JobId, job: Job) {
        if let Some(old) = self.jobs.get(&id) {
            let priority = self.queue_priority(old);
            self.derived.remove_job(id, old, priority);
        }
        let priority = self.queue_priority(&job);
        self.derived.add_job(id, &job, priority);
        self.jobs.insert(id, job);
        self.refresh_pending(id);
    }

    /// The only way a task's row changes. One that is over goes to the store and out of memory.
    fn put_task(&mut self, id: TaskId, task: Task) {
        let old = self.tasks.get(&id);
        if let Some(old) = old {
            self.derived.remove_task(id, old);
        }
        for attempt in old.and_then(Task::attempt).into_iter().chain(task.attempt()) {
            for part in &attempt.parts {
                *self.orders_versions.entry(part.slice.worker).or_default() += 1;
            }
        }
        match task.status {
            TaskStatus::Ended { .. } => self.tasks.archive(&id, task),
            TaskStatus::Queued { .. } | TaskStatus::Active(_) => {
                self.derived.add_task(id, &task);
                self.tasks.insert(id, task);
            }
        }
        self.refresh_pending(id.job);
    }

    fn put_key(&mut self, key: IdempotencyKey, usage: KeyUse) {
        self.derived.key_ages.insert((usage.at, key.clone()));
        self.keys.insert(key, usage);
    }

    fn refresh_pending(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let waits = !job.queued.is_empty() || self.requeued_of(id).next().is_some();
        let place = derived::place(id, job, self.queue_priority(job));
        if waits {
            self.derived.pending.insert(place);
        } else {
            self.derived.pending.remove(&place);
        }
    }
}
