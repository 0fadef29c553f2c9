//! Ends everything that a worker's data directory still runs, for an operator who takes the machine out of service.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use tracing::info;

use crate::model::{EndReason, Millis};
use crate::worker::{
    attempt_dir::{FoundState, Intent},
    supervisor::{Event, Supervisor},
};

/// From SIGTERM to SIGKILL.
const GRACE: Millis = Millis::from_secs(2);
/// Longer than the longest that a shim tries to end its tree.
const DEADLINE: Duration = Duration::from_secs(75);

/// Stops every attempt and waits until nothing of any is left. Their ends are reported when the worker is next started
/// here.
///
/// # Errors
/// When a worker runs here, or something does not end.
pub async fn stop_all(data_dir: &Path) -> anyhow::Result<()> {
    let (supervisor, mut events, found) = Supervisor::open(data_dir)
        .await
        .with_context(|| format!("cannot take over {}", data_dir.display()))?;
    let mut live = 0;
    for found in &found {
        match found.state {
            FoundState::Running { .. } => {
                let by = String::from("an operator, who stopped all");
                let intent = Intent { reason: EndReason::NodeLost, by, grace: GRACE };
                supervisor.stop(found.attempt, intent).await?;
                live += 1;
            }
            FoundState::SupervisorLost { .. } => live += 1,
            FoundState::NeverStarted | FoundState::Ended(_) => {}
        }
    }
    info!(live, "stopping all attempts");
    let stopped = tokio::time::timeout(DEADLINE, async {
        while live > 0 {
            match events.next().await {
                Some(Event::Ended { .. }) => live -= 1,
                Some(Event::Started { .. } | Event::ShimLost { .. }) => {}
                None => break,
            }
        }
    });
    if stopped.await.is_err() {
        bail!("{live} attempts do not end; `ps` shows what hangs");
    }
    // The launcher ends once its socket is gone.
    let socket = supervisor.dir().root().join("launcher.sock");
    supervisor.close().await;
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", socket.display()))
        }
        _ => Ok(()),
    }
}
