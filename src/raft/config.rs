//! What a replica is told when it starts.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::model::Timestamp;
use crate::raft::{Fatal, NodeId, OpenError};

#[derive(Clone)]
pub struct Config {
    pub node_id: NodeId,
    pub data_dir: PathBuf,
    /// Where each controller of a new cluster is reached, this one included. Once the cluster lives, its own list
    /// counts and this one only helps to find the others.
    pub peers: BTreeMap<NodeId, String>,
    /// What peers must present; the same on all.
    pub token: Option<String>,
    pub heartbeat: Duration,
    /// Followers wait between these two for a sign of the leader, and a deposed leader's time is up after the longer.
    pub election_min: Duration,
    pub election_max: Duration,
    /// How long a proposal may take before its outcome is declared unknown.
    pub patience: Duration,
    /// The state is made durable, and the log before it released, after so many entries.
    pub checkpoint_every: u64,
    /// Entries that stay in the log behind a checkpoint, so that a follower that was away briefly needs no snapshot.
    pub keep_entries: u64,
    /// When a member is away, the leader's log grows; beyond so many entries it hands over, which lets the log go.
    pub longest_log: u64,
    /// For how long the replica's core may give no answer before the process is ended.
    pub stuck_after: Duration,
    /// Stamps what this replica proposes.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Told when the replica can not go on. Unless a test watches, it ends the process.
    pub on_fatal: Arc<dyn Fn(Fatal) + Send + Sync>,
}

impl Config {
    /// The defaults: sub-second failover on a machine that is busy, but not overwhelmed.
    pub fn new(
        node_id: NodeId,
        data_dir: PathBuf,
        peers: BTreeMap<NodeId, String>,
        token: Option<String>,
    ) -> Self {
        Config {
            node_id,
            data_dir,
            peers,
            token,
            heartbeat: Duration::from_millis(60),
            election_min: Duration::from_millis(200),
            election_max: Duration::from_millis(400),
            patience: Duration::from_secs(10),
            checkpoint_every: 10_000,
            keep_entries: 5_000,
            longest_log: 200_000,
            stuck_after: Duration::from_secs(30),
            clock: Arc::new(wall_clock),
            on_fatal: Arc::new(Fatal::end_process),
        }
    }

    /// # Errors
    /// Says which setting is wrong and what would be right.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        let wrong = |problem: String| Err(OpenError::Config(problem));
        if !self.peers.contains_key(&self.node_id) {
            return wrong(format!("controller {} is not among its own peers", self.node_id));
        }
        if self.heartbeat < Duration::from_millis(10) {
            return wrong(format!(
                "a heartbeat of {:?} is too short: at least 10ms",
                self.heartbeat
            ));
        }
        if self.election_min < 2 * self.heartbeat {
            return wrong(format!(
                "an election timeout of {:?} does not fit a heartbeat of {:?}: at least twice as long",
                self.election_min, self.heartbeat
            ));
        }
        if self.election_max <= self.election_min {
            return wrong(format!(
                "the longest election timeout ({:?}) must exceed the shortest ({:?})",
                self.election_max, self.election_min
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Config {
    /// Without the token, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("node_id", &self.node_id)
            .field("data_dir", &self.data_dir)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

fn wall_clock() -> Timestamp {
    let since_epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
