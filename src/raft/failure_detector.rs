//! A leader whose process is gone is not waited for.
//!
//! Silence proves nothing, so a follower that hears nothing waits for its election timeout. A connection that breaks and
//! is then *refused* proves more: no process listens there any more. Such a follower gives up its lease on the leader and
//! asks the others, by Raft's pre-vote, whether it may stand. Each voter that found the same agrees; one that still hears the
//! leader does not, and then nothing changes. Safety never rests on any of this: it is only about when an election is held.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use openraft::{
    async_runtime::WatchReceiver as _, errors::Fatal as CoreFatal, raft::TransferLeaderRequest,
};
use rand::RngExt as _;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tracing::info;

use crate::raft::{
    NodeId,
    status::voters,
    types::{Core, Metrics, Types},
};

#[derive(Clone)]
pub struct FailureDetector {
    id: NodeId,
    core: Core,
    /// Set while somebody looks already.
    looking: Arc<AtomicBool>,
}

/// A process that is being ended may break its connections before it stops listening.
const PAUSES_MS: [u64; 8] = [0, 1, 2, 4, 8, 16, 32, 64];
const CONNECT_PATIENCE: Duration = Duration::from_millis(100);
/// By so much later each one stands than the one before it, so that two do not share the votes.
const STAGGER: Duration = Duration::from_millis(25);
/// So often it asks, before it leaves the matter to the election timeout.
const ROUNDS: u32 = 5;

impl FailureDetector {
    pub fn new(id: NodeId, core: Core) -> Self {
        FailureDetector { id, core, looking: Arc::default() }
    }

    /// What `peer` was sending broke off. Looks after it in the background if it leads.
    pub fn suspect(&self, peer: NodeId) {
        let leads = self.core.metrics().borrow_watched().current_leader == Some(peer);
        if !leads || self.looking.swap(true, Ordering::SeqCst) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            // A core that has ended holds no election.
            let _ = this.look_after(peer).await;
            this.looking.store(false, Ordering::SeqCst);
        });
    }

    async fn look_after(&self, leader: NodeId) -> Result<(), CoreFatal<Types>> {
        let address = {
            let metrics = self.metrics();
            let node = metrics.membership_config.membership().get_node(&leader).cloned();
            node.map(|node| node.addr).unwrap_or_default()
        };
        if !is_gone(&address).await {
            return Ok(());
        }
        info!(leader, "nothing listens at the leader's address any more");
        self.stand_after(leader).await
    }

    /// Lets go of `leader`, and asks for votes in its turn while nobody else leads.
    pub async fn stand_after(&self, leader: NodeId) -> Result<(), CoreFatal<Types>> {
        let known = self.metrics();
        let leads = |now: &Metrics| now.current_leader == Some(leader) && now.vote == known.vote;
        if !leads(&known) {
            return Ok(());
        }
        // To be told of a transfer to somebody else is openraft's way to let go of a leader before its lease is over.
        let let_go = TransferLeaderRequest::new(known.vote, leader, None);
        // It refuses only what this controller is to do itself.
        let _ = self.core.handle_transfer_leader(let_go).await?;

        let others: Vec<NodeId> = voters(&known).into_iter().filter(|id| *id != leader).collect();
        let turn = others.iter().take_while(|id| **id != self.id).count();
        let before = STAGGER * turn as u32;
        let after = STAGGER * others.len() as u32 - before;
        for _ in 0..ROUNDS {
            // The others need a moment for their own proof.
            let moment = Duration::from_millis(rand::rng().random_range(3..8));
            sleep(before + moment).await;
            if !leads(&self.metrics()) {
                return Ok(());
            }
            self.core.trigger().elect(true).await?;
            sleep(after).await;
        }
        Ok(())
    }

    fn metrics(&self) -> Metrics {
        self.core.metrics().borrow_watched().clone()
    }
}

/// Whether connections to `address` are refused, now or in a moment. No answer at all proves nothing.
async fn is_gone(address: &str) -> bool {
    for pause in PAUSES_MS {
        sleep(Duration::from_millis(pause)).await;
        match timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return true,
            Ok(Ok(_) | Err(_)) | Err(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_gone;

    #[tokio::test]
    async fn only_a_refused_connection_proves_anything() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(!is_gone(&address).await, "somebody listens");
        drop(listener);
        assert!(is_gone(&address).await);
        assert!(!is_gone("no such host:7070").await);
    }
}
