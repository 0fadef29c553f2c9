//! Machines, their GPUs, and the queues.

use crate::model::{Bytes, Gpu, GpuHealth, GpuUuid, Queue};
use crate::rpc::{convert::Malformed, proto};

impl From<&Gpu> for proto::Gpu {
    fn from(gpu: &Gpu) -> Self {
        let quarantined = match &gpu.health {
            GpuHealth::Healthy => None,
            GpuHealth::Quarantined { reason } => Some(reason.clone()),
        };
        proto::Gpu {
            uuid: gpu.uuid.to_string(),
            index: gpu.index,
            model: gpu.model.clone(),
            memory_bytes: gpu.memory.0,
            compute_capability: gpu.compute_capability.map(Into::into),
            quarantined,
        }
    }
}

impl TryFrom<proto::Gpu> for Gpu {
    type Error = Malformed;

    fn try_from(gpu: proto::Gpu) -> Result<Self, Malformed> {
        if gpu.uuid.is_empty() {
            return Err(Malformed::Missing("gpu.uuid"));
        }
        let health = match gpu.quarantined {
            None => GpuHealth::Healthy,
            Some(reason) => GpuHealth::Quarantined { reason },
        };
        Ok(Gpu {
            uuid: GpuUuid::new(gpu.uuid),
            index: gpu.index,
            model: gpu.model,
            memory: Bytes(gpu.memory_bytes),
            compute_capability: gpu.compute_capability.map(Into::into),
            health,
        })
    }
}

impl From<&Queue> for proto::Queue {
    fn from(queue: &Queue) -> Self {
        proto::Queue {
            priority: queue.priority,
            weight: queue.weight,
            max_gpus: queue.max_gpus,
            open: queue.open,
        }
    }
}

impl From<proto::Queue> for Queue {
    fn from(queue: proto::Queue) -> Self {
        Queue {
            priority: queue.priority,
            weight: queue.weight,
            max_gpus: queue.max_gpus,
            open: queue.open,
        }
    }
}
