//! What is done about a log that can not be purged.

use std::{sync::Weak, time::Duration};

use tokio::time::sleep;
use tracing::{info, warn};

use crate::raft::{Raft, replica::Replica};

const LOOK_AT_LOG: Duration = Duration::from_secs(1);
/// So often the log must be found too long.
const LOOKS_BEFORE: u32 = 5;

/// openraft keeps the leader's log for as long as one member might still be sent it. When one is away for long, another
/// leader (whose log is short) is the way to let go of it; the one that is away is then sent a snapshot.
pub(super) async fn keep_log_short(replica: Weak<Replica>, longest: u64) {
    let mut looks = 0;
    loop {
        sleep(LOOK_AT_LOG).await;
        let Some(inner) = replica.upgrade() else { return };
        let raft = Raft { inner };
        let Ok(metrics) = raft.leading() else {
            looks = 0;
            continue;
        };
        let first = metrics.purged.map_or(0, |purged| purged.index);
        let length = metrics.last_log_index.unwrap_or(0).saturating_sub(first);
        let Some(successor) = raft.most_caught_up(&metrics) else { continue };
        looks = if length > longest { looks + 1 } else { 0 };
        // Patience keeps two leaders with long logs from handing over to each other all the time.
        if looks < LOOKS_BEFORE || !raft.is_reachable(&metrics, successor) {
            continue;
        }
        looks = 0;
        info!(
            length,
            successor, "a member is away for long: handing over, so that the log can be purged"
        );
        if let Err(error) = raft.hand_over(Some(successor)).await {
            warn!(%error, "the log stays long");
        }
    }
}
