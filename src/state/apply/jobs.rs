//! What people do to jobs.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use crate::model::{
    Attempt, AttemptId, DependencyKind, EndReason, Ending, FirstFailure, Hold, IndexSet, Job,
    JobId, JobSpec, Queue, QueueName, StopReason, Task, TaskId, TaskState, TaskStatus, UserName,
};
use crate::state::{Event, KeyUse, Rejection, State, SubmitJob, Target, apply::Outcome};

impl State {
    pub(super) fn submit_job(&mut self, submission: SubmitJob) -> Outcome {
        let SubmitJob { spec, user, key } = submission;
        let digest = digest(&spec, &user);
        if let Some(first) = self.keys.get(&key) {
            return match first.digest == digest {
                true => Ok(vec![Event::JobSubmitted(first.job)]),
                false => Err(Rejection::KeyReused { key, job: first.job }),
            };
        }
        self.check_queue(&spec.queue)?;
        for dependency in &spec.dependencies {
            self.check_dependency(dependency.job)?;
        }

        let now = self.now();
        self.counters.jobs_submitted += 1;
        let id = JobId(self.counters.jobs_submitted);
        self.put_key(key, KeyUse { job: id, at: now, digest });
        let job = Job {
            hold: spec.held.then(|| Hold { by: user.clone(), at: now }),
            queued: spec.indices(),
            waits_for: spec.dependencies.iter().map(|it| (it.job, it.kind)).collect(),
            spec: Arc::new(spec),
            user,
            submitted_at: now,
            completed: IndexSet::new(),
            failed: IndexSet::new(),
            cancelled: IndexSet::new(),
            started_at: None,
            finished_at: None,
            highest_attempt: 0,
            attempt_base: 0,
            first_failure: None,
        };
        let awaited: Vec<JobId> = job.waits_for.keys().copied().collect();
        self.put_job(id, job);
        let mut events = vec![Event::JobSubmitted(id)];
        for other in awaited {
            if let Some(succeeded) = self.outcome_of(other) {
                self.settle_dependency(id, other, succeeded, &mut events);
            }
        }
        self.finish_if_over(id, &mut events);
        Ok(events)
    }

    pub(super) fn cancel_tasks(&mut self, target: Target) -> Outcome {
        let id = target.job();
        let job = self.job(id)?;
        if job.is_finished() {
            return Err(Rejection::JobFinished(id));
        }
        let targets = self.targets(target)?;
        let mut events = Vec::new();
        let never_started = job.queued.intersection(&targets);
        let started: Vec<TaskId> = self.started_among(id, &targets);
        for task in started {
            self.cancel_started(task, &mut events);
        }
        self.end_never_started(id, &never_started, EndReason::User);
        self.finish_if_over(id, &mut events);
        Ok(events)
    }

    fn cancel_started(&mut self, id: TaskId, events: &mut Vec<Event>) {
        let task = self.tasks.get(&id).expect("listed by the caller");
        match &task.status {
            TaskStatus::Queued { .. } => {
                let ending = Ending::new(EndReason::User, self.now());
                self.end_task(id, None, ending, events);
            }
            TaskStatus::Active(_) => self.stop_attempt(id, StopReason::User, events),
            TaskStatus::Ended { .. } => unreachable!("ended tasks are not in memory"),
        }
    }

    /// Orders the present attempt of `id` to stop. A later reason replaces only a lesser one.
    pub(super) fn stop_attempt(&mut self, id: TaskId, reason: StopReason, events: &mut Vec<Event>) {
        let mut task = self.tasks.get(&id).expect("listed by the caller").clone();
        let TaskStatus::Active(attempt) = &mut task.status else { return };
        if attempt.stop.is_some_and(|present| weight(present) >= weight(reason)) {
            return;
        }
        attempt.stop = Some(reason);
        events.push(Event::AttemptStopping(AttemptId { task: id, number: attempt.number }));
        self.put_task(id, task);
    }

    pub(super) fn hold_job(&mut self, id: JobId, by: UserName) -> Outcome {
        let job = self.job(id)?;
        if job.is_finished() {
            return Err(Rejection::JobFinished(id));
        }
        let hold = Some(Hold { by, at: self.now() });
        self.put_job(id, Job { hold, ..job.clone() });
        Ok(vec![Event::JobHeld(id)])
    }

    pub(super) fn release_job(&mut self, id: JobId) -> Outcome {
        let job = self.job(id)?;
        if job.is_finished() {
            return Err(Rejection::JobFinished(id));
        }
        self.put_job(id, Job { hold: None, ..job.clone() });
        Ok(vec![Event::JobReleased(id)])
    }

    pub(super) fn set_priority(&mut self, id: JobId, priority: u32) -> Outcome {
        let job = self.job(id)?;
        if job.is_finished() {
            return Err(Rejection::JobFinished(id));
        }
        let spec = Arc::new(JobSpec { priority, ..(*job.spec).clone() });
        self.put_job(id, Job { spec, ..job.clone() });
        Ok(vec![Event::PriorityChanged(id)])
    }

    /// Ended tasks wait again; running ones are stopped first.
    pub(super) fn requeue_tasks(&mut self, target: Target) -> Outcome {
        let id = target.job();
        let job = self.job(id)?;
        let targets = self.targets(target)?;
        let mut over = IndexSet::new();
        for set in [&job.completed, &job.failed, &job.cancelled] {
            over.extend(&set.intersection(&targets));
        }
        let active: Vec<TaskId> = self
            .started_among(id, &targets)
            .into_iter()
            .filter(|task| self.tasks.get(task).is_some_and(|task| task.attempt().is_some()))
            .collect();
        if over.is_empty() && active.is_empty() {
            return Err(Rejection::NothingToRequeue(id));
        }
        let mut events = Vec::new();
        for task in active {
            self.stop_attempt(task, StopReason::Requeue, &mut events);
        }
        if !over.is_empty() {
            self.queue_again(id, &over, &mut events);
        }
        Ok(events)
    }

    fn queue_again(&mut self, id: JobId, over: &IndexSet, events: &mut Vec<Event>) {
        let mut job = self.jobs.get(&id).expect("looked up by the caller").clone();
        for (first, last) in over.ranges() {
            job.completed.remove_range(first, last);
            job.failed.remove_range(first, last);
            job.cancelled.remove_range(first, last);
        }
        events.push(Event::TasksQueuedAgain(id, over.clone()));
        job.queued.extend(over);
        // A number that was used stays used, also by tasks whose rows have left memory.
        job.attempt_base = job.highest_attempt;
        job.finished_at = None;
        if job.first_failure.as_ref().is_some_and(|failure| over.contains(failure.index)) {
            job.first_failure = None;
        }
        self.put_job(id, job);
    }

    /// Records the end of a task that was started, and of its job with it.
    pub(super) fn end_task(
        &mut self,
        id: TaskId,
        attempt: Option<Attempt>,
        ending: Ending,
        events: &mut Vec<Event>,
    ) {
        let task = self.tasks.get(&id).expect("only tasks with rows end here").clone();
        let status = TaskStatus::Ended { attempt, ending: ending.clone() };
        self.put_task(id, Task { status, ..task });
        let mut job = self.jobs.get(&id.job).expect("a task's job is in memory").clone();
        self.record_ending(&mut job, id.index, &ending);
        events.push(Event::TaskEnded(id, ending));
        self.put_job(id.job, job);
        self.finish_if_over(id.job, events);
    }

    /// Ends tasks that never had an attempt: ranges, whatever their number.
    fn end_never_started(&mut self, id: JobId, indices: &IndexSet, reason: EndReason) {
        let Some(first) = indices.first() else { return };
        let ending = Ending::new(reason, self.now());
        let mut job = self.jobs.get(&id).expect("looked up by the caller").clone();
        for (first, last) in indices.ranges() {
            job.queued.remove_range(first, last);
        }
        match reason {
            EndReason::User => {
                job.cancelled.extend(indices);
                self.counters.tasks_cancelled += indices.len();
            }
            _ => {
                job.failed.extend(indices);
                self.counters.tasks_failed += indices.len();
                let failure = FirstFailure { index: first, ending };
                job.first_failure.get_or_insert(failure);
            }
        }
        self.put_job(id, job);
    }

    fn record_ending(&mut self, job: &mut Job, index: u32, ending: &Ending) {
        match ending.reason.final_state() {
            TaskState::Completed => {
                job.completed.insert(index);
                self.counters.tasks_completed += 1;
            }
            TaskState::Cancelled => {
                job.cancelled.insert(index);
                self.counters.tasks_cancelled += 1;
            }
            _ => {
                job.failed.insert(index);
                self.counters.tasks_failed += 1;
                let failure = FirstFailure { index, ending: ending.clone() };
                job.first_failure.get_or_insert(failure);
            }
        }
    }

    /// Records the end of a job, and of those that depended on it and can never run now. Such chains may be long, so
    /// they are followed step by step, not by recursion.
    fn finish_if_over(&mut self, id: JobId, events: &mut Vec<Event>) {
        let mut over = VecDeque::new();
        over.extend(self.close_job(id, events).then_some(id));
        while let Some(id) = over.pop_front() {
            let succeeded = self.outcome_of(id).expect("it was closed");
            for dependent in self.derived.dependents.get(&id).cloned().unwrap_or_default() {
                self.settle_dependency(dependent, id, succeeded, events);
                over.extend(self.close_job(dependent, events).then_some(dependent));
            }
        }
    }

    /// Says whether the job is over with this.
    fn close_job(&mut self, id: JobId, events: &mut Vec<Event>) -> bool {
        let job = self.jobs.get(&id).expect("looked up by the caller");
        if job.is_finished() || job.ended() < job.spec.tasks() {
            return false;
        }
        let mut job = job.clone();
        job.finished_at = Some(self.now());
        job.waits_for.clear();
        job.hold = None;
        self.put_job(id, job);
        let counts = self.counts(id, self.jobs.get(&id).expect("put above"), self.now());
        events.push(Event::JobFinished(id, counts.summary()));
        true
    }

    /// `on` is over: `id` waits for one job less, or can never run.
    fn settle_dependency(
        &mut self,
        id: JobId,
        on: JobId,
        succeeded: bool,
        events: &mut Vec<Event>,
    ) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(kind) = job.waits_for.get(&on).copied() else { return };
        let met = match kind {
            DependencyKind::AfterOk => succeeded,
            DependencyKind::AfterAny => true,
            DependencyKind::AfterNotOk => !succeeded,
        };
        if !met {
            let all = job.queued.clone();
            return self.end_never_started(id, &all, EndReason::DependencyFailed);
        }
        let mut job = job.clone();
        job.waits_for.remove(&on);
        if job.waits_for.is_empty() {
            events.push(Event::JobUnblocked(id));
        }
        self.put_job(id, job);
    }

    /// Whether every task of a job that is over completed; `None` while it is not over.
    fn outcome_of(&self, id: JobId) -> Option<bool> {
        match self.jobs.get(&id) {
            Some(job) if job.is_finished() => {
                Some(job.failed.is_empty() && job.cancelled.is_empty())
            }
            Some(_) => None,
            None => Some(u32::try_from(id.0).is_ok_and(|id| self.counters.retired_ok.contains(id))),
        }
    }

    fn check_queue(&self, name: &QueueName) -> Result<(), Rejection> {
        let queue = self.queues.get(name).ok_or_else(|| Rejection::UnknownQueue(name.clone()))?;
        if !queue.open {
            return Err(Rejection::QueueClosed(name.clone()));
        }
        Ok(())
    }

    fn check_dependency(&self, on: JobId) -> Result<(), Rejection> {
        match on.0 >= 1 && on.0 <= self.counters.jobs_submitted {
            true => Ok(()),
            false => Err(Rejection::UnknownDependency(on)),
        }
    }

    fn targets(&self, target: Target) -> Result<IndexSet, Rejection> {
        let job = self.job(target.job())?;
        match target {
            Target::Job(_) => Ok(job.spec.indices()),
            Target::Task(task) if job.spec.indices().contains(task.index) => {
                Ok(IndexSet::from_range(task.index, task.index))
            }
            Target::Task(task) => Err(Rejection::UnknownTask(task.job, task.index)),
        }
    }

    fn started_among(&self, id: JobId, targets: &IndexSet) -> Vec<TaskId> {
        self.tasks_of(id).map(|(id, _)| *id).filter(|task| targets.contains(task.index)).collect()
    }

    pub(super) fn retire_jobs(&mut self, jobs: BTreeSet<JobId>) -> Vec<Event> {
        let mut events = Vec::new();
        for id in jobs {
            let Some(job) = self.jobs.get(&id).filter(|job| job.is_finished()) else { continue };
            let job = job.clone();
            let priority = self.queue_priority(&job);
            self.derived.remove_job(id, &job, priority);
            if let (Ok(number), Some(true)) = (u32::try_from(id.0), self.outcome_of(id)) {
                self.counters.retired_ok.insert(number);
            }
            self.jobs.archive(&id, job);
            events.push(Event::JobRetired(id));
        }
        events
    }

    pub(super) fn put_queue(&mut self, name: QueueName, queue: Queue) -> Vec<Event> {
        self.queues.insert(name.clone(), queue);
        // Its priority may have moved every job of it.
        self.rebuild();
        vec![Event::QueueChanged(name)]
    }

    pub(super) fn raise_feature_level(&mut self, level: u32) -> Outcome {
        if level <= self.counters.feature_level {
            return Err(Rejection::StaleFeatureLevel(level));
        }
        self.counters.feature_level = level;
        Ok(vec![Event::FeatureLevelRaised(level)])
    }
}

/// What a person said stands above what the scheduler wants, and that above what merely follows from another end.
fn weight(reason: StopReason) -> u32 {
    match reason {
        StopReason::User => 3,
        StopReason::Requeue => 2,
        StopReason::Preempted => 1,
        StopReason::GangFailed => 0,
    }
}

/// Of a submission; the same on every replica because the spec's maps are ordered.
fn digest(spec: &JobSpec, user: &UserName) -> String {
    let text = serde_json::to_vec(&(spec, user)).expect("a spec is plain data");
    blake3::hash(&text).to_hex()[..32].to_owned()
}
