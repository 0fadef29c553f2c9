//! Workers' sessions. A worker talks to the leader only; every other controller sends it on.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tracing::{Instrument, info, info_span, warn};
use uuid::Uuid;

use crate::controller::{leader::Term, logs::LogBroker, reconcile};
use crate::model::{
    Epoch, OrderStamp, Orders, WorkerId,
    lineage::{Kinship, kinship},
};
use crate::raft::Raft;
use crate::rpc::{
    api::Answer,
    server::{self, Inbound, LogUpload, Outbound},
    session::{ControllerMessage, Hello, Report, Welcome, WorkerMessage},
};
use crate::state::{Command, Event, Rejection};

/// All sessions of this controller.
#[derive(Debug)]
pub struct Sessions {
    raft: Raft,
    terms: watch::Receiver<Option<Arc<Term>>>,
    live: Mutex<BTreeMap<WorkerId, Live>>,
    pub logs: LogBroker,
}

/// A worker that is connected here now.
#[derive(Clone, Debug)]
pub struct Live {
    incarnation: Uuid,
    pub peer: String,
    pub heard: Instant,
    /// The worker's wall clock minus ours, in milliseconds.
    pub clock_ahead: i64,
    outbound: mpsc::Sender<ControllerMessage>,
}

/// Messages to one worker that may wait to be written.
const OUTBOUND: usize = 64;
/// The first message must come soon; nobody may hold a connection for nothing.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// A clock this far off is worth a word to the operator.
const CLOCK_TOLERANCE_MS: u64 = 60_000;

impl Sessions {
    pub fn new(raft: Raft, terms: watch::Receiver<Option<Arc<Term>>>) -> Arc<Self> {
        Arc::new(Sessions { raft, terms, live: Mutex::default(), logs: LogBroker::default() })
    }

    pub fn live(&self, worker: WorkerId) -> Option<Live> {
        self.lives().get(&worker).cloned()
    }

    /// Asks `worker` to dial a log stream.
    pub fn send(&self, worker: WorkerId, message: ControllerMessage) -> bool {
        self.live(worker).is_some_and(|live| live.outbound.try_send(message).is_ok())
    }

    fn lives(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(
        self: Arc<Self>,
        mut inbound: Inbound,
        peer: String,
        outbound: mpsc::Sender<ControllerMessage>,
    ) {
        let Some(term) = self.terms.borrow().clone() else {
            let leader = self.raft.leadership().borrow().leader_address.clone();
            let _ = outbound.send(ControllerMessage::Redirect { leader }).await;
            return;
        };
        let first = tokio::time::timeout(HELLO_DEADLINE, inbound.next()).await;
        let Ok(Some(Ok(WorkerMessage::Hello(hello)))) = first else {
            let reason = String::from("a session begins with a hello");
            let _ = outbound.send(ControllerMessage::Refused { reason, retry: false }).await;
            return;
        };
        let welcome = match self.admit(&term, &hello).await {
            Ok(welcome) => welcome,
            Err(refusal) => {
                let _ = outbound.send(refusal).await;
                return;
            }
        };
        let worker = welcome.worker;
        let session = Session {
            worker,
            epoch: welcome.epoch,
            incarnation: hello.incarnation,
            hub: self.clone(),
            term,
            outbound: outbound.clone(),
        };
        let live = Live {
            incarnation: hello.incarnation,
            peer: peer.clone(),
            heard: Instant::now(),
            clock_ahead: clock_ahead(&hello),
            outbound: outbound.clone(),
        };
        if live.clock_ahead.unsigned_abs() > CLOCK_TOLERANCE_MS {
            warn!(%worker, ahead_ms = live.clock_ahead, "a worker's wall clock is far off; nothing depends on it but its log times");
        }
        self.lives().insert(worker, live);
        if outbound.send(ControllerMessage::Welcome(welcome)).await.is_ok() {
            let span = info_span!("session", %worker, name = %hello.registration.name, peer);
            session.run(inbound).instrument(span).await;
        }
        let mut lives = self.lives();
        if lives.get(&worker).is_some_and(|live| {
            live.incarnation == hello.incarnation && live.outbound.same_channel(&outbound)
        }) {
            lives.remove(&worker);
        }
    }

    /// Registers the worker, or says why not.
    async fn admit(&self, term: &Term, hello: &Hello) -> Result<Welcome, ControllerMessage> {
        let refuse = |reason: String, retry: bool| ControllerMessage::Refused { reason, retry };
        let cluster_id = self.raft.cluster_id();
        if let Some(theirs) = &hello.cluster_id {
            self.compare_clusters(&cluster_id, theirs)?;
        }
        if let Some(other) = self.other_agent(hello) {
            return Err(refuse(
                format!(
                    "a worker with this identity ({}) is already connected from {other}; if this data directory is a copy, delete its worker.json",
                    hello.registration.uuid
                ),
                true,
            ));
        }
        let mut commands = self.owed(hello);
        commands.push(Command::RegisterWorker(hello.registration.clone()));
        let outcomes = term.propose(commands).await.map_err(|error| {
            refuse(format!("the registration was not committed: {error}"), true)
        })?;
        let registered = outcomes.into_iter().next_back().expect("one outcome per command");
        let events = registered.map_err(|rejection| {
            let retry = matches!(rejection, Rejection::NameTaken(_) | Rejection::GpuClaimed(_));
            refuse(rejection.to_string(), retry)
        })?;
        let worker = events
            .iter()
            .find_map(|event| match event {
                Event::WorkerRegistered(worker) => Some(*worker),
                _ => None,
            })
            .expect("a registration registers");
        // It was heard just now; without this its old silence would count until its first report.
        term.renew(worker);
        let lost_after =
            self.raft.read(|state| state.workers.get(&worker).map(|row| row.default_lost_after()));
        let lease = term.leases().lease();
        Ok(Welcome {
            worker,
            epoch: hello.registration.epoch,
            cluster_id,
            term: term.number,
            controllers: self.raft.member_addresses(),
            lease: lease.worker_part(),
            lost_after: lost_after.unwrap_or(crate::model::Worker::STANDING_LOST_AFTER),
        })
    }

    /// Whether a worker of cluster `theirs` may work for this one.
    fn compare_clusters(&self, own: &str, theirs: &str) -> Result<(), ControllerMessage> {
        let refuse = |reason: String| ControllerMessage::Refused { reason, retry: false };
        match kinship(own, theirs) {
            Kinship::Same | Kinship::Older => Ok(()),
            Kinship::Newer => {
                // The worker has seen the cluster as it was recovered, without this controller.
                self.raft.left_behind(theirs);
                Err(ControllerMessage::Redirect { leader: None })
            }
            Kinship::Rival => Err(refuse(format!(
                "cluster {own} was recovered twice, and the worker belongs to the other one, {theirs}"
            ))),
            Kinship::Stranger if self.raft.adopts(theirs) => Ok(()),
            Kinship::Stranger => Err(refuse(format!(
                "this is cluster {own}; the worker's data directory belongs to cluster {theirs}. \
                 If that one is gone for good, either restore it with --adopt-workers, or end what it runs here with `drigs-worker stop-all` and start the worker with an empty directory"
            ))),
        }
    }

    /// Ends of the worker's earlier life; only for a worker that is known.
    fn owed(&self, hello: &Hello) -> Vec<Command> {
        self.raft.read(|state| {
            let known = state.workers.iter().find(|(_, row)| row.uuid == hello.registration.uuid);
            known.map_or_else(Vec::new, |(id, _)| reconcile::commands_for(state, *id, &hello.owed))
        })
    }

    /// Where another live agent with the same identity is connected from.
    fn other_agent(&self, hello: &Hello) -> Option<String> {
        let uuid = hello.registration.uuid;
        let known = self.raft.read(|state| {
            state.workers.iter().find(|(_, row)| row.uuid == uuid).map(|(id, _)| *id)
        })?;
        let live = self.live(known)?;
        (live.incarnation != hello.incarnation && !live.outbound.is_closed()).then_some(live.peer)
    }
}

/// What the gRPC server calls.
#[derive(Clone, Debug)]
pub struct Hub(pub Arc<Sessions>);

impl server::Hub for Hub {
    fn session(&self, inbound: Inbound, peer: Option<SocketAddr>) -> Outbound {
        let (sender, receiver) = mpsc::channel(OUTBOUND);
        let peer = peer.map_or_else(|| String::from("unknown"), |peer| peer.to_string());
        // Ends by itself: with its stream, with the term, or when nobody reads its answers.
        tokio::spawn(self.0.clone().serve(inbound, peer, sender));
        tokio_stream::wrappers::ReceiverStream::new(receiver).boxed()
    }

    fn log_upload(&self, stream: u64, chunks: LogUpload) -> Answer<()> {
        let sessions = self.0.clone();
        Box::pin(async move { sessions.logs.relay(stream, chunks).await })
    }
}

/// One worker's connection under one leadership.
struct Session {
    worker: WorkerId,
    epoch: Epoch,
    incarnation: Uuid,
    hub: Arc<Sessions>,
    term: Arc<Term>,
    outbound: mpsc::Sender<ControllerMessage>,
}

impl Session {
    async fn run(self, mut inbound: Inbound) {
        info!("worker connected");
        let mut applied = self.hub.raft.applied();
        let mut sent = Sent::default();
        loop {
            tokio::select! {
                biased;
                () = self.term.ended.cancelled() => {
                    let leader = self.hub.raft.leadership().borrow().leader_address.clone();
                    let _ = self.outbound.try_send(ControllerMessage::Redirect { leader });
                    break;
                }
                message = inbound.next() => match message {
                    Some(Ok(WorkerMessage::Report(report))) => {
                        if !self.take_report(&report, &mut sent).await {
                            break;
                        }
                    }
                    Some(Ok(WorkerMessage::Hello(_))) => break,
                    Some(Err(error)) => {
                        info!(%error, "worker disconnected");
                        return;
                    }
                    None => break,
                },
                changed = applied.changed() => {
                    if changed.is_err() || !self.send_changes(&mut sent).await {
                        break;
                    }
                }
                () = self.outbound.closed() => break,
            }
        }
        info!("session over");
    }

    /// Renews the lease, answers with the orders as they stand, and gets what is new into the log.
    async fn take_report(&self, report: &Report, sent: &mut Sent) -> bool {
        if !self.term.renew(self.worker) {
            // Without a quorum this leader may not know what others decided: silence is the honest answer.
            return true;
        }
        self.touch();
        sent.answers = report.number;
        let raft = &self.hub.raft;
        let mut commands = raft.read(|state| {
            let mut commands = reconcile::commands_for(state, self.worker, &report.attempts);
            commands.extend(reconcile::settlement(state, self.worker, report.settled));
            commands
        });
        if let Some(gpus) = report.gpus.clone() {
            commands.push(Command::UpdateGpus { worker: self.worker, epoch: self.epoch, gpus });
        }
        if !commands.is_empty()
            && let Err(error) = self.term.propose(commands).await
        {
            warn!(%error, "a worker's report was not committed; it will come again");
            return true;
        }
        self.send_orders(sent).await
    }

    async fn send_changes(&self, sent: &mut Sent) -> bool {
        let version = self.hub.raft.read(|state| state.orders_version(self.worker));
        if sent.version == Some(version) {
            return true;
        }
        self.send_orders(sent).await
    }

    async fn send_orders(&self, sent: &mut Sent) -> bool {
        if !self.term.may_act() {
            return true;
        }
        let index = *self.hub.raft.applied().borrow();
        let lease = self.term.leases().lease();
        let read = self.hub.raft.read(|state| {
            let version = state.orders_version(self.worker);
            let is_known = state.workers.contains(&self.worker);
            is_known.then(|| (reconcile::orders(state, self.worker, lease), version))
        });
        // It was forgotten. Empty orders would keep it idle for ever; a new session registers it anew.
        let Some((orders, version)) = read else { return false };
        let Some(orders) = orders else { return true };
        sent.version = Some(version);
        let stamp = OrderStamp { term: self.term.number, index };
        let orders = Orders { stamp, orders, lease: lease.worker_part() };
        let message = ControllerMessage::Orders { answers: sent.answers, orders };
        self.outbound.send(message).await.is_ok()
    }

    fn touch(&self) {
        if let Some(live) = self.hub.lives().get_mut(&self.worker)
            && live.incarnation == self.incarnation
        {
            live.heard = Instant::now();
        }
    }
}

/// What the worker was told last.
#[derive(Default)]
struct Sent {
    answers: u64,
    version: Option<u64>,
}

fn clock_ahead(hello: &Hello) -> i64 {
    let ours = jiff::Timestamp::now().as_millisecond();
    i64::try_from(hello.clock).unwrap_or(i64::MAX).saturating_sub(ours)
}
