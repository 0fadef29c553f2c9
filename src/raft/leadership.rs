//! Who leads, as far as this replica knows.

use openraft::{ServerState, async_runtime::WatchReceiver as _};
use tokio::sync::watch;

use crate::raft::{
    NodeId,
    network::AddressBook,
    types::{Core, Metrics},
};

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

/// Keeps what is published, and where the members are, as the core has it.
pub async fn follow(core: Core, id: NodeId, publish: watch::Sender<Leadership>, book: AddressBook) {
    let mut metrics = core.metrics();
    let mut written = None;
    loop {
        let latest = metrics.borrow_watched().clone();
        if written.as_ref() != Some(latest.membership_config.log_id()) {
            written = Some(*latest.membership_config.log_id());
            let nodes = latest.membership_config.membership().nodes();
            book.update(nodes.map(|(id, node)| (*id, node.addr.clone())));
        }
        let now = leadership(&latest, id);
        publish.send_if_modified(|known| {
            let changed = *known != now;
            *known = now;
            changed
        });
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

fn leadership(metrics: &Metrics, id: NodeId) -> Leadership {
    let vote = &metrics.vote;
    let is_me = metrics.state == ServerState::Leader
        && vote.committed
        && vote.leader_id.voted_for == id
        && metrics.running_state.is_ok();
    let leader = if is_me { Some(id) } else { metrics.current_leader.filter(|it| *it != id) };
    let nodes = metrics.membership_config.membership();
    Leadership {
        leader,
        leader_address: leader.and_then(|id| Some(nodes.get_node(&id)?.addr.clone())),
        term: metrics.current_term,
        is_me,
        fence: is_me.then_some(Fence { term: vote.leader_id.term }),
    }
}
