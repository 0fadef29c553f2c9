//! What can be done with files while no controller uses them. The words of `drigs cluster backup|restore|recover`; the
//! controller's room does it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;
use crate::rpc::api::ApiError;

/// Done here and now, without a cluster.
pub trait Offline: Sync {
    /// Backs up what a controller that does not run has applied.
    ///
    /// # Errors
    /// In one line, for a person.
    fn backup(&self, data_dir: &Path, target: &Path) -> Result<BackupView, ApiError>;

    /// Checks all of a backup.
    ///
    /// # Errors
    /// In one line, for a person.
    fn inspect(&self, file: &Path) -> Result<BackupView, ApiError>;

    /// Makes the first controller of a new cluster.
    ///
    /// # Errors
    /// In one line, for a person.
    fn restore(&self, request: RestoreRequest) -> Result<RestoredView, ApiError>;

    /// What is left in the data directory of a controller whose majority is lost.
    ///
    /// # Errors
    /// In one line, for a person.
    fn survey(&self, data_dir: &Path) -> Result<SurvivorView, ApiError>;

    /// Makes it the only controller of its cluster, in a new generation. `cluster_id` is the one that was surveyed.
    ///
    /// # Errors
    /// In one line, for a person.
    fn recover(&self, data_dir: &Path, cluster_id: &str) -> Result<RecoveredView, ApiError>;
}

/// What a backup holds, as it says itself and as was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupView {
    pub file: String,
    pub file_bytes: u64,
    pub cluster_id: String,
    pub generation: u64,
    /// The controller that made it, and its version.
    pub controller: u64,
    pub version: String,
    pub taken_at: Timestamp,
    pub applied_index: u64,
    pub applied_term: u64,
    pub state_hash: String,
    pub feature_level: u32,
    pub jobs_submitted: u64,
    /// Tasks that had a place on a worker at that time.
    pub active_tasks: u64,
    pub workers: u64,
    /// For a backup of a stopped controller: entries of its log that it had not applied, which are not in the backup.
    pub entries_beyond: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreRequest {
    pub file: PathBuf,
    pub data_dir: PathBuf,
    pub id: u64,
    pub address: String,
    /// The cluster of the backup is gone: its workers may come over by themselves.
    pub adopt_workers: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredView {
    pub cluster_id: String,
    pub controller: u64,
    pub address: String,
    pub data_dir: String,
    pub backup: BackupView,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivorView {
    pub cluster_id: String,
    pub controller: u64,
    pub address: String,
    /// The others, which will not belong to the cluster any more.
    pub others: Vec<LostMember>,
    /// Where its log ends; what was acknowledged beyond is lost.
    pub last_index: u64,
    pub last_term: u64,
    /// When the last entry that says so was proposed.
    pub last_written_at: Option<Timestamp>,
    /// Up to here it knows that the entries were acknowledged; those behind may have been or not, and are kept.
    pub known_committed: Option<u64>,
    /// An earlier recovery of it did not come to its end, and is gone on with.
    pub begun: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostMember {
    pub id: u64,
    pub address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredView {
    pub cluster_id: String,
    pub generation: u64,
    pub survivor: SurvivorView,
}
