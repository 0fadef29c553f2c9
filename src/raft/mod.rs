//! Replication: what is proposed here on the leader is applied on every controller, in one order, and outlives any
//! minority of them. Nothing above this room sees openraft's types.

mod backups;
mod config;
mod dismissal;
mod error;
mod failure_detector;
mod formation;
mod history;
mod leadership;
mod log_storage;
mod long_log;
mod members;
mod network;
pub mod offline;
mod proposer;
mod replica;
mod state_machine;
mod status;
mod types;
mod upgrade;
mod watchdog;
mod wire;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;

use openraft::{
    async_runtime::{Instant as _, WatchReceiver as _},
    errors::{LinearizableReadError, RaftError},
    raft::ReadPolicy,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

pub use self::config::Config;
pub use self::error::{Fatal, MemberError, NotLeader, OpenError, ProposeError};
pub use self::history::History;
pub use self::leadership::{Fence, Leadership};
pub use self::status::{Member, Role, Status};
use self::{dismissal::Verdict, replica::Replica, types::Metrics};
use crate::model::lineage::{Kinship, kinship};
use crate::rpc::{api::ClusterView, proto::peer_server::PeerServer};
use crate::state::{Command, Outcome, State};

/// A controller's number, chosen by its operator and never used again.
pub type NodeId = u64;

/// This controller's replica. Clones are the same one.
#[derive(Clone)]
pub struct Raft {
    inner: Arc<Replica>,
}

/// A leader that can not prove it at once may be able to a moment later.
const LINEARIZE_RETRY: Duration = Duration::from_millis(10);
/// The largest message that a peer may send; more than any batch.
const MAX_MESSAGE: usize = 256 << 20;

impl Raft {
    /// Opens the data directory and takes part. The first start of a cluster goes on in the background.
    ///
    /// # Errors
    /// When the settings do not fit, or the data directory is damaged, in use, or another's.
    pub async fn open(config: Config) -> Result<Raft, OpenError> {
        let longest_log = config.longest_log;
        let inner = Replica::open(config).await?;
        inner.spawn(long_log::keep_log_short(Arc::downgrade(&inner), longest_log));
        Ok(Raft { inner })
    }

    /// What peers call; to be mounted on the controller's gRPC server.
    pub fn peer_service(&self) -> tonic::service::Routes {
        let service = PeerServer::new(self.inner.peer_service())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        tonic::service::Routes::new(service)
    }

    /// Looks at the state. Keep it short: applying waits meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.inner.shared.state())
    }

    /// The index of the last entry that is applied and stored; [`Raft::read`] shows at least this one.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.inner.shared.progress.watch_stored()
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// Empty until this controller belongs to a cluster.
    pub fn cluster_id(&self) -> String {
        self.inner.dir.cluster_id().unwrap_or_default()
    }

    /// Whether workers of the cluster `other` may come over by themselves: this one was restored from its backup.
    pub fn adopts(&self, other: &str) -> bool {
        let adopted = self.read(|state| state.counters.adopted_cluster.clone());
        adopted.is_some_and(|adopted| kinship(&adopted, other) != Kinship::Stranger)
    }

    /// Someone has proof that the cluster was recovered without this controller: it ends.
    pub fn left_behind(&self, newer: &str) {
        self.inner.dismiss(&Verdict::LeftBehind(newer.to_owned()));
    }

    /// Where each member is reached, this one included.
    pub fn member_addresses(&self) -> Vec<String> {
        let metrics = self.metrics();
        let members = metrics.membership_config.membership();
        members.nodes().map(|(_, node)| node.addr.clone()).collect()
    }

    /// One outcome per command, once they are committed and applied here.
    ///
    /// # Errors
    /// See [`ProposeError`]; `Unknown` means that it may be committed nevertheless.
    pub async fn propose(&self, commands: Vec<Command>) -> Result<Vec<Outcome>, ProposeError> {
        self.inner.proposer.propose(None, &commands).await
    }

    /// The same, but only under the leadership that `fence` stands for.
    ///
    /// # Errors
    /// `NotLeader` when that leadership is over; and see [`ProposeError`].
    pub async fn propose_fenced(
        &self,
        fence: Fence,
        commands: Vec<Command>,
    ) -> Result<Vec<Outcome>, ProposeError> {
        self.inner.proposer.propose(Some(fence), &commands).await
    }

    /// After this, [`Raft::read`] shows everything that was acknowledged before the call.
    ///
    /// # Errors
    /// When this controller does not lead, or can not prove that it does in time.
    pub async fn linearize(&self) -> Result<(), NotLeader> {
        let deadline = Instant::now() + self.inner.patience;
        loop {
            let barrier = self.inner.core.ensure_linearizable(ReadPolicy::ReadIndex);
            let leader = match tokio::time::timeout_at(deadline, barrier).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                    forward.leader_id
                }
                Ok(Err(_)) | Err(_) => None,
            };
            let leads = self.leadership().borrow().is_me;
            if !leads || leader.is_some() || Instant::now() >= deadline {
                return Err(NotLeader { leader });
            }
            tokio::time::sleep(LINEARIZE_RETRY).await;
        }
    }

    /// How long ago a quorum acknowledged this leader; `None` when it does not lead or never was.
    pub fn quorum_age(&self) -> Option<Duration> {
        if !self.inner.leadership.borrow().is_me {
            return None;
        }
        let metrics = self.metrics();
        if status::voters(&metrics).iter().all(|id| *id == self.inner.id) {
            return Some(Duration::ZERO);
        }
        metrics.last_quorum_acked.map(|at| at.into_inner().elapsed())
    }

    /// Whether it leads without having heard from a quorum for so long that there may be another leader.
    pub fn lacks_quorum(&self) -> bool {
        self.quorum_age().is_some_and(|age| age > members::LATELY * self.inner.election_max)
    }

    pub fn history(&self) -> History {
        self.inner.history.clone()
    }

    /// Lets another lead: the one named, or the one that has most of the log. Returns when it leads.
    ///
    /// # Errors
    /// When this controller does not lead, there is nobody to take over, or nobody did in time.
    pub async fn transfer_leadership(&self, to: Option<NodeId>) -> Result<(), MemberError> {
        self.hand_over(to).await
    }

    pub fn status(&self) -> Status {
        self.inner.status(&self.metrics(), |metrics, id| self.is_reachable(metrics, id))
    }

    /// [`Raft::status`] in the words of the API.
    pub fn cluster_view(&self) -> ClusterView {
        self.status().into()
    }

    /// Takes a new, empty controller in, as a learner: it is sent everything, and does not vote yet.
    ///
    /// # Errors
    /// When this controller does not lead, or the newcomer's number was used before, it is not empty or not reachable.
    pub async fn add_learner(&self, id: NodeId, address: String) -> Result<(), MemberError> {
        self.let_in(id, address).await
    }

    /// Lets a learner vote once it has caught up.
    ///
    /// # Errors
    /// When this controller does not lead, or the learner would hold up the others.
    pub async fn promote(&self, id: NodeId) -> Result<(), MemberError> {
        self.give_vote(id).await
    }

    /// Says where a member is reached from now on.
    ///
    /// # Errors
    /// When this controller does not lead, or the member does not answer there.
    pub async fn move_member(&self, id: NodeId, address: String) -> Result<(), MemberError> {
        self.move_to(id, address).await
    }

    /// Takes a controller out for good. A leader that is to remove itself hands over first, and then answers
    /// `NotLeader`: the new leader removes it.
    ///
    /// # Errors
    /// When this controller does not lead, or the rest would have no quorum.
    pub async fn remove_member(&self, id: NodeId) -> Result<(), MemberError> {
        self.take_out(id).await
    }

    /// A backup of what is applied here, as the bytes of its file. Whoever reads slowly holds up nobody.
    pub fn backup(&self) -> mpsc::Receiver<std::io::Result<Bytes>> {
        self.inner.backup()
    }

    /// Writes a backup to `dir` unless nothing changed since the last one, and keeps the newest `keep` of them.
    ///
    /// # Errors
    /// When the disk refuses, or what was written does not read back.
    pub async fn keep_backup(&self, dir: PathBuf, keep: usize) -> anyhow::Result<Option<PathBuf>> {
        self.inner.keep_backup(dir, keep).await
    }

    /// Stops taking part and closes the files.
    ///
    /// # Errors
    /// When it did not end in order, or not in time.
    pub async fn shutdown(&self) -> anyhow::Result<()> {
        self.inner.shutdown().await
    }

    fn metrics(&self) -> Metrics {
        self.inner.core.metrics().borrow_watched().clone()
    }
}

impl std::fmt::Debug for Raft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raft").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
