//! What a worker and the leader say to each other; orders have a file of their own.

use uuid::Uuid;

use crate::model::{AttemptReport, Bytes, Epoch, Gpu, MilliCpus, Millis, Phase, WorkerId};
use crate::rpc::{
    api::{ApiError, LogChunk, LogRequest},
    convert::{Malformed, all, required},
    proto::{self, log_upload, worker_message::Kind},
    session::{Hello, Report, Welcome, WorkerMessage},
};
use crate::state::RegisterWorker;

// Far above any machine: what exceeds them is a mistake, and would upset every sum it enters.
const MOST_CPUS: MilliCpus = MilliCpus::from_cores(1_000_000);
const MOST_MEMORY: Bytes = Bytes(1 << 60);
const MOST_GPUS: usize = 4096;

impl From<WorkerMessage> for proto::WorkerMessage {
    fn from(message: WorkerMessage) -> Self {
        let kind = match message {
            WorkerMessage::Hello(hello) => Kind::Hello((*hello).into()),
            WorkerMessage::Report(report) => Kind::Report(report.into()),
        };
        proto::WorkerMessage { kind: Some(kind) }
    }
}

impl TryFrom<proto::WorkerMessage> for WorkerMessage {
    type Error = Malformed;

    fn try_from(message: proto::WorkerMessage) -> Result<Self, Malformed> {
        Ok(match message.kind.ok_or(Malformed::Missing("worker_message.kind"))? {
            Kind::Hello(hello) => WorkerMessage::Hello(Box::new(hello.try_into()?)),
            Kind::Report(report) => WorkerMessage::Report(report.try_into()?),
        })
    }
}

impl From<Hello> for proto::Hello {
    fn from(hello: Hello) -> Self {
        proto::Hello {
            registration: Some((&hello.registration).into()),
            incarnation: bytes::Bytes::copy_from_slice(hello.incarnation.as_bytes()),
            cluster_id: hello.cluster_id,
            owed: hello.owed.into_iter().map(Into::into).collect(),
            clock_ms: hello.clock,
        }
    }
}

impl TryFrom<proto::Hello> for Hello {
    type Error = Malformed;

    fn try_from(hello: proto::Hello) -> Result<Self, Malformed> {
        let fault = Malformed::Invalid { field: "hello.incarnation", problem: "not 16 bytes" };
        let registration = required(hello.registration, "hello.registration")?;
        Ok(Hello {
            registration: plausible(registration)?,
            incarnation: Uuid::from_slice(&hello.incarnation).map_err(|_| fault)?,
            cluster_id: hello.cluster_id,
            owed: all(hello.owed)?,
            clock: hello.clock_ms,
        })
    }
}

fn plausible(worker: RegisterWorker) -> Result<RegisterWorker, Malformed> {
    let fault = |field, problem| Err(Malformed::Invalid { field, problem });
    if worker.name.as_str().is_empty() {
        return Err(Malformed::Missing("registration.name"));
    }
    if worker.cpus > MOST_CPUS {
        return fault("registration.milli_cpus", "above a million cores");
    }
    if worker.memory > MOST_MEMORY {
        return fault("registration.memory_bytes", "above an exbibyte");
    }
    plausible_gpus(&worker.gpus)?;
    Ok(worker)
}

fn plausible_gpus(gpus: &[Gpu]) -> Result<(), Malformed> {
    if gpus.len() > MOST_GPUS {
        return Err(Malformed::Invalid { field: "gpus", problem: "longer than 4096" });
    }
    if gpus.iter().any(|gpu| gpu.memory > MOST_MEMORY) {
        let problem = "above an exbibyte";
        return Err(Malformed::Invalid { field: "gpus.memory_bytes", problem });
    }
    Ok(())
}

impl From<Report> for proto::Report {
    fn from(report: Report) -> Self {
        let gpu_set =
            |gpus: Vec<Gpu>| proto::GpuSet { gpus: gpus.iter().map(Into::into).collect() };
        proto::Report {
            number: report.number,
            attempts: report.attempts.into_iter().map(Into::into).collect(),
            gpus: report.gpus.map(gpu_set),
            settled: report.settled,
        }
    }
}

impl TryFrom<proto::Report> for Report {
    type Error = Malformed;

    fn try_from(report: proto::Report) -> Result<Self, Malformed> {
        let gpus: Option<Vec<Gpu>> = report.gpus.map(|set| all(set.gpus)).transpose()?;
        plausible_gpus(gpus.as_deref().unwrap_or_default())?;
        let settled = report.settled;
        Ok(Report { number: report.number, attempts: all(report.attempts)?, gpus, settled })
    }
}

impl From<AttemptReport> for proto::AttemptReport {
    fn from(report: AttemptReport) -> Self {
        let ended = match &report.phase {
            Phase::Running => None,
            Phase::Ended(ending) => Some(ending.into()),
        };
        proto::AttemptReport { attempt: Some(report.attempt.into()), epoch: report.epoch.0, ended }
    }
}

impl TryFrom<proto::AttemptReport> for AttemptReport {
    type Error = Malformed;

    fn try_from(report: proto::AttemptReport) -> Result<Self, Malformed> {
        let phase = match report.ended {
            None => Phase::Running,
            Some(ending) => Phase::Ended(ending.try_into()?),
        };
        Ok(AttemptReport {
            attempt: required(report.attempt, "report.attempt")?,
            epoch: Epoch(report.epoch),
            phase,
        })
    }
}

impl From<Welcome> for proto::Welcome {
    fn from(welcome: Welcome) -> Self {
        proto::Welcome {
            worker: welcome.worker.0,
            epoch: welcome.epoch.0,
            cluster_id: welcome.cluster_id,
            term: welcome.term,
            controllers: welcome.controllers,
            lease_ms: welcome.lease.0,
            lost_after: Some(welcome.lost_after.into()),
        }
    }
}

impl TryFrom<proto::Welcome> for Welcome {
    type Error = Malformed;

    fn try_from(welcome: proto::Welcome) -> Result<Self, Malformed> {
        Ok(Welcome {
            worker: WorkerId(welcome.worker),
            epoch: Epoch(welcome.epoch),
            cluster_id: welcome.cluster_id,
            term: welcome.term,
            controllers: welcome.controllers,
            lease: lease(welcome.lease_ms)?,
            lost_after: required(welcome.lost_after, "welcome.lost_after")?,
        })
    }
}

/// A lease of no length would end every job at once.
pub(super) fn lease(millis: u64) -> Result<Millis, Malformed> {
    if millis == 0 { Err(Malformed::Missing("lease_ms")) } else { Ok(Millis(millis)) }
}

impl From<(u64, LogRequest)> for proto::OpenLog {
    fn from((stream, request): (u64, LogRequest)) -> Self {
        proto::OpenLog { stream, request: Some(request.into()) }
    }
}

impl TryFrom<proto::OpenLog> for (u64, LogRequest) {
    type Error = Malformed;

    fn try_from(open: proto::OpenLog) -> Result<Self, Malformed> {
        Ok((open.stream, required(open.request, "open_log.request")?))
    }
}

/// One message of a log stream, after the first.
pub(crate) fn upload_out(chunk: Result<LogChunk, ApiError>) -> proto::LogUpload {
    let kind = match chunk {
        Ok(chunk) => log_upload::Kind::Chunk(chunk.into()),
        Err(error) => log_upload::Kind::Failure(error.into()),
    };
    proto::LogUpload { kind: Some(kind) }
}

/// # Errors
/// What the worker said instead of a chunk, or that it makes no sense.
pub(crate) fn upload_in(message: proto::LogUpload) -> Result<LogChunk, ApiError> {
    match message.kind.ok_or(Malformed::Missing("log_upload.kind"))? {
        log_upload::Kind::Chunk(chunk) => Ok(chunk.try_into()?),
        log_upload::Kind::Failure(failure) => Err(failure.try_into()?),
        log_upload::Kind::Stream(_) => {
            let problem = "named a second time";
            Err(Malformed::Invalid { field: "log_upload.stream", problem }.into())
        }
    }
}
