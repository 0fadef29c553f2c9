//! Workers, GPUs and queues, as people see them and act on them.

use crate::model::{Bytes, MilliCpus, Queue, Timestamp};
use crate::rpc::{
    api::{Consistency, GpuView, QueueView, WorkerAction, WorkerView},
    convert::{Malformed, all},
    proto::{
        self,
        act_on_worker_request::{Action, Drain},
    },
};

impl From<Consistency> for proto::ListRequest {
    fn from(consistency: Consistency) -> Self {
        proto::ListRequest { stale: consistency.into() }
    }
}

impl TryFrom<proto::ListRequest> for Consistency {
    type Error = Malformed;

    fn try_from(proto::ListRequest { stale }: proto::ListRequest) -> Result<Self, Malformed> {
        Ok(stale.into())
    }
}

impl From<Vec<WorkerView>> for proto::WorkerList {
    fn from(workers: Vec<WorkerView>) -> Self {
        proto::WorkerList { workers: workers.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<proto::WorkerList> for Vec<WorkerView> {
    type Error = Malformed;

    fn try_from(proto::WorkerList { workers }: proto::WorkerList) -> Result<Self, Malformed> {
        all(workers)
    }
}

impl From<WorkerView> for proto::WorkerView {
    fn from(worker: WorkerView) -> Self {
        proto::WorkerView {
            worker_id: worker.worker_id,
            name: worker.name,
            address: worker.address,
            status: worker.status,
            reason: worker.reason,
            version: worker.version,
            milli_cpus: worker.cpus.0,
            milli_cpus_used: worker.cpus_used.0,
            memory_bytes: worker.memory.0,
            memory_used_bytes: worker.memory_used.0,
            gpus: worker.gpus,
            gpus_used: worker.gpus_used,
            running: worker.running,
            labels: worker.labels,
            ephemeral: worker.ephemeral,
            registered_at_ms: worker.registered_at.0,
            heard_ms_ago: worker.heard_ms_ago,
        }
    }
}

impl TryFrom<proto::WorkerView> for WorkerView {
    type Error = Malformed;

    fn try_from(worker: proto::WorkerView) -> Result<Self, Malformed> {
        Ok(WorkerView {
            worker_id: worker.worker_id,
            name: worker.name,
            address: worker.address,
            status: worker.status,
            reason: worker.reason,
            version: worker.version,
            cpus: MilliCpus(worker.milli_cpus),
            cpus_used: MilliCpus(worker.milli_cpus_used),
            memory: Bytes(worker.memory_bytes),
            memory_used: Bytes(worker.memory_used_bytes),
            gpus: worker.gpus,
            gpus_used: worker.gpus_used,
            running: worker.running,
            labels: worker.labels,
            ephemeral: worker.ephemeral,
            registered_at: Timestamp(worker.registered_at_ms),
            heard_ms_ago: worker.heard_ms_ago,
        })
    }
}

impl From<(String, WorkerAction)> for proto::ActOnWorkerRequest {
    fn from((worker, action): (String, WorkerAction)) -> Self {
        let action = match action {
            WorkerAction::Drain { reason } => Action::Drain(Drain { reason }),
            WorkerAction::Resume => Action::Resume(proto::Nothing {}),
            WorkerAction::Forget => Action::Forget(proto::Nothing {}),
        };
        proto::ActOnWorkerRequest { worker, action: Some(action) }
    }
}

impl TryFrom<proto::ActOnWorkerRequest> for (String, WorkerAction) {
    type Error = Malformed;

    fn try_from(request: proto::ActOnWorkerRequest) -> Result<Self, Malformed> {
        if request.worker.is_empty() {
            return Err(Malformed::Missing("worker"));
        }
        let action = match request.action.ok_or(Malformed::Missing("action"))? {
            Action::Drain(Drain { reason }) => WorkerAction::Drain { reason },
            Action::Resume(proto::Nothing {}) => WorkerAction::Resume,
            Action::Forget(proto::Nothing {}) => WorkerAction::Forget,
        };
        Ok((request.worker, action))
    }
}

impl From<Vec<GpuView>> for proto::GpuList {
    fn from(gpus: Vec<GpuView>) -> Self {
        proto::GpuList { gpus: gpus.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<proto::GpuList> for Vec<GpuView> {
    type Error = Malformed;

    fn try_from(proto::GpuList { gpus }: proto::GpuList) -> Result<Self, Malformed> {
        all(gpus)
    }
}

impl From<GpuView> for proto::GpuView {
    fn from(gpu: GpuView) -> Self {
        proto::GpuView {
            worker: gpu.worker,
            device_id: gpu.device_id,
            uuid: gpu.uuid,
            model_name: gpu.model_name,
            total_memory_bytes: gpu.total_memory_bytes.0,
            available_memory_bytes: gpu.available_memory_bytes.0,
            compute_capability: gpu.compute_capability.map(Into::into),
            state: gpu.state,
            reason: gpu.reason,
            held_by: gpu.held_by,
        }
    }
}

impl TryFrom<proto::GpuView> for GpuView {
    type Error = Malformed;

    fn try_from(gpu: proto::GpuView) -> Result<Self, Malformed> {
        Ok(GpuView {
            worker: gpu.worker,
            device_id: gpu.device_id,
            uuid: gpu.uuid,
            model_name: gpu.model_name,
            total_memory_bytes: Bytes(gpu.total_memory_bytes),
            available_memory_bytes: Bytes(gpu.available_memory_bytes),
            compute_capability: gpu.compute_capability.map(Into::into),
            state: gpu.state,
            reason: gpu.reason,
            held_by: gpu.held_by,
        })
    }
}

impl From<Vec<QueueView>> for proto::QueueList {
    fn from(queues: Vec<QueueView>) -> Self {
        proto::QueueList { queues: queues.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<proto::QueueList> for Vec<QueueView> {
    type Error = Malformed;

    fn try_from(proto::QueueList { queues }: proto::QueueList) -> Result<Self, Malformed> {
        all(queues)
    }
}

impl From<QueueView> for proto::QueueView {
    fn from(view: QueueView) -> Self {
        proto::QueueView {
            name: view.name,
            queue: Some((&view.queue).into()),
            waiting_jobs: view.waiting_jobs,
            active_tasks: view.active_tasks,
        }
    }
}

impl TryFrom<proto::QueueView> for QueueView {
    type Error = Malformed;

    fn try_from(view: proto::QueueView) -> Result<Self, Malformed> {
        Ok(QueueView {
            name: view.name,
            queue: view.queue.ok_or(Malformed::Missing("queue"))?.into(),
            waiting_jobs: view.waiting_jobs,
            active_tasks: view.active_tasks,
        })
    }
}

impl From<(String, Queue)> for proto::PutQueueRequest {
    fn from((name, queue): (String, Queue)) -> Self {
        proto::PutQueueRequest { name, queue: Some((&queue).into()) }
    }
}

impl TryFrom<proto::PutQueueRequest> for (String, Queue) {
    type Error = Malformed;

    fn try_from(request: proto::PutQueueRequest) -> Result<Self, Malformed> {
        if request.name.is_empty() {
            return Err(Malformed::Missing("name"));
        }
        let queue: Queue = request.queue.ok_or(Malformed::Missing("queue"))?.into();
        if !(1..=MOST_WEIGHT).contains(&queue.weight) {
            let problem = "not within 1 to 1,000,000";
            return Err(Malformed::Invalid { field: "queue.weight", problem });
        }
        Ok((request.name, queue))
    }
}

const MOST_WEIGHT: u32 = 1_000_000;
