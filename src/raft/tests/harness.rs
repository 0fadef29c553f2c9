//! Replicas in one process, over real gRPC on loopback.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use crate::model::{IdempotencyKey, JobId, JobSpec, UserName};
use crate::raft::{Config, Fatal, NodeId, OpenError, ProposeError, Raft};
use crate::state::{Command, Event, Outcome, SubmitJob};

pub struct Node {
    pub raft: Raft,
    pub fatals: Arc<Mutex<Vec<Fatal>>>,
    stop: CancellationToken,
}

/// Directories and addresses outlive their replicas.
pub struct Cluster {
    pub dir: TempDir,
    pub peers: BTreeMap<NodeId, String>,
    listeners: BTreeMap<NodeId, std::net::TcpListener>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub tune: fn(&mut Config),
}

pub const DEADLINE: Duration = Duration::from_secs(180);

impl Cluster {
    /// Reserves addresses for controllers 1 to `size`, and starts none.
    pub fn new(size: u64) -> Self {
        let mut cluster = Cluster {
            dir: tempfile::tempdir().unwrap(),
            peers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            nodes: BTreeMap::new(),
            tune: |_| (),
        };
        for id in 1..=size {
            let address = cluster.reserve(id);
            cluster.peers.insert(id, address);
        }
        cluster
    }

    pub async fn started(size: u64) -> Self {
        let mut cluster = Cluster::new(size);
        for id in 1..=size {
            cluster.start(id).await;
        }
        cluster.leader().await;
        cluster
    }

    pub fn reserve(&mut self, id: NodeId) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        self.listeners.insert(id, listener);
        address
    }

    pub fn path(&self, id: NodeId) -> std::path::PathBuf {
        self.dir.path().join(id.to_string())
    }

    pub fn config(&self, id: NodeId, fatals: &Arc<Mutex<Vec<Fatal>>>) -> Config {
        let fatals = fatals.clone();
        let mut config = Config::new(
            id,
            self.path(id),
            self.peers.clone(),
            Some(String::from("one token for all")),
        );
        // Wide enough for a machine on which many tests run at one time.
        config.heartbeat = Duration::from_millis(100);
        config.election_min = Duration::from_millis(500);
        config.election_max = Duration::from_millis(1000);
        config.on_fatal = Arc::new(move |fatal| fatals.lock().unwrap().push(fatal));
        (self.tune)(&mut config);
        config
    }

    pub async fn start(&mut self, id: NodeId) {
        self.try_start(id).await.unwrap();
    }

    pub async fn try_start(&mut self, id: NodeId) -> Result<(), OpenError> {
        let fatals = Arc::default();
        let raft = Raft::open(self.config(id, &fatals)).await?;
        let listener = TcpListener::from_std(self.listeners[&id].try_clone().unwrap()).unwrap();
        let stop = CancellationToken::new();
        let server = tonic::transport::Server::builder()
            .add_routes(raft.peer_service())
            .serve_with_incoming(TcpListenerStream::new(listener));
        let stopped = stop.clone();
        tokio::spawn(async move {
            // Dropped, not drained: as a process that dies.
            tokio::select! {
                served = server => served.unwrap(),
                () = stopped.cancelled() => {}
            }
        });
        self.nodes.insert(id, Node { raft, fatals, stop });
        Ok(())
    }

    /// As the end of its process: the connections break, the files are let go of.
    pub async fn stop(&mut self, id: NodeId) {
        let node = self.nodes.remove(&id).unwrap();
        node.stop.cancel();
        node.raft.shutdown().await.unwrap();
    }

    pub fn raft(&self, id: NodeId) -> &Raft {
        &self.nodes[&id].raft
    }

    /// The one that leads and can commit.
    pub async fn leader(&self) -> NodeId {
        let deadline = Instant::now() + DEADLINE;
        loop {
            for (id, node) in &self.nodes {
                let leads = node.raft.leadership().borrow().is_me;
                if leads && node.raft.linearize().await.is_ok() {
                    return *id;
                }
            }
            assert!(Instant::now() < deadline, "nobody leads");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// As `drigs cluster add` does it.
    pub async fn add(&self, id: NodeId, address: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let leader = self.leader().await;
            let raft = self.raft(leader);
            let added = raft.add_learner(id, address.to_owned()).await;
            match added.and(raft.promote(id).await) {
                Ok(()) => return,
                Err(why) => assert!(Instant::now() < deadline, "controller {id}: {why}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Until `id` was told that it may not take part, for this reason.
    pub async fn dismissed(&self, id: NodeId, why: &str) {
        let fatals = self.nodes[&id].fatals.clone();
        eventually("it is told so", || !fatals.lock().unwrap().is_empty()).await;
        let fatal = fatals.lock().unwrap()[0].clone();
        assert_eq!(fatal.exit_code, Fatal::IDENTITY);
        assert!(fatal.message.contains(why), "{}", fatal.message);
    }

    pub async fn follower(&self) -> NodeId {
        let leader = self.leader().await;
        *self.nodes.keys().find(|id| **id != leader).unwrap()
    }

    /// Submits jobs on the leader, and returns their ids.
    pub async fn submit(&self, jobs: u64) -> Vec<JobId> {
        let mut ids = Vec::new();
        for _ in 0..jobs {
            ids.push(self.submit_one().await);
        }
        ids
    }

    /// Asks again, with the same key, when a busy machine made the leader lose its lead meanwhile.
    async fn submit_one(&self) -> JobId {
        let command = submission();
        let deadline = Instant::now() + DEADLINE;
        loop {
            // That it can commit, it shows by doing so.
            let Some(leader) = self.nodes.values().find(|it| it.raft.leadership().borrow().is_me)
            else {
                assert!(Instant::now() < deadline, "nobody leads");
                sleep(Duration::from_millis(5)).await;
                continue;
            };
            match leader.raft.propose(vec![command.clone()]).await {
                Ok(outcomes) => return submitted(&outcomes),
                Err(ProposeError::NotLeader { .. } | ProposeError::Unknown) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Until every replica has applied the same and holds the same.
    pub async fn agree(&self) {
        let leader = self.leader().await;
        let applied = self.raft(leader).status().applied;
        let deadline = Instant::now() + DEADLINE;
        while self.nodes.values().any(|node| node.raft.status().applied < applied) {
            let statuses =
                || self.nodes.values().map(|node| node.raft.status()).collect::<Vec<_>>();
            assert!(
                Instant::now() < deadline,
                "not all have applied {applied:?}: {:#?}",
                statuses()
            );
            sleep(Duration::from_millis(5)).await;
        }
        let statuses: Vec<_> = self.nodes.values().map(|node| node.raft.status()).collect();
        for status in &statuses {
            if status.applied == statuses[0].applied {
                assert_eq!(status.state_hash, statuses[0].state_hash, "replicas differ");
            }
        }
        let first = self.raft(leader).read(Clone::clone);
        for node in self.nodes.values() {
            node.raft.read(|state| assert!(*state == first, "replicas differ"));
        }
    }
}

pub async fn submit(raft: &Raft) -> JobId {
    submitted(&raft.propose(vec![submission()]).await.unwrap())
}

fn submitted(outcomes: &[Outcome]) -> JobId {
    match outcomes[0].as_ref().unwrap()[0] {
        Event::JobSubmitted(id) => id,
        ref other => panic!("{other:?}"),
    }
}

pub fn submission() -> Command {
    Command::SubmitJob(Box::new(SubmitJob {
        spec: JobSpec::default(),
        user: UserName::from("someone"),
        key: IdempotencyKey::new(uuid::Uuid::new_v4().to_string()),
    }))
}

pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub fn wipe(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
}
