//! Where something runs, and how it ended.

use crate::model::{
    AttemptId, Bytes, Ending, Epoch, GpuGrant, GpuUuid, JobId, MilliCpus, Placement, Slice, TaskId,
    Timestamp, WorkerId,
};
use crate::rpc::{
    convert::{Malformed, all, required, same_variants},
    proto,
};
use crate::state::Target;

same_variants!(
    EndReason,
    "ending.reason",
    [
        Success,
        Exit,
        Signal,
        Timeout,
        OutOfMemoryHost,
        OutOfMemoryGpu,
        VramLimit,
        GpuFault,
        NodeLost,
        Preempted,
        StartFailed,
        SupervisorLost,
        Rendezvous,
        GangFailed,
        User,
        DependencyFailed,
    ]
);
same_variants!(StopReason, "stop", [User, Preempted, Requeue, GangFailed]);
same_variants!(
    TaskState,
    "state",
    [Pending, Queued, Scheduled, Running, Recovering, Completed, Failed, Cancelled]
);

impl From<TaskId> for proto::TaskId {
    fn from(id: TaskId) -> Self {
        proto::TaskId { job: id.job.0, index: id.index }
    }
}

impl TryFrom<proto::TaskId> for TaskId {
    type Error = Malformed;

    fn try_from(proto::TaskId { job, index }: proto::TaskId) -> Result<Self, Malformed> {
        Ok(TaskId { job: JobId(job), index })
    }
}

impl From<AttemptId> for proto::AttemptId {
    fn from(AttemptId { task, number }: AttemptId) -> Self {
        proto::AttemptId { job: task.job.0, index: task.index, number }
    }
}

impl TryFrom<proto::AttemptId> for AttemptId {
    type Error = Malformed;

    fn try_from(id: proto::AttemptId) -> Result<Self, Malformed> {
        let proto::AttemptId { job, index, number } = id;
        Ok(AttemptId { task: TaskId { job: JobId(job), index }, number })
    }
}

impl From<Target> for proto::Target {
    fn from(target: Target) -> Self {
        match target {
            Target::Job(job) => proto::Target { job: job.0, index: None },
            Target::Task(task) => proto::Target { job: task.job.0, index: Some(task.index) },
        }
    }
}

impl TryFrom<proto::Target> for Target {
    type Error = Malformed;

    fn try_from(proto::Target { job, index }: proto::Target) -> Result<Self, Malformed> {
        let job = JobId(job);
        Ok(index.map_or(Target::Job(job), |index| Target::Task(TaskId { job, index })))
    }
}

impl From<&Placement> for proto::Placement {
    fn from(placement: &Placement) -> Self {
        proto::Placement {
            task: Some(placement.task.into()),
            slices: placement.slices.iter().map(Into::into).collect(),
            prefetch: placement.prefetch,
        }
    }
}

impl TryFrom<proto::Placement> for Placement {
    type Error = Malformed;

    fn try_from(placement: proto::Placement) -> Result<Self, Malformed> {
        Ok(Placement {
            task: required(placement.task, "placement.task")?,
            slices: all(placement.slices)?,
            prefetch: placement.prefetch,
        })
    }
}

impl From<&Slice> for proto::Slice {
    fn from(slice: &Slice) -> Self {
        let grant = |grant: &GpuGrant| proto::GpuGrant {
            gpu: grant.gpu.to_string(),
            share_bytes: grant.share.map(|share| share.0),
        };
        proto::Slice {
            worker: slice.worker.0,
            epoch: slice.epoch.0,
            milli_cpus: slice.cpus.0,
            memory_bytes: slice.memory.0,
            gpus: slice.gpus.iter().map(grant).collect(),
            first_rank: slice.first_rank,
            ranks: slice.ranks,
        }
    }
}

impl TryFrom<proto::Slice> for Slice {
    type Error = Malformed;

    fn try_from(slice: proto::Slice) -> Result<Self, Malformed> {
        let grant = |grant: proto::GpuGrant| GpuGrant {
            gpu: GpuUuid::new(grant.gpu),
            share: grant.share_bytes.map(Bytes),
        };
        Ok(Slice {
            worker: WorkerId(slice.worker),
            epoch: Epoch(slice.epoch),
            cpus: MilliCpus(slice.milli_cpus),
            memory: Bytes(slice.memory_bytes),
            gpus: slice.gpus.into_iter().map(grant).collect(),
            first_rank: slice.first_rank,
            ranks: slice.ranks,
        })
    }
}

impl From<&Ending> for proto::Ending {
    fn from(ending: &Ending) -> Self {
        proto::Ending {
            reason: proto::EndReason::from(ending.reason).into(),
            exit_code: ending.exit_code,
            signal: ending.signal,
            message: ending.message.clone(),
            at_ms: ending.at.0,
        }
    }
}

impl TryFrom<proto::Ending> for Ending {
    type Error = Malformed;

    fn try_from(ending: proto::Ending) -> Result<Self, Malformed> {
        Ok(Ending {
            reason: proto::EndReason::decode(ending.reason)?,
            exit_code: ending.exit_code,
            signal: ending.signal,
            message: ending.message,
            at: Timestamp(ending.at_ms),
        })
    }
}
