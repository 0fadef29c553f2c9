//! After a rolling upgrade: the leader raises the cluster's feature level once every member understands it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::controller::leader::Term;
use crate::raft::Raft;
use crate::state::Command;

const LOOK_EVERY: Duration = Duration::from_secs(5);

pub async fn run(
    raft: Raft,
    terms: watch::Receiver<Option<Arc<Term>>>,
    stopping: CancellationToken,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = stopping.cancelled() => return,
        }
        let Some(term) = terms.borrow().clone() else { continue };
        let Some(level) = raft.next_feature_level().await else { continue };
        match term.propose(vec![Command::RaiseFeatureLevel { level }]).await {
            Ok(_) => info!(level, "every controller understands it: the feature level is raised"),
            Err(error) => warn!(level, %error, "the feature level was not raised yet"),
        }
    }
}
