//! Who leads, as far as this replica knows.

use crate::raft::NodeId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leader: Option<NodeId>,
    pub leader_address: Option<String>,
    /// Of the present leader, or of the present election. No two leaders share one.
    pub term: u64,
    pub is_me: bool,
    /// While `is_me`: proves under which leadership something was planned.
    pub fence: Option<Fence>,
}

/// One leadership of one controller. What is proposed under it enters the log only while it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub(super) term: u64,
}
