//! What an operator asks of a replica.

use std::collections::BTreeSet;

use openraft::ServerState;

use crate::model::lineage;
use crate::raft::{NodeId, types::Metrics};
use crate::rpc::api::{ClusterView, MemberView};

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

impl From<Status> for ClusterView {
    fn from(status: Status) -> Self {
        let view = |member: Member| {
            let own = member.id == status.id;
            let role = match (Some(member.id) == status.leader, member.voter) {
                (true, _) => "LEADER",
                (false, true) => "VOTER",
                (false, false) => "LEARNER",
            };
            MemberView {
                id: member.id,
                address: member.address,
                role: role.to_owned(),
                reachable: member.reachable,
                matched: member.matched,
                lag: member.lag,
                applied: status.applied.filter(|_| own),
                state_hash: own.then(|| status.state_hash.clone()),
                version: own.then(|| env!("CARGO_PKG_VERSION").to_owned()),
            }
        };
        ClusterView {
            cluster_id: status.cluster_id.clone(),
            answered_by: status.id,
            leader: status.leader,
            term: status.term,
            generation: lineage::generation(&status.cluster_id),
            last_log: status.last_log,
            members: status.members.clone().into_iter().map(view).collect(),
        }
    }
}

impl From<ServerState> for Role {
    fn from(state: ServerState) -> Self {
        match state {
            ServerState::Leader => Role::Leader,
            ServerState::Follower => Role::Follower,
            ServerState::Candidate => Role::Candidate,
            ServerState::Learner => Role::Learner,
            ServerState::Shutdown => Role::Stopped,
        }
    }
}

pub(super) fn voters(metrics: &Metrics) -> BTreeSet<NodeId> {
    metrics.membership_config.membership().voter_ids().collect()
}

/// The last entry that `id` is known to have.
pub(super) fn matched(metrics: &Metrics, id: NodeId) -> Option<u64> {
    let progress = metrics.replication.as_ref()?.get(&id)?.as_ref()?;
    Some(progress.index)
}
