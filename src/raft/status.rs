//! What an operator asks of a replica.

use crate::raft::NodeId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub id: NodeId,
    /// Empty until this replica belongs to a cluster.
    pub cluster_id: String,
    pub role: Role,
    pub term: u64,
    pub leader: Option<NodeId>,
    pub last_log: Option<u64>,
    pub applied: Option<u64>,
    /// Up to here the state is durable by itself, without the log.
    pub snapshot: Option<u64>,
    pub purged: Option<u64>,
    /// Of everything applied so far; equal on all replicas at the same `applied`.
    pub state_hash: String,
    pub members: Vec<Member>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
    Candidate,
    Learner,
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: NodeId,
    pub address: String,
    pub voter: bool,
    /// Whether it answered the leader lately; only the leader knows.
    pub reachable: Option<bool>,
    /// The last entry it is known to have; only the leader knows.
    pub matched: Option<u64>,
    pub lag: Option<u64>,
}
