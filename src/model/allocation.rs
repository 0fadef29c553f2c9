use serde::{Deserialize, Serialize};

use crate::model::{Bytes, Epoch, GpuUuid, MilliCpus, TaskId, WorkerId};

/// What one attempt holds on one worker. An attempt's allocation is a list of these, one per worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub worker: WorkerId,
    /// The life of the worker this was planned for; on a later one it holds nothing.
    pub epoch: Epoch,
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: Vec<GpuGrant>,
    /// The first rank that runs here, and how many do.
    pub first_rank: u32,
    pub ranks: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuGrant {
    pub gpu: GpuUuid,
    /// `None` holds the whole GPU; otherwise so much of its VRAM, beside others.
    pub share: Option<Bytes>,
}

/// The scheduler's answer for one task: its next attempt runs on these slices, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub task: TaskId,
    pub slices: Vec<Slice>,
    /// Handed out ahead of its turn: it holds nothing until an attempt of the same job on the same worker ends, so
    /// that a stream of short tasks does not wait for a round trip between two of them.
    pub prefetch: bool,
}
