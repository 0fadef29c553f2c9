//! Changing who takes part, and who leads.

mod successor;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use openraft::{
    BasicNode, ChangeMembers,
    async_runtime::Instant as _,
    errors::{ChangeMembershipError, ClientWriteError, RaftError},
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::raft::{
    MemberError, NodeId, NotLeader, Raft,
    proposer::{MOMENT, is_momentary},
    status::{matched, voters},
    types::{Metrics, Types},
};

/// How long another may take to lead, from the moment it is asked.
const HAND_OVER: Duration = Duration::from_secs(3);
/// How many entries a newcomer may lack when it becomes a voter: so many are sent in a moment.
const CLOSE_ENOUGH: u64 = 256;
const PEER_PATIENCE: Duration = Duration::from_secs(2);
/// Whoever was not heard for so many of the longest election timeouts is out of reach.
pub(super) const LATELY: u32 = 3;

impl Raft {
    pub(super) async fn hand_over(&self, to: Option<NodeId>) -> Result<(), MemberError> {
        let metrics = self.leading()?;
        let to = match to {
            Some(to) if to == self.inner.id => return Ok(()),
            Some(to) if !voters(&metrics).contains(&to) => {
                return Err(MemberError::Refused(format!("controller {to} is not a voter")));
            }
            Some(to) => to,
            None => self.successor(&metrics).await?,
        };
        let mut leadership = self.leadership();
        self.inner.core.trigger().transfer_leader(to).await.map_err(|_| MemberError::Shutdown)?;
        let taken = leadership.wait_for(|now| !now.is_me && now.leader.is_some());
        let taken = tokio::select! {
            taken = timeout(HAND_OVER, taken) => taken,
            () = self.until_gone(&metrics, to) => {
                return Err(MemberError::TimedOut(format!("controller {to} went away before it took over")));
            }
        };
        match taken {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(MemberError::Shutdown),
            Err(_) => {
                Err(MemberError::TimedOut(format!("controller {to} did not take over in time")))
            }
        }
    }

    /// As a learner, which is sent everything and decides nothing.
    pub(super) async fn let_in(&self, id: NodeId, address: String) -> Result<(), MemberError> {
        let _only = self.inner.changing.try_lock().map_err(|_| MemberError::Busy)?;
        let metrics = self.leading()?;
        let membership = metrics.membership_config.membership();
        let known = membership.get_node(&id).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.addr != address) {
            let there = &known.addr;
            return refuse(format!(
                "controller {id} is known at {there}; `drigs cluster move {id} {address}` is for one that has moved"
            ));
        }
        if voters(&metrics).contains(&id) {
            return Ok(());
        }
        if known.is_none() && self.inner.shared.was_removed(id) {
            return refuse(format!(
                "there was a controller {id} until it was removed, and numbers are not used again: start the new one with an empty data directory and a number above {}",
                self.highest_number()
            ));
        }
        if let Some((other, node)) =
            membership.nodes().find(|(it, node)| **it != id && node.addr == address)
        {
            return refuse(format!("controller {other} is already at {}", node.addr));
        }
        let waiting = membership.learner_ids().find(|it| *it != id);
        if let Some(other) = waiting.filter(|_| known.is_none()) {
            return refuse(format!(
                "one at a time: controller {other} is being added; wait until it votes, or give it up with `drigs cluster remove {other}`"
            ));
        }
        let reached = self.invite(id, &address, known.is_some()).await;
        reached.map_err(|why| {
            MemberError::Refused(format!("controller {id} at {address} can not be let in: {why}"))
        })?;
        if known.is_none() {
            let nodes = BTreeMap::from([(id, BasicNode { addr: address })]);
            self.change(ChangeMembers::AddNodes(nodes)).await?;
        }
        Ok(())
    }

    /// Makes a learner that has nearly everything a voter.
    pub(super) async fn give_vote(&self, id: NodeId) -> Result<(), MemberError> {
        let _only = self.inner.changing.try_lock().map_err(|_| MemberError::Busy)?;
        let metrics = self.leading()?;
        let mut voters = voters(&metrics);
        if voters.contains(&id) {
            return Ok(());
        }
        if metrics.membership_config.membership().get_node(&id).is_none() {
            return refuse(format!("there is no controller {id}; `drigs cluster add` lets one in"));
        }
        let has = matched(&metrics, id).filter(|_| self.is_reachable(&metrics, id));
        let Some(has) = has else {
            return refuse(format!("controller {id} does not answer: it can not vote"));
        };
        let lacks = metrics.last_log_index.unwrap_or(0).saturating_sub(has);
        if lacks > CLOSE_ENOUGH {
            return refuse(format!(
                "controller {id} lacks {lacks} entries of the log: it would hold up the others if it voted"
            ));
        }
        voters.insert(id);
        self.needs_majority(&metrics, &voters, &format!("with controller {id}"))?;
        self.change(ChangeMembers::AddVoterIds(BTreeSet::from([id]))).await
    }

    pub(super) async fn take_out(&self, id: NodeId) -> Result<(), MemberError> {
        let _only = self.inner.changing.try_lock().map_err(|_| MemberError::Busy)?;
        let metrics = self.leading()?;
        if metrics.membership_config.membership().get_node(&id).is_none() {
            // Asked twice, because the first answer was lost on its way.
            return match self.inner.shared.was_removed(id) {
                true => Ok(()),
                false => refuse(format!("there is no controller {id}")),
            };
        }
        let mut rest = voters(&metrics);
        if !rest.remove(&id) {
            return self.change(ChangeMembers::RemoveNodes(BTreeSet::from([id]))).await;
        }
        if rest.is_empty() {
            return refuse(format!(
                "controller {id} is the only one that votes: add another before it goes"
            ));
        }
        self.needs_majority(&metrics, &rest, &format!("without controller {id}"))?;
        if id == self.inner.id {
            self.hand_over(None).await?;
            let leader = self.leadership().borrow().leader;
            return Err(NotLeader { leader }.into());
        }
        self.change(ChangeMembers::RemoveVoters(BTreeSet::from([id]))).await
    }

    /// The same controller, with its data, at another address.
    pub(super) async fn move_to(&self, id: NodeId, address: String) -> Result<(), MemberError> {
        let _only = self.inner.changing.try_lock().map_err(|_| MemberError::Busy)?;
        let metrics = self.leading()?;
        let membership = metrics.membership_config.membership();
        let Some(known) = membership.get_node(&id) else {
            return refuse(format!("there is no controller {id}"));
        };
        if known.addr == address {
            return Ok(());
        }
        if id != self.inner.id {
            let moved = self.recognize(id, &address).await;
            moved.map_err(|why| {
                MemberError::Refused(format!("controller {id} is not at {address}: {why}"))
            })?;
        }
        let nodes = BTreeMap::from([(id, BasicNode { addr: address })]);
        self.change(ChangeMembers::SetNodes(nodes)).await
    }

    fn needs_majority(
        &self,
        metrics: &Metrics,
        voters: &BTreeSet<NodeId>,
        when: &str,
    ) -> Result<(), MemberError> {
        let reachable = voters.iter().filter(|it| self.is_reachable(metrics, **it)).count();
        match reachable > voters.len() / 2 {
            true => Ok(()),
            false => refuse(format!(
                "{when} only {reachable} of {} voters would be reachable, which is no majority",
                voters.len()
            )),
        }
    }

    fn highest_number(&self) -> NodeId {
        self.inner.shared.stored().members_ever.last().copied().unwrap_or(0)
    }

    /// Whether `id` answered this leader lately.
    pub(super) fn is_reachable(&self, metrics: &Metrics, id: NodeId) -> bool {
        let heard = metrics.heartbeat.as_ref().and_then(|heard| heard.get(&id).copied().flatten());
        let lately = LATELY * self.inner.election_max;
        id == self.inner.id || heard.is_some_and(|at| at.into_inner().elapsed() < lately)
    }

    pub(super) fn leading(&self) -> Result<Metrics, MemberError> {
        let leadership = self.leadership().borrow().clone();
        match leadership.is_me {
            true => Ok(self.metrics()),
            false => Err(NotLeader { leader: leadership.leader }.into()),
        }
    }

    pub(super) fn most_caught_up(&self, metrics: &Metrics) -> Option<NodeId> {
        let matched = |id: &NodeId| matched(metrics, *id);
        let others = voters(metrics).into_iter().filter(|id| *id != self.inner.id);
        others.max_by_key(|id| (self.is_reachable(metrics, *id), matched(id)))
    }

    async fn invite(&self, id: NodeId, address: &str, was_let_in: bool) -> anyhow::Result<()> {
        let cluster_id = self.cluster_id();
        let mut peer = self.inner.network.peer(id, address)?;
        let found = peer.probe(PEER_PATIENCE).await?;
        let ours = found.cluster_id == cluster_id;
        anyhow::ensure!(
            found.cluster_id.is_empty() || ours,
            "it belongs to cluster {}. Start it with an empty data directory, and with --peers that names this cluster's controllers and itself",
            found.cluster_id
        );
        anyhow::ensure!(
            found.empty || (ours && was_let_in),
            "it is not empty: start it with an empty data directory"
        );
        let level = self.read(|state| state.counters.feature_level);
        // One from before levels were announced understands the first.
        anyhow::ensure!(
            found.feature_level.max(1) >= level,
            "it is of version {}, which understands feature level {}, and the cluster is at {level}: upgrade it first",
            found.version,
            found.feature_level
        );
        peer.join(&cluster_id, PEER_PATIENCE).await?;
        Ok(())
    }

    /// Makes sure that the member itself, with its data, is at `address`.
    async fn recognize(&self, id: NodeId, address: &str) -> anyhow::Result<()> {
        let found = self.inner.network.peer(id, address)?.probe(PEER_PATIENCE).await?;
        anyhow::ensure!(
            found.cluster_id == self.cluster_id(),
            "who is there does not belong to this cluster"
        );
        anyhow::ensure!(!found.empty, "who is there is empty: it is not the one that has moved");
        Ok(())
    }

    async fn change(&self, change: ChangeMembers<NodeId, BasicNode>) -> Result<(), MemberError> {
        let deadline = Instant::now() + self.inner.patience;
        loop {
            let changed = self.inner.core.change_membership(change.clone(), false);
            let Ok(changed) = timeout_at(deadline, changed).await else {
                return Err(MemberError::TimedOut(String::from(
                    "the change of members is not committed yet; `drigs cluster status` shows when it is",
                )));
            };
            match changed {
                Ok(_) => return Ok(()),
                Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))
                    if is_momentary(&forward) && Instant::now() < deadline =>
                {
                    sleep(MOMENT).await;
                }
                Err(error) => return Err(refusal(error)),
            }
        }
    }
}

fn refuse<T>(why: String) -> Result<T, MemberError> {
    Err(MemberError::Refused(why))
}

fn refusal(error: RaftError<Types, ClientWriteError<Types>>) -> MemberError {
    match error {
        RaftError::Fatal(_) => MemberError::Shutdown,
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            NotLeader { leader: forward.leader_id }.into()
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_),
        )) => MemberError::Busy,
        RaftError::APIError(error) => MemberError::Refused(error.to_string()),
    }
}
