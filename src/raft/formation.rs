//! The first start of a cluster.
//!
//! All controllers are given the same list. The one with the lowest number founds the cluster, once *every* listed one
//! has answered that it is empty: then no controller that merely lost its disk can ever begin a second history. Each is
//! first let in (it notes the cluster's id durably), and only then is the first entry written; so a controller that is
//! empty and was not let in, but whose peers know it, has lost its data, and must not vote again under the old number.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use openraft::BasicNode;
use rand::RngExt as _;
use tracing::{info, warn};
use uuid::Uuid;

use crate::raft::{
    Fatal, NodeId,
    network::{Network, PeerError},
    types::Core,
};
use crate::rpc::proto::ProbeResponse;
use crate::store::DataDir;

pub struct Formation {
    pub id: NodeId,
    pub peers: BTreeMap<NodeId, String>,
    pub dir: Arc<DataDir>,
    pub network: Network,
    pub core: Core,
    pub fatal: Arc<dyn Fn(Fatal) + Send + Sync>,
}

/// What the peers' answers mean for an empty controller.
enum Finding {
    /// Not everyone answered, or it is another's turn.
    Wait(String),
    Found,
    /// It was let in: the leader will send what there is.
    LetIn,
    Lost(String),
}

const PATIENCE: Duration = Duration::from_secs(1);

impl Formation {
    /// Until this controller belongs to a cluster.
    pub async fn run(self) {
        let mut said = String::new();
        loop {
            match self.look().await {
                Finding::LetIn => return,
                Finding::Lost(message) => {
                    return (self.fatal)(Fatal { exit_code: Fatal::IDENTITY, message });
                }
                Finding::Found => match self.found().await {
                    Ok(cluster_id) => {
                        info!(%cluster_id, "founded a new cluster");
                        return;
                    }
                    Err(error) => warn!(%error, "the cluster can not be founded yet"),
                },
                Finding::Wait(why) if why != said => {
                    info!("waiting: {why}");
                    said = why;
                }
                Finding::Wait(_) => {}
            }
            let pause = rand::rng().random_range(100..300);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn look(&self) -> Finding {
        let answers = self.probe_all().await;
        let living = answers.values().flatten().find(|answer| !answer.empty);
        if let Some(living) = living {
            return self.beside_a_living_cluster(living);
        }
        let lowest = self.peers.keys().next().copied().unwrap_or(self.id);
        if self.id != lowest {
            return match self.dir.cluster_id() {
                Some(_) => Finding::LetIn,
                None => Finding::Wait(format!("controller {lowest} founds the cluster")),
            };
        }
        let silent = answers.iter().find_map(|(id, answer)| Some((id, answer.as_ref().err()?)));
        match silent {
            Some((id, error)) => Finding::Wait(format!(
                "controller {id} at {} does not answer as it should: {error}",
                self.peers[id]
            )),
            None => Finding::Found,
        }
    }

    fn beside_a_living_cluster(&self, living: &ProbeResponse) -> Finding {
        let ProbeResponse { cluster_id, voters, .. } = living;
        let id = self.id;
        if self.dir.cluster_id().is_some() {
            return Finding::LetIn;
        }
        if voters.contains(&id) {
            return Finding::Lost(format!(
                "cluster {cluster_id} knows controller {id}, but the data directory {} is empty: what this controller promised is lost, so it must not take part as {id} again. \
                 Run `drigs cluster remove {id}`, start it under a number that was never used, and `drigs cluster add` that one",
                self.dir.path().display()
            ));
        }
        if living.sender_removed {
            return Finding::Lost(format!(
                "cluster {cluster_id} had a controller {id} until it was removed, and numbers are not used again: start this one under a number that was never used, and run `drigs cluster add` for that one"
            ));
        }
        let address = self.peers.get(&id).map_or("", String::as_str);
        Finding::Wait(format!(
            "cluster {cluster_id} lives already; `drigs cluster add {id} {address}` lets this controller in"
        ))
    }

    async fn probe_all(&self) -> BTreeMap<NodeId, Result<ProbeResponse, PeerError>> {
        let others = self.peers.iter().filter(|(id, _)| **id != self.id);
        let probes = others.map(|(id, address)| async move {
            let answer = match self.network.peer(*id, address) {
                Ok(mut peer) => peer.probe(PATIENCE).await,
                Err(error) => Err(error),
            };
            (*id, answer)
        });
        join_all(probes).await.into_iter().collect()
    }

    /// Its own id first, then the others', then the first entry: a founder that dies in between goes on with the same.
    async fn found(&self) -> anyhow::Result<String> {
        let cluster_id = self.dir.cluster_id().unwrap_or_else(|| Uuid::new_v4().to_string());
        self.dir.join(&cluster_id)?;
        for (id, address) in self.peers.iter().filter(|(id, _)| **id != self.id) {
            self.network.peer(*id, address)?.join(&cluster_id, PATIENCE).await?;
        }
        let members: BTreeMap<NodeId, BasicNode> =
            self.peers.iter().map(|(id, addr)| (*id, BasicNode { addr: addr.clone() })).collect();
        self.core.initialize(members).await?;
        Ok(cluster_id)
    }
}
