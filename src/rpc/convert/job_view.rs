//! What is answered about jobs.

use crate::model::{
    Bytes, EndReason, Explanation, JobId, MilliCpus, TaskState, Timestamp, UserName, WaitReason,
};
use crate::rpc::{
    api::{
        EndingView, JobDetail, JobPage, JobView, LogChunk, Submitted, TaskCountsView, TaskPage,
        TaskView, WaitAnswer,
    },
    convert::{Malformed, all, required, same_variants},
    proto,
};

same_variants!(
    WaitReason,
    "reason",
    [
        Held, Dependency, BeginTime, Quota, MaxRunning, Backoff, Resources, Priority, Reserved,
        Infeasible, NoWorkers, Recovering, Starting,
    ]
);

impl From<Submitted> for proto::Submitted {
    fn from(submitted: Submitted) -> Self {
        proto::Submitted {
            job_id: submitted.job_id.map(|id| id.0),
            tasks: submitted.tasks,
            warnings: submitted.warnings,
        }
    }
}

impl TryFrom<proto::Submitted> for Submitted {
    type Error = Malformed;

    fn try_from(submitted: proto::Submitted) -> Result<Self, Malformed> {
        Ok(Submitted {
            job_id: submitted.job_id.map(JobId),
            tasks: submitted.tasks,
            warnings: submitted.warnings,
        })
    }
}

impl From<JobPage> for proto::JobPage {
    fn from(JobPage { jobs, next }: JobPage) -> Self {
        proto::JobPage {
            jobs: jobs.into_iter().map(Into::into).collect(),
            next: next.map(|id| id.0),
        }
    }
}

impl TryFrom<proto::JobPage> for JobPage {
    type Error = Malformed;

    fn try_from(proto::JobPage { jobs, next }: proto::JobPage) -> Result<Self, Malformed> {
        Ok(JobPage { jobs: all(jobs)?, next: next.map(JobId) })
    }
}

impl From<JobView> for proto::JobView {
    fn from(job: JobView) -> Self {
        proto::JobView {
            job_id: job.job_id.0,
            name: job.name,
            user: job.user.to_string(),
            queue: job.queue,
            status: proto::TaskState::from(job.status).into(),
            reason: job.reason.map(reason_out),
            priority: job.priority,
            submitted_at_ms: job.submitted_at.0,
            started_at_ms: job.started_at.map(|at| at.0),
            completed_at_ms: job.completed_at.map(|at| at.0),
            tasks: Some(job.tasks.into()),
            milli_cpus: job.cpus.0,
            memory_bytes: job.memory.0,
            gpus: job.gpus,
            nodes: job.nodes,
            is_array: job.is_array,
            workers: job.workers,
            ended: job.ended.map(Into::into),
            time_limit_ms: job.time_limit_ms,
        }
    }
}

impl TryFrom<proto::JobView> for JobView {
    type Error = Malformed;

    fn try_from(job: proto::JobView) -> Result<Self, Malformed> {
        Ok(JobView {
            job_id: JobId(job.job_id),
            name: job.name,
            user: UserName::new(job.user),
            queue: job.queue,
            status: proto::TaskState::decode(job.status)?,
            reason: job.reason.map(proto::WaitReason::decode).transpose()?,
            priority: job.priority,
            submitted_at: Timestamp(job.submitted_at_ms),
            started_at: job.started_at_ms.map(Timestamp),
            completed_at: job.completed_at_ms.map(Timestamp),
            tasks: required(job.tasks, "job.tasks")?,
            cpus: MilliCpus(job.milli_cpus),
            memory: Bytes(job.memory_bytes),
            gpus: job.gpus,
            nodes: job.nodes,
            is_array: job.is_array,
            workers: job.workers,
            ended: job.ended.map(Into::into),
            time_limit_ms: job.time_limit_ms,
        })
    }
}

impl From<TaskCountsView> for proto::TaskCounts {
    fn from(counts: TaskCountsView) -> Self {
        let TaskCountsView {
            pending,
            queued,
            scheduled,
            running,
            recovering,
            completed,
            failed,
            cancelled,
        } = counts;
        proto::TaskCounts {
            pending,
            queued,
            scheduled,
            running,
            recovering,
            completed,
            failed,
            cancelled,
        }
    }
}

impl TryFrom<proto::TaskCounts> for TaskCountsView {
    type Error = Malformed;

    fn try_from(counts: proto::TaskCounts) -> Result<Self, Malformed> {
        let proto::TaskCounts {
            pending,
            queued,
            scheduled,
            running,
            recovering,
            completed,
            failed,
            cancelled,
        } = counts;
        Ok(TaskCountsView {
            pending,
            queued,
            scheduled,
            running,
            recovering,
            completed,
            failed,
            cancelled,
        })
    }
}

impl From<EndingView> for proto::EndingView {
    fn from(EndingView { reason, exit_code, signal, message }: EndingView) -> Self {
        proto::EndingView { reason, exit_code, signal, message }
    }
}

impl From<proto::EndingView> for EndingView {
    fn from(ending: proto::EndingView) -> Self {
        let proto::EndingView { reason, exit_code, signal, message } = ending;
        EndingView { reason, exit_code, signal, message }
    }
}

impl From<JobDetail> for proto::JobDetail {
    fn from(detail: JobDetail) -> Self {
        proto::JobDetail {
            job: Some(detail.job.into()),
            spec: Some((&detail.spec).into()),
            waits_for: detail.waits_for.iter().map(|id| id.0).collect(),
            held_by: detail.held_by.map(|user| user.to_string()),
            task_list: detail.task_list.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::JobDetail> for JobDetail {
    type Error = Malformed;

    fn try_from(detail: proto::JobDetail) -> Result<Self, Malformed> {
        Ok(JobDetail {
            job: required(detail.job, "job")?,
            spec: required(detail.spec, "spec")?,
            waits_for: detail.waits_for.into_iter().map(JobId).collect(),
            held_by: detail.held_by.map(UserName::new),
            task_list: all(detail.task_list)?,
        })
    }
}

impl From<TaskView> for proto::TaskView {
    fn from(task: TaskView) -> Self {
        proto::TaskView {
            task_id: task.task_id,
            index: task.index,
            status: proto::TaskState::from(task.status).into(),
            attempt: task.attempt,
            failures: task.failures,
            worker_names: task.worker_names,
            gpus: task.gpus,
            placed_at_ms: task.placed_at.map(|at| at.0),
            started_at_ms: task.started_at.map(|at| at.0),
            ended_at_ms: task.ended_at.map(|at| at.0),
            stopping: task.stopping,
            ended: task.ended.map(Into::into),
        }
    }
}

impl TryFrom<proto::TaskView> for TaskView {
    type Error = Malformed;

    fn try_from(task: proto::TaskView) -> Result<Self, Malformed> {
        Ok(TaskView {
            task_id: task.task_id,
            index: task.index,
            status: proto::TaskState::decode(task.status)?,
            attempt: task.attempt,
            failures: task.failures,
            worker_names: task.worker_names,
            gpus: task.gpus,
            placed_at: task.placed_at_ms.map(Timestamp),
            started_at: task.started_at_ms.map(Timestamp),
            ended_at: task.ended_at_ms.map(Timestamp),
            stopping: task.stopping,
            ended: task.ended.map(Into::into),
        })
    }
}

impl From<TaskPage> for proto::TaskPage {
    fn from(TaskPage { tasks, next }: TaskPage) -> Self {
        proto::TaskPage { tasks: tasks.into_iter().map(Into::into).collect(), next }
    }
}

impl TryFrom<proto::TaskPage> for TaskPage {
    type Error = Malformed;

    fn try_from(proto::TaskPage { tasks, next }: proto::TaskPage) -> Result<Self, Malformed> {
        Ok(TaskPage { tasks: all(tasks)?, next })
    }
}

impl From<Explanation> for proto::Explanation {
    fn from(explanation: Explanation) -> Self {
        let ended = |reason: EndReason| proto::EndReason::from(reason).into();
        proto::Explanation {
            target: explanation.target,
            state: proto::TaskState::from(explanation.state).into(),
            reason: explanation.reason.map(reason_out),
            ended: explanation.ended.map(ended),
            lines: explanation.lines,
            ahead: explanation.ahead,
            earliest_start_ms: explanation.earliest_start.map(|at| at.0),
        }
    }
}

impl TryFrom<proto::Explanation> for Explanation {
    type Error = Malformed;

    fn try_from(explanation: proto::Explanation) -> Result<Self, Malformed> {
        let state: TaskState = proto::TaskState::decode(explanation.state)?;
        Ok(Explanation {
            target: explanation.target,
            state,
            reason: explanation.reason.map(proto::WaitReason::decode).transpose()?,
            ended: explanation.ended.map(proto::EndReason::decode).transpose()?,
            lines: explanation.lines,
            ahead: explanation.ahead,
            earliest_start: explanation.earliest_start_ms.map(Timestamp),
        })
    }
}

impl From<WaitAnswer> for proto::WaitAnswer {
    fn from(WaitAnswer { jobs, done }: WaitAnswer) -> Self {
        proto::WaitAnswer { jobs: jobs.into_iter().map(Into::into).collect(), done }
    }
}

impl TryFrom<proto::WaitAnswer> for WaitAnswer {
    type Error = Malformed;

    fn try_from(proto::WaitAnswer { jobs, done }: proto::WaitAnswer) -> Result<Self, Malformed> {
        Ok(WaitAnswer { jobs: all(jobs)?, done })
    }
}

impl From<LogChunk> for proto::LogChunk {
    fn from(LogChunk { attempt, offset, bytes, dropped }: LogChunk) -> Self {
        proto::LogChunk { attempt: Some(attempt.into()), offset, bytes: bytes.into(), dropped }
    }
}

impl TryFrom<proto::LogChunk> for LogChunk {
    type Error = Malformed;

    fn try_from(chunk: proto::LogChunk) -> Result<Self, Malformed> {
        let length = chunk.bytes.len() as u64;
        if chunk.offset.checked_add(length).is_none() {
            return Err(Malformed::Invalid { field: "chunk.offset", problem: "beyond all sizes" });
        }
        Ok(LogChunk {
            attempt: required(chunk.attempt, "chunk.attempt")?,
            offset: chunk.offset,
            bytes: chunk.bytes.into(),
            dropped: chunk.dropped,
        })
    }
}

impl From<()> for proto::Nothing {
    fn from((): ()) -> Self {
        proto::Nothing {}
    }
}

impl TryFrom<proto::Nothing> for () {
    type Error = Malformed;

    fn try_from(proto::Nothing {}: proto::Nothing) -> Result<(), Malformed> {
        Ok(())
    }
}

fn reason_out(reason: WaitReason) -> i32 {
    proto::WaitReason::from(reason).into()
}
