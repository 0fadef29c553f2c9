//! Backups that a controller keeps by itself, beside its data: against a mistake, not against the loss of the disk.

use std::{path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::raft::Raft;

pub async fn keep(
    raft: Raft,
    dir: PathBuf,
    every: Duration,
    count: usize,
    stopping: CancellationToken,
) {
    if count == 0 {
        return;
    }
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stopping.cancelled() => return,
        }
        // A full disk is met by the log as well, which decides what it means.
        match raft.keep_backup(dir.clone(), count).await {
            Ok(Some(file)) => info!(file = %file.display(), "a snapshot was taken"),
            Ok(None) => {}
            Err(error) => warn!(%error, "no snapshot was taken"),
        }
    }
}
