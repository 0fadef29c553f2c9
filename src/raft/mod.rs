//! Replication: what is proposed here on the leader is applied on every controller, in one order, and outlives any
//! minority of them. Nothing above this room sees openraft's types.

mod config;
mod error;
mod history;
mod leadership;
mod status;

use std::time::Duration;

use tokio::sync::watch;

pub use self::config::Config;
pub use self::error::{Fatal, MemberError, NotLeader, OpenError, ProposeError};
pub use self::history::History;
pub use self::leadership::{Fence, Leadership};
pub use self::status::{Member, Role, Status};
use crate::rpc::api::ClusterView;
use crate::state::{Command, Outcome, State};

/// A controller's number, chosen by its operator and never used again.
pub type NodeId = u64;

/// This controller's replica. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Raft {}

impl Raft {
    /// Opens the data directory and takes part. The first start of a cluster goes on in the background.
    ///
    /// # Errors
    /// When the settings do not fit, or the data directory is damaged, in use, or another's.
    pub async fn open(_config: Config) -> Result<Raft, OpenError> {
        todo!()
    }

    /// What peers call; to be mounted on the controller's gRPC server.
    pub fn peer_service(&self) -> tonic::service::Routes {
        todo!()
    }

    /// Looks at the state. Keep it short: applying waits meanwhile.
    pub fn read<T>(&self, _look: impl FnOnce(&State) -> T) -> T {
        todo!()
    }

    /// The index of the last entry applied to the state that [`Raft::read`] shows.
    pub fn applied(&self) -> watch::Receiver<u64> {
        todo!()
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        todo!()
    }

    /// Empty until this controller belongs to a cluster.
    pub fn cluster_id(&self) -> String {
        todo!()
    }

    /// Where each member is reached, this one included.
    pub fn member_addresses(&self) -> Vec<String> {
        todo!()
    }

    /// One outcome per command, once they are committed and applied here.
    ///
    /// # Errors
    /// See [`ProposeError`]; `Unknown` means that it may be committed nevertheless.
    pub async fn propose(&self, _commands: Vec<Command>) -> Result<Vec<Outcome>, ProposeError> {
        todo!()
    }

    /// The same, but only under the leadership that `fence` stands for.
    ///
    /// # Errors
    /// `NotLeader` when that leadership is over; and see [`ProposeError`].
    pub async fn propose_fenced(
        &self,
        _fence: Fence,
        _commands: Vec<Command>,
    ) -> Result<Vec<Outcome>, ProposeError> {
        todo!()
    }

    /// After this, [`Raft::read`] shows everything that was acknowledged before the call.
    ///
    /// # Errors
    /// When this controller does not lead, or can not prove that it does in time.
    pub async fn linearize(&self) -> Result<(), NotLeader> {
        todo!()
    }

    /// How long ago a quorum acknowledged this leader; `None` when it does not lead or never was.
    pub fn quorum_age(&self) -> Option<Duration> {
        todo!()
    }

    pub fn history(&self) -> History {
        todo!()
    }

    /// Lets another lead: the one named, or the one that has most of the log. Returns when it leads.
    ///
    /// # Errors
    /// When this controller does not lead, there is nobody to take over, or nobody did in time.
    pub async fn transfer_leadership(&self, _to: Option<NodeId>) -> Result<(), MemberError> {
        todo!()
    }

    pub fn status(&self) -> Status {
        todo!()
    }

    /// [`Raft::status`] in the words of the API.
    pub fn cluster_view(&self) -> ClusterView {
        todo!()
    }

    /// Takes a new, empty controller in: first as a learner, and as a voter once it has caught up.
    ///
    /// # Errors
    /// When this controller does not lead, the newcomer is known, not empty, not reachable, or does not catch up.
    pub async fn add_member(&self, _id: NodeId, _address: String) -> Result<(), MemberError> {
        todo!()
    }

    /// Takes a controller out for good. A leader that removes itself hands over first.
    ///
    /// # Errors
    /// When this controller does not lead, or the rest would have no quorum.
    pub async fn remove_member(&self, _id: NodeId) -> Result<(), MemberError> {
        todo!()
    }

    /// Stops taking part and closes the files.
    ///
    /// # Errors
    /// When it did not end in time.
    pub async fn shutdown(&self) -> anyhow::Result<()> {
        todo!()
    }
}
