//! Who can take over: only one that answers. One that is gone is not waited for.

use std::time::Duration;

use tokio::time::sleep;

use crate::raft::{
    MemberError, NodeId, Raft,
    status::{matched, voters},
    types::Metrics,
};

/// How long another may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often one that is about to take over is looked after.
const LOOK: Duration = Duration::from_millis(200);

impl Raft {
    /// The voter that has most of the log, of those that answer now.
    pub(super) async fn successor(&self, metrics: &Metrics) -> Result<NodeId, MemberError> {
        let suits = |id: &NodeId| (self.is_reachable(metrics, *id), matched(metrics, *id));
        let mut others: Vec<NodeId> =
            voters(metrics).into_iter().filter(|id| *id != self.inner.id).collect();
        others.sort_by_key(|id| std::cmp::Reverse(suits(id)));
        for id in others {
            if self.answers(metrics, id).await {
                return Ok(id);
            }
        }
        Err(MemberError::Refused(String::from("there is no other voter to take over")))
    }

    /// Returns when `id` does not answer any more.
    pub(super) async fn until_gone(&self, metrics: &Metrics, id: NodeId) {
        loop {
            sleep(LOOK).await;
            if !self.answers(metrics, id).await {
                return;
            }
        }
    }

    async fn answers(&self, metrics: &Metrics, id: NodeId) -> bool {
        let node = metrics.membership_config.membership().get_node(&id);
        let peer = node.and_then(|node| self.inner.network.peer(id, &node.addr).ok());
        match peer {
            Some(mut peer) => peer.probe(PATIENCE).await.is_ok(),
            None => false,
        }
    }
}
