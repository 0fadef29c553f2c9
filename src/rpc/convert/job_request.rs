//! What is asked about jobs.

use std::time::Duration;

use crate::model::{IdempotencyKey, JobId, JobSpec, TaskId, TaskState, UserName};
use crate::rpc::{
    api::{Consistency, JobAction, JobFilter, LogRequest, SubmitRequest, TargetRef, TaskFilter},
    convert::{Malformed, required},
    proto::{self, act_on_job_request::Action},
};

/// Jobs or tasks in one answer.
const MOST_ROWS: u32 = 10_000;
/// Jobs that one call may name.
const MOST_JOBS: usize = 10_000;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Names of users and keys of submissions are kept in the state; nobody needs more.
const LONGEST_NAME: usize = 256;

impl From<SubmitRequest> for proto::SubmitRequest {
    fn from(request: SubmitRequest) -> Self {
        proto::SubmitRequest {
            spec: Some((&request.spec).into()),
            user: request.user.to_string(),
            key: request.key.to_string(),
            strict: request.strict,
            dry_run: request.dry_run,
        }
    }
}

impl TryFrom<proto::SubmitRequest> for SubmitRequest {
    type Error = Malformed;

    fn try_from(request: proto::SubmitRequest) -> Result<Self, Malformed> {
        Ok(SubmitRequest {
            spec: required(request.spec, "spec")?,
            user: UserName::new(name(request.user, "user")?),
            key: IdempotencyKey::new(name(request.key, "key")?),
            strict: request.strict,
            dry_run: request.dry_run,
        })
    }
}

impl From<(JobFilter, Consistency)> for proto::ListJobsRequest {
    fn from((filter, consistency): (JobFilter, Consistency)) -> Self {
        proto::ListJobsRequest {
            ids: filter.ids.iter().map(|id| id.0).collect(),
            states: states_out(&filter.states),
            user: filter.user,
            queue: filter.queue,
            name: filter.name,
            finished: filter.finished,
            limit: filter.limit,
            before: filter.before.map(|id| id.0),
            stale: consistency.into(),
        }
    }
}

impl TryFrom<proto::ListJobsRequest> for (JobFilter, Consistency) {
    type Error = Malformed;

    fn try_from(request: proto::ListJobsRequest) -> Result<Self, Malformed> {
        let filter = JobFilter {
            ids: jobs(request.ids, "ids")?,
            states: states_in(request.states)?,
            user: request.user,
            queue: request.queue,
            name: request.name,
            finished: request.finished,
            limit: limit(request.limit)?,
            before: request.before.map(JobId),
        };
        Ok((filter, request.stale.into()))
    }
}

impl From<(JobId, Consistency)> for proto::GetJobRequest {
    fn from((id, consistency): (JobId, Consistency)) -> Self {
        proto::GetJobRequest { job: id.0, stale: consistency.into() }
    }
}

impl TryFrom<proto::GetJobRequest> for (JobId, Consistency) {
    type Error = Malformed;

    fn try_from(request: proto::GetJobRequest) -> Result<Self, Malformed> {
        Ok((job(request.job, "job")?, request.stale.into()))
    }
}

impl From<(TaskFilter, Consistency)> for proto::ListTasksRequest {
    fn from((filter, consistency): (TaskFilter, Consistency)) -> Self {
        proto::ListTasksRequest {
            job: filter.job.0,
            index: filter.index,
            states: states_out(&filter.states),
            limit: filter.limit,
            after: filter.after,
            stale: consistency.into(),
        }
    }
}

impl TryFrom<proto::ListTasksRequest> for (TaskFilter, Consistency) {
    type Error = Malformed;

    fn try_from(request: proto::ListTasksRequest) -> Result<Self, Malformed> {
        let filter = TaskFilter {
            job: job(request.job, "job")?,
            index: request.index,
            states: states_in(request.states)?,
            limit: limit(request.limit)?,
            after: request.after,
        };
        Ok((filter, request.stale.into()))
    }
}

impl From<(TargetRef, Consistency)> for proto::ExplainRequest {
    fn from((target, consistency): (TargetRef, Consistency)) -> Self {
        proto::ExplainRequest { target: Some(target.into()), stale: consistency.into() }
    }
}

impl TryFrom<proto::ExplainRequest> for (TargetRef, Consistency) {
    type Error = Malformed;

    fn try_from(request: proto::ExplainRequest) -> Result<Self, Malformed> {
        Ok((required(request.target, "target")?, request.stale.into()))
    }
}

impl From<(TargetRef, JobAction, UserName)> for proto::ActOnJobRequest {
    fn from((target, action, by): (TargetRef, JobAction, UserName)) -> Self {
        let action = match action {
            JobAction::Cancel => Action::Cancel(proto::Nothing {}),
            JobAction::Hold => Action::Hold(proto::Nothing {}),
            JobAction::Release => Action::Release(proto::Nothing {}),
            JobAction::Requeue => Action::Requeue(proto::Nothing {}),
            JobAction::SetPriority(priority) => Action::SetPriority(priority),
        };
        proto::ActOnJobRequest {
            target: Some(target.into()),
            by: by.to_string(),
            action: Some(action),
        }
    }
}

impl TryFrom<proto::ActOnJobRequest> for (TargetRef, JobAction, UserName) {
    type Error = Malformed;

    fn try_from(request: proto::ActOnJobRequest) -> Result<Self, Malformed> {
        let action = match request.action.ok_or(Malformed::Missing("action"))? {
            Action::Cancel(proto::Nothing {}) => JobAction::Cancel,
            Action::Hold(proto::Nothing {}) => JobAction::Hold,
            Action::Release(proto::Nothing {}) => JobAction::Release,
            Action::Requeue(proto::Nothing {}) => JobAction::Requeue,
            Action::SetPriority(priority) => JobAction::SetPriority(self::priority(priority)?),
        };
        let target = required(request.target, "target")?;
        Ok((target, action, UserName::new(name(request.by, "by")?)))
    }
}

impl From<(Vec<JobId>, Duration)> for proto::WaitRequest {
    fn from((jobs, patience): (Vec<JobId>, Duration)) -> Self {
        let patience_ms = patience.min(LONGEST_WAIT).as_millis();
        proto::WaitRequest {
            jobs: jobs.iter().map(|id| id.0).collect(),
            patience_ms: u64::try_from(patience_ms).expect("a minute in milliseconds is small"),
        }
    }
}

impl TryFrom<proto::WaitRequest> for (Vec<JobId>, Duration) {
    type Error = Malformed;

    fn try_from(request: proto::WaitRequest) -> Result<Self, Malformed> {
        let patience = Duration::from_millis(request.patience_ms);
        if request.jobs.is_empty() {
            return Err(Malformed::Missing("jobs"));
        }
        if patience > LONGEST_WAIT {
            return Err(Malformed::Invalid { field: "patience_ms", problem: "above a minute" });
        }
        Ok((jobs(request.jobs, "jobs")?, patience))
    }
}

impl From<LogRequest> for proto::LogRequest {
    fn from(request: LogRequest) -> Self {
        proto::LogRequest {
            task: Some(request.task.into()),
            attempt: request.attempt,
            node: request.node,
            follow: request.follow,
            tail: request.tail,
            from: request.from,
        }
    }
}

impl TryFrom<proto::LogRequest> for LogRequest {
    type Error = Malformed;

    fn try_from(request: proto::LogRequest) -> Result<Self, Malformed> {
        let task: TaskId = required(request.task, "task")?;
        job(task.job.0, "task.job")?;
        Ok(LogRequest {
            task,
            attempt: request.attempt,
            node: request.node,
            follow: request.follow,
            tail: request.tail,
            from: request.from,
        })
    }
}

impl From<TargetRef> for proto::Target {
    fn from(target: TargetRef) -> Self {
        match target {
            TargetRef::Job(job) => proto::Target { job: job.0, index: None },
            TargetRef::Task(task) => proto::Target { job: task.job.0, index: Some(task.index) },
        }
    }
}

impl TryFrom<proto::Target> for TargetRef {
    type Error = Malformed;

    fn try_from(target: proto::Target) -> Result<Self, Malformed> {
        let job = job(target.job, "target.job")?;
        Ok(match target.index {
            None => TargetRef::Job(job),
            Some(index) => TargetRef::Task(TaskId { job, index }),
        })
    }
}

impl From<Consistency> for bool {
    fn from(consistency: Consistency) -> bool {
        match consistency {
            Consistency::Linearizable => false,
            Consistency::Stale => true,
        }
    }
}

impl From<bool> for Consistency {
    fn from(stale: bool) -> Self {
        if stale { Consistency::Stale } else { Consistency::Linearizable }
    }
}

fn states_out(states: &[TaskState]) -> Vec<i32> {
    states.iter().map(|state| proto::TaskState::from(*state).into()).collect()
}

fn states_in(states: Vec<i32>) -> Result<Vec<TaskState>, Malformed> {
    states.into_iter().map(proto::TaskState::decode).collect()
}

/// Jobs are numbered from 1: a zero is a field that was left out.
fn job(id: u64, field: &'static str) -> Result<JobId, Malformed> {
    if id == 0 { Err(Malformed::Missing(field)) } else { Ok(JobId(id)) }
}

fn jobs(ids: Vec<u64>, field: &'static str) -> Result<Vec<JobId>, Malformed> {
    if ids.len() > MOST_JOBS {
        return Err(Malformed::Invalid { field, problem: "longer than 10,000 jobs" });
    }
    ids.into_iter().map(|id| job(id, field)).collect()
}

fn limit(limit: u32) -> Result<u32, Malformed> {
    match limit {
        1..=MOST_ROWS => Ok(limit),
        _ => Err(Malformed::Invalid { field: "limit", problem: "not within 1 to 10,000" }),
    }
}

fn priority(priority: u32) -> Result<u32, Malformed> {
    if priority > JobSpec::MAX_PRIORITY {
        return Err(Malformed::Invalid { field: "set_priority", problem: "above 1,000,000" });
    }
    Ok(priority)
}

fn name(text: String, field: &'static str) -> Result<String, Malformed> {
    match text.len() {
        0 => Err(Malformed::Missing(field)),
        1..=LONGEST_NAME => Ok(text),
        _ => Err(Malformed::Invalid { field, problem: "longer than 256 bytes" }),
    }
}
