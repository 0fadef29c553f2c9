use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{
    Backend, Bytes, Epoch, Gpu, GpuUuid, LostAfter, MilliCpus, Millis, Timestamp, WorkerName,
};

/// A machine's agent, as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Made by the worker at its first start and kept in its data directory.
    pub uuid: Uuid,
    pub name: WorkerName,
    pub epoch: Epoch,
    pub address: String,
    pub version: String,
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: Vec<Gpu>,
    pub labels: BTreeMap<String, String>,
    /// What it can run; a job that needs more is never sent there.
    pub backends: BTreeSet<Backend>,
    /// Announced to come and go (a notebook, a spot machine).
    pub ephemeral: bool,
    pub mode: Mode,
    pub link: Link,
    pub registered_at: Timestamp,
    /// Not heard since the cluster was recovered or restored: what runs there, under whose orders, is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estranged: bool,
}

/// What the operator wants of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Active,
    /// What runs there may end; nothing new starts.
    Draining {
        reason: String,
        since: Timestamp,
    },
}

/// Whether a leader hears from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    Connected,
    /// Its lease ran out. Its attempts may still run: nothing is decided from silence alone.
    Silent {
        since: Timestamp,
    },
}

impl Worker {
    pub const STANDING_LOST_AFTER: LostAfter = LostAfter::After(Millis::from_hours(1));
    pub const EPHEMERAL_LOST_AFTER: LostAfter = LostAfter::After(Millis::from_secs(120));

    /// Whether new work may go there.
    pub fn is_ready(&self) -> bool {
        self.mode == Mode::Active && self.link == Link::Connected
    }

    pub fn is_connected(&self) -> bool {
        self.link == Link::Connected
    }

    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }

    /// How long attempts here run on without a leader when their job does not say.
    pub fn default_lost_after(&self) -> LostAfter {
        if self.ephemeral { Self::EPHEMERAL_LOST_AFTER } else { Self::STANDING_LOST_AFTER }
    }
}
