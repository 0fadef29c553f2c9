//! What enters the log. Old bytes decode for ever: see the golden files beside the tests.

use prost::Message;
use uuid::Uuid;

use crate::model::{
    Bytes, Epoch, IdempotencyKey, JobId, MilliCpus, QueueName, Timestamp, UserName, WorkerId,
    WorkerName,
};
use crate::rpc::{
    convert::{Malformed, all, required},
    proto::{self, command as wire, command::Kind},
};
use crate::state::{Batch, Command, RegisterWorker, SubmitJob};

/// Commands as a part of a log entry: each proposer encodes its own, and [`join_commands`] puts them together.
pub(crate) fn encode_commands(commands: &[Command]) -> Vec<u8> {
    let commands = commands.iter().map(Into::into).collect();
    proto::Batch { at_ms: 0, commands }.encode_to_vec()
}

/// The bytes of one log entry. Protobuf messages are joined by joining their bytes.
pub(crate) fn join_commands<'a>(
    at: Timestamp,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> bytes::Bytes {
    let mut bytes = proto::Batch { at_ms: at.0, commands: Vec::new() }.encode_to_vec();
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes.into()
}

/// # Errors
/// The bytes are no batch, or hold what this version does not know.
pub(crate) fn decode_batch(bytes: &[u8]) -> Result<Batch, Malformed> {
    proto::Batch::decode(bytes)?.try_into()
}

impl TryFrom<proto::Batch> for Batch {
    type Error = Malformed;

    fn try_from(batch: proto::Batch) -> Result<Self, Malformed> {
        Ok(Batch { at: Timestamp(batch.at_ms), commands: all(batch.commands)? })
    }
}

impl From<&Command> for proto::Command {
    fn from(command: &Command) -> Self {
        let kind = match command {
            Command::SubmitJob(submission) => Kind::SubmitJob((&**submission).into()),
            Command::CancelTasks { target, by } => Kind::CancelTasks(wire::CancelTasks {
                target: Some((*target).into()),
                by: by.to_string(),
            }),
            Command::HoldJob { job, by } => {
                Kind::HoldJob(wire::HoldJob { job: job.0, by: by.to_string() })
            }
            Command::ReleaseJob { job } => Kind::ReleaseJob(wire::ReleaseJob { job: job.0 }),
            Command::RequeueTasks { target } => {
                Kind::RequeueTasks(wire::RequeueTasks { target: Some((*target).into()) })
            }
            Command::SetPriority { job, priority } => {
                Kind::SetPriority(wire::SetPriority { job: job.0, priority: *priority })
            }
            Command::RegisterWorker(registration) => Kind::RegisterWorker(registration.into()),
            Command::StartPart { attempt, worker, epoch } => Kind::StartPart(wire::StartPart {
                attempt: Some((*attempt).into()),
                worker: worker.0,
                epoch: epoch.0,
            }),
            Command::EndPart { attempt, worker, epoch, ending } => Kind::EndPart(wire::EndPart {
                attempt: Some((*attempt).into()),
                worker: worker.0,
                epoch: epoch.0,
                ending: Some(ending.into()),
            }),
            Command::UpdateGpus { worker, epoch, gpus } => Kind::UpdateGpus(wire::UpdateGpus {
                worker: worker.0,
                epoch: epoch.0,
                gpus: gpus.iter().map(Into::into).collect(),
            }),
            Command::PlaceTask(placement) => Kind::PlaceTask(placement.into()),
            Command::SilenceWorker { worker, epoch } => {
                Kind::SilenceWorker(wire::SilenceWorker { worker: worker.0, epoch: epoch.0 })
            }
            Command::ReconnectWorker { worker, epoch } => {
                Kind::ReconnectWorker(wire::ReconnectWorker { worker: worker.0, epoch: epoch.0 })
            }
            Command::GiveUpAttempt { attempt, worker } => {
                Kind::GiveUpAttempt(wire::GiveUpAttempt {
                    attempt: Some((*attempt).into()),
                    worker: worker.0,
                })
            }
            Command::RecallAttempt { attempt } => {
                Kind::RecallAttempt(wire::RecallAttempt { attempt: Some((*attempt).into()) })
            }
            Command::RetireJobs { jobs } => {
                Kind::RetireJobs(wire::RetireJobs { jobs: jobs.iter().map(|id| id.0).collect() })
            }
            Command::DrainWorker { worker, reason } => {
                Kind::DrainWorker(wire::DrainWorker { worker: worker.0, reason: reason.clone() })
            }
            Command::ResumeWorker { worker } => {
                Kind::ResumeWorker(wire::ResumeWorker { worker: worker.0 })
            }
            Command::ForgetWorker { worker } => {
                Kind::ForgetWorker(wire::ForgetWorker { worker: worker.0 })
            }
            Command::PutQueue { name, queue } => {
                Kind::PutQueue(wire::PutQueue { name: name.to_string(), queue: Some(queue.into()) })
            }
            Command::BeginGeneration { adopted } => {
                Kind::BeginGeneration(wire::BeginGeneration { adopted: adopted.clone() })
            }
            Command::SettleWorker { worker, epoch } => {
                Kind::SettleWorker(wire::SettleWorker { worker: worker.0, epoch: epoch.0 })
            }
            Command::RaiseFeatureLevel { level } => {
                Kind::RaiseFeatureLevel(wire::RaiseFeatureLevel { level: *level })
            }
        };
        proto::Command { kind: Some(kind) }
    }
}

impl TryFrom<proto::Command> for Command {
    type Error = Malformed;

    fn try_from(command: proto::Command) -> Result<Self, Malformed> {
        Ok(match command.kind.ok_or(Malformed::UnknownCommand)? {
            Kind::SubmitJob(submission) => Command::SubmitJob(Box::new(submission.try_into()?)),
            Kind::CancelTasks(wire::CancelTasks { target, by }) => Command::CancelTasks {
                target: required(target, "cancel_tasks.target")?,
                by: UserName::new(by),
            },
            Kind::HoldJob(wire::HoldJob { job, by }) => {
                Command::HoldJob { job: JobId(job), by: UserName::new(by) }
            }
            Kind::ReleaseJob(wire::ReleaseJob { job }) => Command::ReleaseJob { job: JobId(job) },
            Kind::RequeueTasks(wire::RequeueTasks { target }) => {
                Command::RequeueTasks { target: required(target, "requeue_tasks.target")? }
            }
            Kind::SetPriority(wire::SetPriority { job, priority }) => {
                Command::SetPriority { job: JobId(job), priority }
            }
            Kind::RegisterWorker(registration) => Command::RegisterWorker(registration.try_into()?),
            Kind::StartPart(wire::StartPart { attempt, worker, epoch }) => Command::StartPart {
                attempt: required(attempt, "start_part.attempt")?,
                worker: WorkerId(worker),
                epoch: Epoch(epoch),
            },
            Kind::EndPart(wire::EndPart { attempt, worker, epoch, ending }) => Command::EndPart {
                attempt: required(attempt, "end_part.attempt")?,
                worker: WorkerId(worker),
                epoch: Epoch(epoch),
                ending: required(ending, "end_part.ending")?,
            },
            Kind::UpdateGpus(wire::UpdateGpus { worker, epoch, gpus }) => Command::UpdateGpus {
                worker: WorkerId(worker),
                epoch: Epoch(epoch),
                gpus: all(gpus)?,
            },
            Kind::PlaceTask(placement) => Command::PlaceTask(placement.try_into()?),
            Kind::SilenceWorker(wire::SilenceWorker { worker, epoch }) => {
                Command::SilenceWorker { worker: WorkerId(worker), epoch: Epoch(epoch) }
            }
            Kind::ReconnectWorker(wire::ReconnectWorker { worker, epoch }) => {
                Command::ReconnectWorker { worker: WorkerId(worker), epoch: Epoch(epoch) }
            }
            Kind::GiveUpAttempt(wire::GiveUpAttempt { attempt, worker }) => {
                let attempt = required(attempt, "give_up_attempt.attempt")?;
                Command::GiveUpAttempt { attempt, worker: WorkerId(worker) }
            }
            Kind::RecallAttempt(wire::RecallAttempt { attempt }) => {
                Command::RecallAttempt { attempt: required(attempt, "recall_attempt.attempt")? }
            }
            Kind::RetireJobs(wire::RetireJobs { jobs }) => {
                Command::RetireJobs { jobs: jobs.into_iter().map(JobId).collect() }
            }
            Kind::DrainWorker(wire::DrainWorker { worker, reason }) => {
                Command::DrainWorker { worker: WorkerId(worker), reason }
            }
            Kind::ResumeWorker(wire::ResumeWorker { worker }) => {
                Command::ResumeWorker { worker: WorkerId(worker) }
            }
            Kind::ForgetWorker(wire::ForgetWorker { worker }) => {
                Command::ForgetWorker { worker: WorkerId(worker) }
            }
            Kind::PutQueue(wire::PutQueue { name, queue }) => Command::PutQueue {
                name: QueueName::new(name),
                queue: queue.ok_or(Malformed::Missing("put_queue.queue"))?.into(),
            },
            Kind::BeginGeneration(wire::BeginGeneration { adopted }) => {
                Command::BeginGeneration { adopted }
            }
            Kind::SettleWorker(wire::SettleWorker { worker, epoch }) => {
                Command::SettleWorker { worker: WorkerId(worker), epoch: Epoch(epoch) }
            }
            Kind::RaiseFeatureLevel(wire::RaiseFeatureLevel { level }) => {
                Command::RaiseFeatureLevel { level }
            }
        })
    }
}

impl From<&SubmitJob> for wire::SubmitJob {
    fn from(submission: &SubmitJob) -> Self {
        wire::SubmitJob {
            spec: Some((&submission.spec).into()),
            user: submission.user.to_string(),
            key: submission.key.to_string(),
        }
    }
}

impl TryFrom<wire::SubmitJob> for SubmitJob {
    type Error = Malformed;

    fn try_from(wire::SubmitJob { spec, user, key }: wire::SubmitJob) -> Result<Self, Malformed> {
        Ok(SubmitJob {
            spec: required(spec, "submit_job.spec")?,
            user: UserName::new(user),
            key: IdempotencyKey::new(key),
        })
    }
}

impl From<&RegisterWorker> for wire::RegisterWorker {
    fn from(worker: &RegisterWorker) -> Self {
        wire::RegisterWorker {
            uuid: bytes::Bytes::copy_from_slice(worker.uuid.as_bytes()),
            name: worker.name.to_string(),
            epoch: worker.epoch.0,
            address: worker.address.clone(),
            version: worker.version.clone(),
            milli_cpus: worker.cpus.0,
            memory_bytes: worker.memory.0,
            gpus: worker.gpus.iter().map(Into::into).collect(),
            labels: worker.labels.clone(),
            backends: worker.backends.iter().map(|it| proto::Backend::from(*it).into()).collect(),
            ephemeral: worker.ephemeral,
        }
    }
}

impl TryFrom<wire::RegisterWorker> for RegisterWorker {
    type Error = Malformed;

    fn try_from(worker: wire::RegisterWorker) -> Result<Self, Malformed> {
        let fault = Malformed::Invalid { field: "register_worker.uuid", problem: "not 16 bytes" };
        Ok(RegisterWorker {
            uuid: Uuid::from_slice(&worker.uuid).map_err(|_| fault)?,
            name: WorkerName::new(worker.name),
            epoch: Epoch(worker.epoch),
            address: worker.address,
            version: worker.version,
            cpus: MilliCpus(worker.milli_cpus),
            memory: Bytes(worker.memory_bytes),
            gpus: all(worker.gpus)?,
            labels: worker.labels,
            backends: worker
                .backends
                .into_iter()
                .map(proto::Backend::decode)
                .collect::<Result<_, _>>()?,
            ephemeral: worker.ephemeral,
        })
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
