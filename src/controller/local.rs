//! The API, answered from this controller's own state. Whoever must be up to date asks on the leader; see `front`.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::{sync::watch, time::Instant};

use crate::controller::{clock::Clock, hub::Sessions, leader::Term, views};
use crate::model::{Explanation, JobId, Queue, QueueName, TaskId, TaskState, UserName, WorkerId};
use crate::raft::Raft;
use crate::rpc::{
    api::{
        Answer, Api, ApiError, BackupStream, ClusterView, Consistency, ErrorKind, GpuView,
        JobAction, JobDetail, JobFilter, JobPage, LogRequest, LogStream, MemberAction, QueueView,
        StatusView, SubmitRequest, Submitted, TargetRef, TaskFilter, TaskPage, WaitAnswer,
        WorkerAction, WorkerView,
    },
    session::ControllerMessage,
};
use crate::scheduler::{self, Reasons};
use crate::state::{Command, Event, Rejection, State, SubmitJob, Target};

/// One controller's answers.
#[derive(Clone, Debug)]
pub struct Local {
    pub raft: Raft,
    pub terms: watch::Receiver<Option<Arc<Term>>>,
    pub sessions: Arc<Sessions>,
    pub clock: Clock,
}

/// How long a worker may take to dial the log stream it was asked for.
const LOG_DEADLINE: Duration = Duration::from_secs(10);
/// The longest that one `wait` call is held.
const MOST_PATIENCE: Duration = Duration::from_secs(60);
/// How often a question that waits for other controllers looks whether they are there at all.
const LOOK_FOR_QUORUM: Duration = Duration::from_millis(200);
/// Tasks listed with their job.
const TASKS_WITH_JOB: u32 = 20;

impl Api for Local {
    fn submit(&self, request: SubmitRequest) -> Answer<Submitted> {
        let this = self.clone();
        Box::pin(async move { this.submit_job(request).await })
    }

    fn jobs(&self, filter: JobFilter, consistency: Consistency) -> Answer<JobPage> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            this.list_jobs(filter).await
        })
    }

    fn job(&self, id: JobId, consistency: Consistency) -> Answer<JobDetail> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            this.describe_job(id).await
        })
    }

    fn tasks(&self, filter: TaskFilter, consistency: Consistency) -> Answer<TaskPage> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            this.list_tasks(filter).await
        })
    }

    fn explain(&self, target: TargetRef, consistency: Consistency) -> Answer<Explanation> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            this.explain_target(target).await
        })
    }

    fn act(&self, target: TargetRef, action: JobAction, by: UserName) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            let command = command_for(target, action, by);
            this.propose(command).await.map(|_| ())
        })
    }

    fn wait(&self, jobs: Vec<JobId>, patience: Duration) -> Answer<WaitAnswer> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(Consistency::Linearizable).await?;
            this.wait_for(jobs, patience.min(MOST_PATIENCE)).await
        })
    }

    fn logs(&self, request: LogRequest) -> Answer<LogStream> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(Consistency::Linearizable).await?;
            this.open_logs(request).await
        })
    }

    fn workers(&self, consistency: Consistency) -> Answer<Vec<WorkerView>> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            let now = this.clock.now();
            let term = this.term();
            Ok(this.raft.read(|state| {
                let view = |(id, row): (&WorkerId, _)| {
                    views::worker(state, *id, row, &this.sessions, term.as_deref(), now)
                };
                state.workers.iter().map(view).collect()
            }))
        })
    }

    fn act_on_worker(&self, worker: String, action: WorkerAction) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(Consistency::Linearizable).await?;
            let worker = this.raft.read(|state| find_worker(state, &worker))?;
            let command = match action {
                WorkerAction::Drain { reason } => Command::DrainWorker { worker, reason },
                WorkerAction::Resume => Command::ResumeWorker { worker },
                WorkerAction::Forget => Command::ForgetWorker { worker },
            };
            this.propose(command).await.map(|_| ())
        })
    }

    fn gpus(&self, consistency: Consistency) -> Answer<Vec<GpuView>> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            Ok(this.raft.read(views::gpus))
        })
    }

    fn queues(&self, consistency: Consistency) -> Answer<Vec<QueueView>> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            Ok(this.raft.read(views::queues))
        })
    }

    fn put_queue(&self, name: String, queue: Queue) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            let name = QueueName::new(name);
            this.propose(Command::PutQueue { name, queue }).await.map(|_| ())
        })
    }

    fn status(&self, consistency: Consistency) -> Answer<StatusView> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(consistency).await?;
            let now = this.clock.now();
            let mut shown = this.raft.read(|state| views::status(state, now));
            let cluster = this.describe_cluster();
            shown.cluster_id = cluster.cluster_id;
            shown.leader = cluster.leader;
            shown.controllers = cluster.members.len() as u32;
            let reachable = cluster.members.iter().filter(|it| it.reachable != Some(false));
            shown.controllers_reachable = reachable.count() as u32;
            Ok(shown)
        })
    }

    fn cluster(&self) -> Answer<ClusterView> {
        let this = self.clone();
        Box::pin(async move { Ok(this.describe_cluster()) })
    }

    fn act_on_members(&self, action: MemberAction) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            this.reach(Consistency::Linearizable).await?;
            let done = match action {
                MemberAction::Add { id, address } => this.raft.add_learner(id, address).await,
                MemberAction::Promote { id } => this.raft.promote(id).await,
                MemberAction::Move { id, address } => this.raft.move_member(id, address).await,
                MemberAction::Remove { id } => this.raft.remove_member(id).await,
                MemberAction::TransferLeader { to } => this.raft.transfer_leadership(to).await,
            };
            done.map_err(ApiError::from)
        })
    }

    fn backup(&self) -> Answer<BackupStream> {
        let chunks = tokio_stream::wrappers::ReceiverStream::new(self.raft.backup());
        let chunks = chunks.map(|chunk| chunk.map_err(internal)).boxed();
        Box::pin(std::future::ready(Ok(chunks)))
    }
}

impl Local {
    fn term(&self) -> Option<Arc<Term>> {
        self.terms.borrow().clone()
    }

    /// Makes sure that what is read next is as fresh as was asked for.
    async fn reach(&self, consistency: Consistency) -> Result<(), ApiError> {
        match consistency {
            Consistency::Stale => Ok(()),
            Consistency::Linearizable => self
                .with_quorum(self.raft.linearize())
                .await?
                .map_err(|error| ApiError::new(ErrorKind::Unavailable, error.to_string())),
        }
    }

    /// Waits for `work`, but not for controllers that this leader cannot reach.
    async fn with_quorum<T>(&self, work: impl Future<Output = T>) -> Result<T, ApiError> {
        let without = || {
            ApiError::new(
                ErrorKind::Unavailable,
                "no quorum: the leader cannot reach the other controllers",
            )
        };
        if self.raft.lacks_quorum() {
            return Err(without());
        }
        let until_lost = async {
            while !self.raft.lacks_quorum() {
                tokio::time::sleep(LOOK_FOR_QUORUM).await;
            }
        };
        tokio::select! {
            done = work => Ok(done),
            () = until_lost => Err(without()),
        }
    }

    async fn propose(&self, command: Command) -> Result<Vec<Event>, ApiError> {
        let outcomes = self.with_quorum(self.raft.propose(vec![command])).await??;
        let outcome = outcomes.into_iter().next().expect("one outcome per command");
        Ok(outcome?)
    }

    async fn submit_job(&self, request: SubmitRequest) -> Result<Submitted, ApiError> {
        let SubmitRequest { spec, user, key, strict, dry_run } = request;
        spec.check().map_err(|fault| ApiError::new(ErrorKind::Invalid, fault.to_string()))?;
        if strict || dry_run {
            self.reach(Consistency::Linearizable).await?;
        }
        let tasks = spec.indices().len();
        let infeasible = self.raft.read(|state| scheduler::infeasible(state, &spec));
        if let (true, Some(why)) = (strict, &infeasible) {
            return Err(ApiError::new(ErrorKind::Invalid, format!("refused by --strict: {why}")));
        }
        let warnings = infeasible.into_iter().collect();
        if dry_run {
            return Ok(Submitted { job_id: None, tasks, warnings });
        }
        let submission = SubmitJob { spec, user, key };
        let events = self.propose(Command::SubmitJob(Box::new(submission))).await?;
        let job_id = events.iter().find_map(|event| match event {
            Event::JobSubmitted(job) => Some(*job),
            _ => None,
        });
        Ok(Submitted { job_id, tasks, warnings })
    }

    async fn list_jobs(&self, filter: JobFilter) -> Result<JobPage, ApiError> {
        let filter = checked(filter)?;
        let limit = filter.limit as usize;
        let now = self.clock.now();
        let term = self.term();
        let mut jobs = self.raft.read(|state| {
            let view = views::scheduler_view(state, term.as_deref(), now);
            let reasons = Reasons::new(state, &view);
            let newest = filter.before.map_or(u64::MAX, |id| id.0);
            state
                .jobs
                .range(..JobId(newest))
                .rev()
                .filter(|(id, job)| may_match(&filter, **id, job))
                .map(|(id, job)| views::job(state, &reasons, *id, job))
                .filter(|job| filter.states.is_empty() || filter.states.contains(&job.status))
                .take(limit + 1)
                .collect::<Vec<_>>()
        });
        // Jobs leave memory in the order in which they finish, so older ones may still be there when newer ones are not.
        if wants_finished(&filter) {
            let stored = self.raft.history().jobs(filter.clone()).await.map_err(internal)?;
            jobs.extend(stored.iter().map(|(id, job)| views::finished_job(*id, job)));
            jobs.sort_by_key(|job| std::cmp::Reverse(job.job_id));
            jobs.dedup_by_key(|job| job.job_id);
        }
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = if more { jobs.last().map(|job| job.job_id) } else { None };
        Ok(JobPage { jobs, next })
    }

    async fn describe_job(&self, id: JobId) -> Result<JobDetail, ApiError> {
        let now = self.clock.now();
        let term = self.term();
        let in_memory = self.raft.read(|state| {
            let view = views::scheduler_view(state, term.as_deref(), now);
            let job = state.jobs.get(&id)?;
            Some((views::job(state, &Reasons::new(state, &view), id, job), job.clone()))
        });
        let (shown, job) = match in_memory {
            Some(found) => found,
            None => {
                let job = self.raft.history().job(id).await.map_err(internal)?;
                let job = job.ok_or_else(|| ApiError::from(Rejection::UnknownJob(id)))?;
                (views::finished_job(id, &job), job)
            }
        };
        let filter = TaskFilter {
            job: id,
            index: None,
            states: Vec::new(),
            limit: TASKS_WITH_JOB,
            after: None,
        };
        Ok(JobDetail {
            job: shown,
            spec: (*job.spec).clone(),
            waits_for: job.waits_for.keys().copied().collect(),
            held_by: job.hold.as_ref().map(|hold| hold.by.clone()),
            task_list: self.list_tasks(filter).await?.tasks,
        })
    }

    async fn list_tasks(&self, filter: TaskFilter) -> Result<TaskPage, ApiError> {
        let limit = filter.limit.clamp(1, 10_000) as usize;
        let now = self.clock.now();
        let wanted = |index: u32| {
            filter.index.is_none_or(|only| only == index)
                && filter.after.is_none_or(|after| index > after)
        };
        let in_state =
            |status: TaskState| filter.states.is_empty() || filter.states.contains(&status);
        let (known, mut tasks) = self.raft.read(|state| {
            let started = state
                .tasks_of(filter.job)
                .filter(|(id, _)| wanted(id.index))
                .map(|(id, task)| views::task(state, *id, task))
                .filter(|task| in_state(task.status))
                .take(limit + 1)
                .collect::<Vec<_>>();
            let job = state.jobs.get(&filter.job);
            let waiting = job.into_iter().flat_map(|job| {
                let status = match state.is_eligible(job, now) {
                    true => TaskState::Queued,
                    false => TaskState::Pending,
                };
                let waits = job.queued.iter().filter(|index| wanted(*index));
                let id = |index| TaskId { job: filter.job, index };
                waits
                    .filter(move |_| in_state(status))
                    .map(move |index| views::waiting_task(id(index), status))
                    .take(limit + 1)
                    .collect::<Vec<_>>()
            });
            (job.is_some(), started.into_iter().chain(waiting).collect::<Vec<_>>())
        });
        let stored = self.raft.history().tasks(filter.clone()).await.map_err(internal)?;
        let known = known || !stored.is_empty();
        let shown = self.raft.read(|state| {
            stored.iter().map(|(id, task)| views::task(state, *id, task)).collect::<Vec<_>>()
        });
        tasks.extend(shown.into_iter().filter(|task| in_state(task.status)));
        tasks.sort_by_key(|task| task.index);
        // A task that is run again has an old row in the store as well; the living one is named first.
        tasks.dedup_by_key(|task| task.index);
        if !known && self.raft.history().job(filter.job).await.map_err(internal)?.is_none() {
            return Err(Rejection::UnknownJob(filter.job).into());
        }
        let more = tasks.len() > limit;
        tasks.truncate(limit);
        let next = if more { tasks.last().map(|task| task.index) } else { None };
        Ok(TaskPage { tasks, next })
    }

    async fn explain_target(&self, target: TargetRef) -> Result<Explanation, ApiError> {
        let now = self.clock.now();
        let term = self.term();
        let (job, index) = match target {
            TargetRef::Job(job) => (job, None),
            TargetRef::Task(task) => (task.job, Some(task.index)),
        };
        let explained = self.raft.read(|state| {
            let view = views::scheduler_view(state, term.as_deref(), now);
            state.jobs.get(&job)?;
            Some(scheduler::explain(state, &view, job, index))
        });
        if let Some(explanation) = explained {
            return explanation.map_err(ApiError::from);
        }
        let stored = self.raft.history().job(job).await.map_err(internal)?;
        let stored = stored.ok_or_else(|| ApiError::from(Rejection::UnknownJob(job)))?;
        let shown = views::finished_job(job, &stored);
        let ended = stored.first_failure.as_ref().map(|failure| failure.ending.reason);
        Ok(Explanation {
            target: job.to_string(),
            state: shown.status,
            reason: None,
            ended,
            lines: vec![String::from("it is over; `drigs inspect` shows how it ended")],
            ahead: None,
            earliest_start: None,
        })
    }

    async fn wait_for(&self, ids: Vec<JobId>, patience: Duration) -> Result<WaitAnswer, ApiError> {
        let deadline = Instant::now() + patience;
        let mut applied = self.raft.applied();
        loop {
            applied.borrow_and_update();
            let over = self.raft.read(|state| {
                ids.iter().all(|id| state.jobs.get(id).is_none_or(|job| job.is_finished()))
            });
            let out_of_time = tokio::time::timeout_at(deadline, applied.changed());
            if over || !matches!(out_of_time.await, Ok(Ok(()))) {
                return self.standing(&ids, over).await;
            }
            if self.term().is_none() {
                return Err(ApiError::new(ErrorKind::Unavailable, "the leader changed; ask again"));
            }
        }
    }

    async fn standing(&self, ids: &[JobId], done: bool) -> Result<WaitAnswer, ApiError> {
        let mut jobs = Vec::new();
        for id in ids {
            jobs.push(self.describe_job(*id).await?.job);
        }
        Ok(WaitAnswer { jobs, done })
    }

    async fn open_logs(&self, request: LogRequest) -> Result<LogStream, ApiError> {
        let worker = self.worker_with_output(&request).await?;
        let (stream, mut chunks) = self.sessions.logs.expect();
        let asked = self.sessions.send(worker, ControllerMessage::OpenLog { stream, request });
        if !asked {
            self.sessions.logs.forget(stream);
            let name = self.raft.read(|state| {
                state.workers.get(&worker).map_or(worker.to_string(), |row| row.name.to_string())
            });
            return Err(ApiError::new(
                ErrorKind::Conflict,
                format!(
                    "worker {name} has the output and is not connected now; try again when it is back"
                ),
            ));
        }
        let first = tokio::time::timeout(LOG_DEADLINE, chunks.recv()).await;
        let Ok(first) = first else {
            self.sessions.logs.forget(stream);
            return Err(ApiError::new(
                ErrorKind::Unavailable,
                format!("worker {worker} did not send the output in time"),
            ));
        };
        let rest = tokio_stream::wrappers::ReceiverStream::new(chunks);
        Ok(futures::stream::iter(first).chain(rest).boxed())
    }

    async fn worker_with_output(&self, request: &LogRequest) -> Result<WorkerId, ApiError> {
        let task = request.task;
        let living = self.raft.read(|state| state.tasks.get(&task).cloned());
        let row = match living {
            Some(row) if row.attempt().is_some() => Some(row),
            _ => self.raft.history().task(task).await.map_err(internal)?,
        };
        let attempt = row.as_ref().and_then(|row| match &row.status {
            crate::model::TaskStatus::Active(attempt) => Some(attempt),
            crate::model::TaskStatus::Ended { attempt, .. } => attempt.as_ref(),
            crate::model::TaskStatus::Queued { .. } => None,
        });
        let part = attempt.and_then(|attempt| attempt.parts.get(request.node as usize));
        if let Some(part) = part {
            return Ok(part.slice.worker);
        }
        let known = self.raft.read(|state| state.jobs.contains(&task.job));
        match known || self.raft.history().job(task.job).await.map_err(internal)?.is_some() {
            true => Err(ApiError::new(
                ErrorKind::Conflict,
                format!(
                    "task {task} has not started yet, so it has no output; `drigs explain {task}` says why it waits"
                ),
            )),
            false => Err(Rejection::UnknownJob(task.job).into()),
        }
    }

    fn describe_cluster(&self) -> ClusterView {
        self.raft.cluster_view()
    }
}

fn command_for(target: TargetRef, action: JobAction, by: UserName) -> Command {
    let target = match target {
        TargetRef::Job(job) => Target::Job(job),
        TargetRef::Task(task) => Target::Task(task),
    };
    let job = target.job();
    match action {
        JobAction::Cancel => Command::CancelTasks { target, by },
        JobAction::Requeue => Command::RequeueTasks { target },
        JobAction::Hold => Command::HoldJob { job, by },
        JobAction::Release => Command::ReleaseJob { job },
        JobAction::SetPriority(priority) => Command::SetPriority { job, priority },
    }
}

fn find_worker(state: &State, text: &str) -> Result<WorkerId, ApiError> {
    if let Some((id, _)) = state.worker_named(text) {
        return Ok(id);
    }
    let by_id = text.strip_prefix('w').and_then(|digits| digits.parse().ok()).map(WorkerId);
    by_id.filter(|id| state.workers.contains(id)).ok_or_else(|| {
        let names: Vec<&str> = state.workers.values().map(|row| row.name.as_str()).collect();
        ApiError::new(
            ErrorKind::NotFound,
            format!("no worker `{text}`; there are: {}", names.join(", ")),
        )
    })
}

fn checked(filter: JobFilter) -> Result<JobFilter, ApiError> {
    match filter.limit {
        1..=10_000 => Ok(filter),
        limit => Err(ApiError::new(
            ErrorKind::Invalid,
            format!("limit {limit} is out of range: 1 to 10000"),
        )),
    }
}

fn wants_finished(filter: &JobFilter) -> bool {
    filter.finished || !filter.ids.is_empty() || filter.states.iter().any(|it| it.is_final())
}

fn may_match(filter: &JobFilter, id: JobId, job: &crate::model::Job) -> bool {
    (filter.ids.is_empty() || filter.ids.contains(&id))
        && (wants_finished(filter) || !job.is_finished())
        && filter.user.as_ref().is_none_or(|user| user == job.user.as_str())
        && filter.queue.as_ref().is_none_or(|queue| queue == job.spec.queue.as_str())
        && filter.name.as_ref().is_none_or(|name| job.spec.name.contains(name.as_str()))
}

fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::Internal, format!("the store could not answer: {error}"))
}
