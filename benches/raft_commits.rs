//! The replication alone: three replicas in one process, over gRPC on loopback, with real disks. How many submissions
//! they commit per second, and for how long none is when the leader dies or hands over.

mod common;

use std::{
    collections::BTreeMap,
    net::TcpListener,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use common::{
    Harness,
    spread::{Spread, ms},
    table::{self, Figures},
};
use drigs::{
    model::{IdempotencyKey, JobSpec, UserName},
    raft::{Config, NodeId, Raft},
    state::{Command, SubmitJob},
};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Commits per second, and the gaps when the leader changes.
#[derive(Parser, Debug)]
struct Options {
    #[command(flatten)]
    harness: Harness,
    /// How long each load runs [default: 5; 1 in a test]
    #[arg(long)]
    seconds: Option<u64>,
    /// How often the leader dies, and hands over [default: 20; 1 in a test]
    #[arg(long)]
    rounds: Option<usize>,
}

const PROPOSERS: [usize; 2] = [1, 256];
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);
/// What a submission's environment holds, so that the whole of it is about 256 bytes.
const PADDING: usize = 150;

fn main() -> ExitCode {
    common::run(measure(Options::parse()))
}

async fn measure(options: Options) -> anyhow::Result<()> {
    let length = Duration::from_secs(options.seconds.unwrap_or(options.harness.pick(5, 1)));
    let rounds = options.rounds.unwrap_or(options.harness.pick(20, 1));
    let mut cluster = Cluster::start(options.harness.dir()).await?;

    table::print_machine(options.harness.dir())?;

    let mut commits = Figures::new(["proposers", "commits/s", "a log entry", "p50 ms", "p99 ms"]);
    for proposers in PROPOSERS {
        commits.row(&proposers.to_string(), cluster.load(proposers, length).await?);
    }
    commits.print("Submissions committed by three replicas");

    let mut gaps = Figures::new(["the leader"].into_iter().chain(Spread::HEADINGS));
    let mut killed = Vec::new();
    let mut handed = Vec::new();
    for _ in 0..rounds {
        killed.push(cluster.kill_leader().await?);
        handed.push(cluster.hand_over().await?);
    }
    gaps.row("dies", killed.into_iter().collect::<Spread>().cells());
    gaps.row("hands over", handed.into_iter().collect::<Spread>().cells());
    gaps.print("Until the next submission is committed");
    cluster.stop().await
}

struct Cluster {
    dir: tempfile::TempDir,
    listeners: BTreeMap<NodeId, TcpListener>,
    peers: BTreeMap<NodeId, String>,
    nodes: BTreeMap<NodeId, Node>,
}

struct Node {
    raft: Raft,
    stop: CancellationToken,
}

impl Cluster {
    async fn start(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut cluster = Cluster {
            dir: tempfile::tempdir_in(dir)?,
            listeners: BTreeMap::new(),
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
        };
        for id in 1..=3 {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener.set_nonblocking(true)?;
            cluster.peers.insert(id, listener.local_addr()?.to_string());
            cluster.listeners.insert(id, listener);
        }
        for id in 1..=3 {
            cluster.start_node(id).await?;
        }
        cluster.leader().await?;
        Ok(cluster)
    }

    async fn start_node(&mut self, id: NodeId) -> anyhow::Result<()> {
        let data = self.dir.path().join(id.to_string());
        let raft = Raft::open(Config::new(id, data, self.peers.clone(), None)).await?;
        let listener = tokio::net::TcpListener::from_std(self.listeners[&id].try_clone()?)?;
        let server = tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .add_routes(raft.peer_service())
            .serve_with_incoming(TcpListenerStream::new(listener));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            // Dropped, not drained: as a process that dies.
            tokio::select! {
                _ = server => {}
                () = stopped.cancelled() => {}
            }
        });
        self.nodes.insert(id, Node { raft, stop });
        Ok(())
    }

    async fn leader(&self) -> anyhow::Result<NodeId> {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            for (id, node) in &self.nodes {
                let leads = node.raft.leadership().borrow().is_me;
                if leads && node.raft.linearize().await.is_ok() {
                    return Ok(*id);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::bail!("nobody leads")
    }

    /// Cells of the table: what `proposers` that each wait for their answer commit.
    async fn load(&self, proposers: usize, length: Duration) -> anyhow::Result<[String; 4]> {
        let raft = self.nodes[&self.leader().await?].raft.clone();
        let over = Arc::new(AtomicBool::new(false));
        let before = raft.status().last_log.unwrap_or(0);
        let started = Instant::now();
        let propose = |_| tokio::spawn(propose_until(raft.clone(), over.clone()));
        let all: Vec<_> = (0..proposers).map(propose).collect();
        tokio::time::sleep(length).await;
        over.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        for proposer in all {
            took.extend(proposer.await??);
        }
        let per_second = took.len() as f64 / started.elapsed().as_secs_f64();
        let entries = raft.status().last_log.unwrap_or(0) - before;
        let per_entry = took.len() as f64 / entries.max(1) as f64;
        let took: Spread = took.into_iter().collect();
        Ok([
            format!("{per_second:.0}"),
            format!("{per_entry:.1}"),
            ms(took.median()),
            ms(took.p99()),
        ])
    }

    /// From its end to the next acknowledgement.
    async fn kill_leader(&mut self) -> anyhow::Result<Duration> {
        let old = self.leader().await?;
        self.settle().await?;
        let dead = self.nodes.remove(&old).context("it was there")?;
        let started = Instant::now();
        dead.stop.cancel();
        let ending = tokio::spawn(async move { dead.raft.shutdown().await });
        let gap = self.next_acknowledgement(started).await?;
        ending.await??;
        self.start_node(old).await?;
        self.settle().await?;
        Ok(gap)
    }

    /// From the order to hand over to the next acknowledgement.
    async fn hand_over(&self) -> anyhow::Result<Duration> {
        self.settle().await?;
        let old = self.leader().await?;
        let started = Instant::now();
        self.nodes[&old].raft.transfer_leadership(None).await?;
        let gap = self.next_acknowledgement(started).await?;
        ensure!(self.leader().await? != old, "the same one leads");
        Ok(gap)
    }

    async fn next_acknowledgement(&self, since: Instant) -> anyhow::Result<Duration> {
        while since.elapsed() < DEADLINE {
            for node in self.nodes.values() {
                let leads = node.raft.leadership().borrow().is_me;
                if leads && node.raft.propose(vec![submission()]).await.is_ok() {
                    return Ok(since.elapsed());
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::bail!("nothing was acknowledged any more")
    }

    /// Until every replica has what the leader has.
    async fn settle(&self) -> anyhow::Result<()> {
        let last = self.nodes[&self.leader().await?].raft.status().applied;
        common::wait_until("the replicas agree", DEADLINE, async || {
            self.nodes.values().all(|node| node.raft.status().applied >= last)
        })
        .await
    }

    async fn stop(self) -> anyhow::Result<()> {
        for node in self.nodes.into_values() {
            node.stop.cancel();
            node.raft.shutdown().await?;
        }
        Ok(())
    }
}

async fn propose_until(raft: Raft, over: Arc<AtomicBool>) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let outcomes = raft.propose(vec![submission()]).await?;
        ensure!(outcomes.iter().all(Result::is_ok), "a submission was rejected");
        took.push(started.elapsed());
    }
    Ok(took)
}

fn submission() -> Command {
    let env = BTreeMap::from([(String::from("PADDING"), "x".repeat(PADDING))]);
    Command::SubmitJob(Box::new(SubmitJob {
        spec: JobSpec { env, ..JobSpec::default() },
        user: UserName::from("bench"),
        key: IdempotencyKey::new(Uuid::new_v4().to_string()),
    }))
}
