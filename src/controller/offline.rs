//! What `drigs cluster backup|restore|recover` do with files while no controller uses them.

use std::path::Path;

use crate::raft::offline;
use crate::rpc::{
    api::{ApiError, ErrorKind},
    offline::{BackupView, Offline, RecoveredView, RestoreRequest, RestoredView, SurvivorView},
};

#[derive(Clone, Copy, Debug)]
pub struct Tools;

impl Offline for Tools {
    fn backup(&self, data_dir: &Path, target: &Path) -> Result<BackupView, ApiError> {
        offline::backup(data_dir, target).map_err(refused)
    }

    fn inspect(&self, file: &Path) -> Result<BackupView, ApiError> {
        offline::inspect(file).map_err(refused)
    }

    fn restore(&self, request: RestoreRequest) -> Result<RestoredView, ApiError> {
        offline::restore(&request).map_err(refused)
    }

    fn survey(&self, data_dir: &Path) -> Result<SurvivorView, ApiError> {
        offline::survey(data_dir).map_err(refused)
    }

    fn recover(&self, data_dir: &Path, cluster_id: &str) -> Result<RecoveredView, ApiError> {
        offline::recover(data_dir, cluster_id).map_err(refused)
    }
}

fn refused(error: anyhow::Error) -> ApiError {
    ApiError::new(ErrorKind::Conflict, format!("{error:#}"))
}
