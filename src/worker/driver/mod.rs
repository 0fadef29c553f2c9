//! Drivers turn an order into what runs.

pub mod native;

use std::collections::BTreeMap;

use crate::model::{AttemptId, Bytes, Epoch, MilliCpus, Millis};

/// What one worker is to run of one attempt, whatever runs it.
#[derive(Clone, Debug)]
pub struct Work {
    pub attempt: AttemptId,
    /// The life of the worker in which it was ordered.
    pub epoch: Epoch,
    pub worker: String,
    pub argv: Vec<String>,
    /// The user's own; what DRIGS sets wins.
    pub env: BTreeMap<String, String>,
    /// When not given: where the job was submitted, if that exists here, or else the user's home.
    pub working_dir: Option<String>,
    /// UUIDs, in the order in which the job shall number them.
    pub gpus: Vec<String>,
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub limits: Limits,
    /// Set for a member of a gang.
    pub rank: Option<Rank>,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub time: Option<Millis>,
    /// How long it may run on without word from a leader; `None` for ever.
    pub lost_after: Option<Millis>,
    pub stop_signal: i32,
    /// From the stop signal to SIGKILL.
    pub grace: Millis,
    /// The same when no leader was heard of for too long.
    pub lost_grace: Millis,
    /// How much of the output is kept.
    pub log: Bytes,
}

/// A member's place in its gang, in the words of torchrun.
#[derive(Clone, Debug)]
pub struct Rank {
    pub rank: u32,
    pub local_rank: u32,
    pub world_size: u32,
    pub local_world_size: u32,
    pub group_rank: u32,
    pub master_addr: String,
    pub master_port: u16,
    pub run_id: String,
}

impl Limits {
    pub const DEFAULT_LOG: Bytes = Bytes::from_mib(64);
}
