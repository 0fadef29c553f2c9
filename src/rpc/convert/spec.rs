//! What a user asks for.

use crate::model::{
    Array, Bytes, Checkpoint, ComputeCapability, Container, Dependency, Distribution, GpuRequest,
    IndexSet, JobId, JobSpec, Layout, LostAfter, MilliCpus, Millis, QueueName, Request, Retry,
    RetryCause, Stop, Timestamp,
};
use crate::rpc::{
    convert::{Malformed, all, optional, required, same_variants},
    proto,
};

same_variants!(Backend, "backend", [Native, Docker, Distributed]);
same_variants!(DependencyKind, "dependencies.kind", [AfterOk, AfterAny, AfterNotOk]);

impl From<&JobSpec> for proto::JobSpec {
    fn from(spec: &JobSpec) -> Self {
        proto::JobSpec {
            name: spec.name.clone(),
            queue: spec.queue.to_string(),
            priority: spec.priority,
            request: Some((&spec.request).into()),
            layout: Some(spec.layout.into()),
            backend: proto::Backend::from(spec.backend).into(),
            command: spec.command.clone(),
            env: spec.env.clone(),
            working_dir: spec.working_dir.clone(),
            container: spec.container.as_ref().map(Into::into),
            distribution: spec.distribution.as_ref().map(Into::into),
            checkpoint: spec.checkpoint.as_ref().map(Into::into),
            time_limit_ms: spec.time_limit.map(|limit| limit.0),
            retry: Some((&spec.retry).into()),
            stop: Some((&spec.stop).into()),
            array: spec.array.as_ref().map(Into::into),
            dependencies: spec.dependencies.iter().map(Into::into).collect(),
            begin_ms: spec.begin.map(|begin| begin.0),
            lost_after: spec.lost_after.map(Into::into),
            held: spec.held,
            labels: spec.labels.clone(),
        }
    }
}

impl TryFrom<proto::JobSpec> for JobSpec {
    type Error = Malformed;

    fn try_from(spec: proto::JobSpec) -> Result<Self, Malformed> {
        if spec.command.is_empty() {
            return Err(Malformed::Missing("command"));
        }
        Ok(JobSpec {
            name: spec.name,
            queue: QueueName::new(spec.queue),
            priority: spec.priority,
            request: required(spec.request, "request")?,
            layout: required(spec.layout, "layout")?,
            backend: proto::Backend::decode(spec.backend)?,
            command: spec.command,
            env: spec.env,
            working_dir: spec.working_dir,
            container: spec.container.map(Into::into),
            distribution: optional(spec.distribution)?,
            checkpoint: spec.checkpoint.map(Into::into),
            time_limit: spec.time_limit_ms.map(Millis),
            retry: required(spec.retry, "retry")?,
            stop: spec.stop.map(Into::into).ok_or(Malformed::Missing("stop"))?,
            array: optional(spec.array)?,
            dependencies: all(spec.dependencies)?,
            begin: spec.begin_ms.map(Timestamp),
            lost_after: optional(spec.lost_after)?,
            held: spec.held,
            labels: spec.labels,
        })
    }
}

impl From<&Request> for proto::Request {
    fn from(request: &Request) -> Self {
        proto::Request {
            milli_cpus: request.cpus.0,
            memory_bytes: request.memory.0,
            gpus: Some((&request.gpus).into()),
        }
    }
}

impl TryFrom<proto::Request> for Request {
    type Error = Malformed;

    fn try_from(request: proto::Request) -> Result<Self, Malformed> {
        Ok(Request {
            cpus: MilliCpus(request.milli_cpus),
            memory: Bytes(request.memory_bytes),
            gpus: request.gpus.map(Into::into).unwrap_or_default(),
        })
    }
}

impl From<&GpuRequest> for proto::GpuRequest {
    fn from(gpus: &GpuRequest) -> Self {
        proto::GpuRequest {
            count: gpus.count,
            memory_bytes: gpus.memory.map(|memory| memory.0),
            sharing: gpus.sharing,
            model: gpus.model.clone(),
            min_compute_capability: gpus.min_compute_capability.map(Into::into),
            topology_aware: gpus.topology_aware,
        }
    }
}

impl From<proto::GpuRequest> for GpuRequest {
    fn from(gpus: proto::GpuRequest) -> Self {
        GpuRequest {
            count: gpus.count,
            memory: gpus.memory_bytes.map(Bytes),
            sharing: gpus.sharing,
            model: gpus.model,
            min_compute_capability: gpus.min_compute_capability.map(Into::into),
            topology_aware: gpus.topology_aware,
        }
    }
}

impl From<ComputeCapability> for proto::ComputeCapability {
    fn from(ComputeCapability { major, minor }: ComputeCapability) -> Self {
        proto::ComputeCapability { major, minor }
    }
}

impl From<proto::ComputeCapability> for ComputeCapability {
    fn from(proto::ComputeCapability { major, minor }: proto::ComputeCapability) -> Self {
        ComputeCapability { major, minor }
    }
}

impl From<Layout> for proto::Layout {
    fn from(layout: Layout) -> Self {
        use proto::layout::{Anywhere, Kind, Single};
        let kind = match layout {
            Layout::Single => Kind::Single(Single {}),
            Layout::Nodes(nodes) => Kind::Nodes(nodes),
            Layout::Anywhere => Kind::Anywhere(Anywhere {}),
        };
        proto::Layout { kind: Some(kind) }
    }
}

impl TryFrom<proto::Layout> for Layout {
    type Error = Malformed;

    fn try_from(layout: proto::Layout) -> Result<Self, Malformed> {
        use proto::layout::{Anywhere, Kind, Single};
        match layout.kind.ok_or(Malformed::Missing("layout.kind"))? {
            Kind::Single(Single {}) => Ok(Layout::Single),
            Kind::Nodes(0) => Err(Malformed::Invalid { field: "layout.nodes", problem: "zero" }),
            Kind::Nodes(nodes) => Ok(Layout::Nodes(nodes)),
            Kind::Anywhere(Anywhere {}) => Ok(Layout::Anywhere),
        }
    }
}

impl From<&Container> for proto::Container {
    fn from(container: &Container) -> Self {
        proto::Container { image: container.image.clone(), volumes: container.volumes.clone() }
    }
}

impl From<proto::Container> for Container {
    fn from(proto::Container { image, volumes }: proto::Container) -> Self {
        Container { image, volumes }
    }
}

impl From<&Distribution> for proto::Distribution {
    fn from(distribution: &Distribution) -> Self {
        proto::Distribution {
            mode: distribution.mode.clone(),
            world_size: distribution.world_size,
            master_addr: distribution.master_addr.clone(),
            master_port: distribution.master_port.map(u32::from),
        }
    }
}

impl TryFrom<proto::Distribution> for Distribution {
    type Error = Malformed;

    fn try_from(distribution: proto::Distribution) -> Result<Self, Malformed> {
        let port = |port| {
            u16::try_from(port).map_err(|_| Malformed::Invalid {
                field: "distribution.master_port",
                problem: "above 65535",
            })
        };
        Ok(Distribution {
            mode: distribution.mode,
            world_size: distribution.world_size,
            master_addr: distribution.master_addr,
            master_port: distribution.master_port.map(port).transpose()?,
        })
    }
}

impl From<&Checkpoint> for proto::Checkpoint {
    fn from(checkpoint: &Checkpoint) -> Self {
        proto::Checkpoint { interval_ms: checkpoint.interval.0, dir: checkpoint.dir.clone() }
    }
}

impl From<proto::Checkpoint> for Checkpoint {
    fn from(proto::Checkpoint { interval_ms, dir }: proto::Checkpoint) -> Self {
        Checkpoint { interval: Millis(interval_ms), dir }
    }
}

impl From<&Retry> for proto::Retry {
    fn from(retry: &Retry) -> Self {
        proto::Retry { max: retry.max, on: retry.on.iter().map(|cause| (*cause).into()).collect() }
    }
}

impl TryFrom<proto::Retry> for Retry {
    type Error = Malformed;

    fn try_from(proto::Retry { max, on }: proto::Retry) -> Result<Self, Malformed> {
        Ok(Retry { max, on: all(on)? })
    }
}

impl From<RetryCause> for proto::RetryCause {
    fn from(cause: RetryCause) -> Self {
        use proto::retry_cause::{Kind, Named};
        let kind = match cause {
            RetryCause::Failure => Kind::Named(Named::Failure.into()),
            RetryCause::ExitCode(code) => Kind::ExitCode(code),
            RetryCause::Signal => Kind::Named(Named::Signal.into()),
            RetryCause::OutOfMemory => Kind::Named(Named::OutOfMemory.into()),
            RetryCause::Timeout => Kind::Named(Named::Timeout.into()),
            RetryCause::StartFailed => Kind::Named(Named::StartFailed.into()),
        };
        proto::RetryCause { kind: Some(kind) }
    }
}

impl TryFrom<proto::RetryCause> for RetryCause {
    type Error = Malformed;

    fn try_from(cause: proto::RetryCause) -> Result<Self, Malformed> {
        use proto::retry_cause::{Kind, Named};
        let number = match cause.kind.ok_or(Malformed::Missing("retry.on"))? {
            Kind::ExitCode(code) => return Ok(RetryCause::ExitCode(code)),
            Kind::Named(number) => number,
        };
        let named = Named::try_from(number)
            .map_err(|_| Malformed::UnknownValue { field: "retry.on", value: number })?;
        match named {
            Named::Unspecified => Err(Malformed::Missing("retry.on")),
            Named::Failure => Ok(RetryCause::Failure),
            Named::Signal => Ok(RetryCause::Signal),
            Named::OutOfMemory => Ok(RetryCause::OutOfMemory),
            Named::Timeout => Ok(RetryCause::Timeout),
            Named::StartFailed => Ok(RetryCause::StartFailed),
        }
    }
}

impl From<&Stop> for proto::Stop {
    fn from(stop: &Stop) -> Self {
        proto::Stop { signal: stop.signal, grace_ms: stop.grace.0 }
    }
}

impl From<proto::Stop> for Stop {
    fn from(proto::Stop { signal, grace_ms }: proto::Stop) -> Self {
        Stop { signal, grace: Millis(grace_ms) }
    }
}

impl From<&Array> for proto::Array {
    fn from(array: &Array) -> Self {
        proto::Array { indices: Some((&array.indices).into()), max_running: array.max_running }
    }
}

impl TryFrom<proto::Array> for Array {
    type Error = Malformed;

    fn try_from(proto::Array { indices, max_running }: proto::Array) -> Result<Self, Malformed> {
        Ok(Array { indices: required(indices, "array.indices")?, max_running })
    }
}

impl From<&IndexSet> for proto::IndexSet {
    fn from(set: &IndexSet) -> Self {
        proto::IndexSet { bounds: set.ranges().flat_map(|(first, last)| [first, last]).collect() }
    }
}

impl TryFrom<proto::IndexSet> for IndexSet {
    type Error = Malformed;

    fn try_from(proto::IndexSet { bounds }: proto::IndexSet) -> Result<Self, Malformed> {
        let fault = |problem| Malformed::Invalid { field: "indices", problem };
        let mut set = IndexSet::new();
        for range in bounds.chunks(2) {
            let [first, last] = *range else { return Err(fault("half a range")) };
            if first > last {
                return Err(fault("a range that ends before it begins"));
            }
            set.insert_range(first, last);
        }
        Ok(set)
    }
}

impl From<&Dependency> for proto::Dependency {
    fn from(dependency: &Dependency) -> Self {
        proto::Dependency {
            kind: proto::DependencyKind::from(dependency.kind).into(),
            job: dependency.job.0,
        }
    }
}

impl TryFrom<proto::Dependency> for Dependency {
    type Error = Malformed;

    fn try_from(proto::Dependency { kind, job }: proto::Dependency) -> Result<Self, Malformed> {
        Ok(Dependency { kind: proto::DependencyKind::decode(kind)?, job: JobId(job) })
    }
}

impl From<LostAfter> for proto::LostAfter {
    fn from(lost_after: LostAfter) -> Self {
        use proto::lost_after::{Keep, Kind};
        let kind = match lost_after {
            LostAfter::After(length) => Kind::AfterMs(length.0),
            LostAfter::Keep => Kind::Keep(Keep {}),
        };
        proto::LostAfter { kind: Some(kind) }
    }
}

impl TryFrom<proto::LostAfter> for LostAfter {
    type Error = Malformed;

    fn try_from(lost_after: proto::LostAfter) -> Result<Self, Malformed> {
        use proto::lost_after::{Keep, Kind};
        match lost_after.kind.ok_or(Malformed::Missing("lost_after"))? {
            Kind::AfterMs(length) => Ok(LostAfter::After(Millis(length))),
            Kind::Keep(Keep {}) => Ok(LostAfter::Keep),
        }
    }
}
