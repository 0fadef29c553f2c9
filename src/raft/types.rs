//! The types by which openraft is told what this is about.

use std::fmt;

use bytes::Bytes;
use openraft::type_config::alias;

use crate::raft::{NodeId, state_machine::StateMachine};
use crate::state::Outcome;

openraft::declare_raft_types!(
    /// One entry carries one encoded [`Batch`](crate::state::Batch), and is answered by its outcomes.
    ///
    /// The leader id is the term alone, so no two leaders ever share a term: workers and fences rely on that.
    pub Types:
        D = Encoded,
        R = Outcomes,
        NodeId = NodeId,
        Node = openraft::BasicNode,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, NodeId>,
        AsyncRuntime = openraft_rt_tokio::TokioRuntime,
);

/// A batch as it is kept and sent; only the state machine looks inside.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded(pub Bytes);

/// One per command of the batch; none for entries of openraft's own.
#[derive(Debug, Default)]
pub struct Outcomes(pub Vec<Outcome>);

pub type Core = openraft::Raft<Types, StateMachine>;
pub type CommittedLeader = alias::CommittedLeaderIdOf<Types>;
pub type Entry = alias::EntryOf<Types>;
pub type LogId = alias::LogIdOf<Types>;
pub type Membership = openraft::Membership<NodeId, openraft::BasicNode>;
pub type Metrics = openraft::RaftMetrics<Types>;
pub type SnapshotMeta = alias::SnapshotMetaOf<Types>;
pub type Snapshot = alias::SnapshotOf<Types, crate::store::Snapshot>;
pub type StoredMembership = alias::StoredMembershipOf<Types>;
pub type Vote = alias::VoteOf<Types>;

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
