//! What one replica is made of, from its opening to its end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;
use openraft::SnapshotPolicy;
use rand::RngExt as _;
use tokio::{
    runtime::{Handle, Runtime},
    sync::watch,
};

use crate::raft::{
    Config, History, Leadership, Member, NodeId, OpenError, Status,
    dismissal::{Dismissal, Verdict, ask_around},
    error::Fatal,
    failure_detector::FailureDetector,
    formation::Formation,
    leadership,
    log_storage::LogStorage,
    network::{AddressBook, Identity, Network, PeerService},
    proposer::Proposer,
    state_machine::{Shared, StateMachine},
    status::{matched, voters},
    types::{Core, Membership, Metrics},
    watchdog::{self, Alarm},
};
use crate::store::{self, DataDir};

pub struct Replica {
    pub id: NodeId,
    pub core: Core,
    pub dir: Arc<DataDir>,
    pub network: Network,
    pub shared: Arc<Shared>,
    pub history: History,
    pub leadership: watch::Receiver<Leadership>,
    pub proposer: Proposer,
    pub patience: Duration,
    pub election_max: Duration,
    /// Held while the members change.
    pub changing: tokio::sync::Mutex<()>,
    /// Where others may be found that the members' own list does not name.
    peers: BTreeMap<NodeId, String>,
    dismissal: Dismissal,
    identity: Identity,
    log: LogStorage,
    pub(super) state_machine: StateMachine,
    alarm: Alarm,
    closed: AtomicBool,
    runtime: OwnRuntime,
}

/// The core has threads of its own: however busy the rest of the process is, its heartbeats go out.
struct OwnRuntime(Mutex<Option<Runtime>>);

/// What was opened from the data directory.
struct Opened {
    dir: Arc<DataDir>,
    log: LogStorage,
    state_machine: StateMachine,
    history: History,
}

const THREADS: usize = 2;
/// A state that is not written back by then is made anew from the log.
const SHUTDOWN: Duration = Duration::from_secs(3);
/// How long others may take to say at the start whether this replica is still a member.
const ROLL_CALL: Duration = Duration::from_millis(500);
/// How often those that do not lead ask again.
const ROLL_CALL_EVERY: std::ops::Range<u64> = 4000..7000;

impl Replica {
    pub async fn open(config: Config) -> Result<Arc<Replica>, OpenError> {
        config.check()?;
        let alarm = Alarm::new(config.on_fatal.clone());
        let (paths, ringing) = (config.clone(), alarm.clone());
        let opened = tokio::task::spawn_blocking(move || open_files(&paths, &ringing)).await;
        let opened = opened.map_err(|fault| OpenError::Start(fault.to_string()))?;
        if let Err(OpenError::Store(error @ store::Error::Dismissed { .. })) = &opened {
            alarm.raise(Fatal { exit_code: Fatal::IDENTITY, message: error.to_string() });
        }
        let opened = opened?;
        let runtime = OwnRuntime::start()?;
        let handle = runtime.handle();
        let started = handle.spawn(start(config, opened, alarm, runtime)).await;
        started.map_err(|fault| OpenError::Start(fault.to_string()))?
    }

    pub fn peer_service(&self) -> PeerService {
        PeerService {
            identity: self.identity.clone(),
            dir: self.dir.clone(),
            log: self.log.clone(),
            state_machine: self.state_machine.clone(),
            core: self.core.clone(),
            dismissal: self.dismissal.clone(),
            failure_detector: FailureDetector::new(self.id, self.core.clone()),
        }
    }

    /// Runs beside the core, until the replica is closed.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.handle().spawn(task);
    }

    pub fn dismiss(&self, verdict: &Verdict) {
        self.dismissal.carry_out(verdict);
    }

    pub async fn shutdown(&self) -> anyhow::Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let was_fatal = self.alarm.silence();
        let closed = tokio::time::timeout(SHUTDOWN, self.close()).await;
        let closed = closed.context("the replica did not end in time").flatten();
        // The lock is let go of in any case: who waits for it is a successor.
        self.dir.close(closed.is_ok() && !was_fatal)?;
        self.runtime.stop();
        // What was fatal was told; that it then does not close in order is no news.
        if was_fatal { Ok(()) } else { closed }
    }

    async fn close(&self) -> anyhow::Result<()> {
        self.core.shutdown().await.context("the replication core did not end in order")?;
        let log = self.log.clone();
        tokio::task::spawn_blocking(move || log.close()).await?;
        self.state_machine.close().await.context("the state was not closed in order")
    }

    pub fn status(
        &self,
        metrics: &Metrics,
        reachable: impl Fn(&Metrics, NodeId) -> bool,
    ) -> Status {
        let leads = self.leadership.borrow().is_me;
        let stored = self.shared.stored().clone();
        let voters = voters(metrics);
        let last = metrics.last_log_index;
        let nodes = metrics.membership_config.membership();
        let members = nodes.nodes().map(|(id, node)| {
            let matched = if *id == self.id { last } else { matched(metrics, *id) };
            let matched = matched.filter(|_| leads);
            Member {
                id: *id,
                address: node.addr.clone(),
                voter: voters.contains(id),
                reachable: leads.then(|| reachable(metrics, *id)),
                matched,
                lag: matched.map(|matched| last.unwrap_or(0).saturating_sub(matched)),
            }
        });
        Status {
            id: self.id,
            cluster_id: self.dir.cluster_id().unwrap_or_default(),
            role: metrics.state.into(),
            term: metrics.current_term,
            leader: metrics.current_leader,
            last_log: last,
            applied: stored.applied.map(|applied| applied.index),
            snapshot: metrics.snapshot.map(|snapshot| snapshot.index),
            purged: metrics.purged.map(|purged| purged.index),
            state_hash: blake3::Hash::from_bytes(stored.hash).to_hex().to_string(),
            members: members.collect(),
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.alarm.silence();
    }
}

impl OwnRuntime {
    fn start() -> Result<Self, OpenError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("raft")
            .enable_all()
            .build()
            .map_err(|error| OpenError::Start(error.to_string()))?;
        Ok(OwnRuntime(Mutex::new(Some(runtime))))
    }

    fn handle(&self) -> Handle {
        let runtime = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.as_ref().expect("stopped only with the replica").handle().clone()
    }

    /// Without waiting: it may be called from a task.
    fn stop(&self) {
        if let Some(runtime) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        self.stop();
    }
}

fn open_files(config: &Config, alarm: &Alarm) -> Result<Opened, OpenError> {
    let dir = Arc::new(DataDir::open(&config.data_dir, config.node_id)?);
    let ringing = alarm.clone();
    let failed = move |error: &crate::store::Error| {
        ringing.raise(Fatal { exit_code: Fatal::STORAGE, message: error.to_string() });
    };
    let log = LogStorage::open(&dir.log(), Arc::new(failed))?;
    let ringing = alarm.clone();
    let (state_machine, store) =
        StateMachine::open(dir.clone(), Arc::new(move |fatal| ringing.raise(fatal)))?;
    Ok(Opened { dir, log, state_machine, history: History { store } })
}

async fn start(
    config: Config,
    opened: Opened,
    alarm: Alarm,
    runtime: OwnRuntime,
) -> Result<Arc<Replica>, OpenError> {
    let Opened { dir, log, state_machine, history } = opened;
    let identity = Identity { id: config.node_id, token: config.token.clone() };
    let dismissal = Dismissal { id: config.node_id, dir: dir.clone(), alarm: alarm.clone() };
    let book = AddressBook::default();
    let network = Network::new(
        identity.clone(),
        dir.clone(),
        config.election_min,
        book.clone(),
        dismissal.clone(),
    );
    let was_empty = log.is_empty();
    if let (Some(own), false) = (dir.cluster_id(), was_empty) {
        // Before it takes part: two that were left behind would elect each other otherwise.
        let others = known(config.node_id, &config.peers, state_machine.shared());
        if let Some(verdict) = ask_around(&network, &own, &others, ROLL_CALL).await {
            dismissal.carry_out(&verdict);
            dir.close(false)?;
            return Err(OpenError::Start(dismissal.describe(&verdict)));
        }
    }
    let started = Core::new(
        config.node_id,
        Arc::new(core_config(&config)?),
        network.clone(),
        log.clone(),
        state_machine.clone(),
    );
    let core = started.await.map_err(|error| OpenError::Start(error.to_string()))?;
    let (publish, leadership) = watch::channel(Leadership::default());
    tokio::spawn(leadership::follow(core.clone(), config.node_id, publish, book));
    if was_empty {
        let formation = Formation {
            id: config.node_id,
            peers: config.peers.clone(),
            dir: dir.clone(),
            network: network.clone(),
            core: core.clone(),
            fatal: {
                let alarm = alarm.clone();
                Arc::new(move |fatal| alarm.raise(fatal))
            },
        };
        tokio::spawn(formation.run());
    }
    let watched = (core.clone(), Handle::current(), config.stuck_after, alarm.clone());
    thread::Builder::new()
        .name(String::from("watchdog"))
        .spawn(move || watchdog::watch(watched.0, watched.1, watched.2, watched.3))
        .map_err(|error| OpenError::Start(error.to_string()))?;
    let replica = Arc::new(Replica {
        id: config.node_id,
        proposer: Proposer::start(core.clone(), config.clock, config.patience),
        core,
        dir,
        network,
        shared: state_machine.shared().clone(),
        history,
        leadership,
        patience: config.patience,
        election_max: config.election_max,
        changing: tokio::sync::Mutex::new(()),
        peers: config.peers,
        dismissal,
        identity,
        log,
        state_machine,
        alarm,
        closed: AtomicBool::new(false),
        runtime,
    });
    tokio::spawn(call_the_roll(Arc::downgrade(&replica)));
    Ok(replica)
}

fn core_config(config: &Config) -> Result<openraft::Config, OpenError> {
    let millis = |length: Duration| length.as_millis() as u64;
    let five_or_more = config.peers.len() >= 5;
    openraft::Config {
        cluster_name: String::from("drigs"),
        heartbeat_interval: millis(config.heartbeat),
        election_timeout_min: millis(config.election_min),
        election_timeout_max: millis(config.election_max),
        enable_pre_vote: Some(true),
        // A leader that was away asks to be elected again, like everyone.
        enable_leader_restore: Some(false),
        install_snapshot_timeout: 3_600_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.checkpoint_every),
        max_in_snapshot_log_to_keep: config.keep_entries,
        replication_lag_threshold: config.checkpoint_every + config.keep_entries,
        purge_batch_size: 256,
        max_payload_entries: 64,
        backoff: String::from("50ms 100ms ...500ms"),
        // With five voters a partial partition could otherwise keep a leader that nobody hears.
        quorum_loss_probe_interval: five_or_more.then(|| 2 * millis(config.election_max)),
        ..openraft::Config::default()
    }
    .validate()
    .map_err(|error| OpenError::Config(error.to_string()))
}

/// Where all others are, by the members' own list and by the hint of the flags.
fn known(
    own: NodeId,
    peers: &BTreeMap<NodeId, String>,
    shared: &Shared,
) -> BTreeMap<NodeId, String> {
    let mut known = peers.clone();
    known.extend(others(own, shared.stored().membership.membership()));
    known.remove(&own);
    known
}

pub(super) fn others(own: NodeId, members: &Membership) -> BTreeMap<NodeId, String> {
    let others = members.nodes().filter(|(id, _)| **id != own);
    others.map(|(id, node)| (*id, node.addr.clone())).collect()
}

/// A follower that nobody sends anything to need not be one any more.
async fn call_the_roll(replica: Weak<Replica>) {
    loop {
        let pause = rand::rng().random_range(ROLL_CALL_EVERY);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let Some(replica) = replica.upgrade() else { return };
        let Some(own) = replica.dir.cluster_id() else { continue };
        if replica.leadership.borrow().is_me {
            continue;
        }
        let others = known(replica.id, &replica.peers, &replica.shared);
        if let Some(verdict) = ask_around(&replica.network, &own, &others, ROLL_CALL).await {
            return replica.dismissal.carry_out(&verdict);
        }
    }
}
