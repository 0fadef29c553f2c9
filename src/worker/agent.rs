//! The agent: between what the leader orders and what the supervisor runs. It may die at any moment; all that it must
//! not forget is on the disk.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use anyhow::Context as _;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::model::{
    AttemptId, AttemptReport, Backend, EndReason, Ending, Epoch, LostAfter, Millis, Order,
    OrderStamp, Orders, Phase, StopReason,
    lineage::{Kinship, kinship},
};
use crate::rpc::{
    hub_client::Session,
    session::{ControllerMessage, Hello, RegisterWorker, Report, Welcome, WorkerMessage},
};
use crate::worker::{
    attempt_dir::{self, Found, FoundState, Held, Intent, Retention},
    clock::{self, BootTime},
    config::Config,
    contact::Contact,
    driver::{self, Limits, Work},
    identity::Identity,
    link::{Joined, Link, Refusal, Way},
    logs,
    reconcile::{self, Action, Capacity, Local, StopCause},
    supervisor::{Event, Events, Supervisor},
};

/// Everything the agent knows. What it runs is `attempts`; what it should run is `orders`.
pub struct Agent {
    config: Config,
    identity: Identity,
    incarnation: Uuid,
    supervisor: Supervisor,
    contact: Contact,
    attempts: BTreeMap<AttemptId, Entry>,
    orders: Vec<Order>,
    /// Whether they came in this session.
    ordered: bool,
    /// How long a stop for lost contact may take: the controllers wait only so much longer.
    stop_part: Millis,
    /// Something is not yet reported.
    dirty: bool,
}

/// One attempt on this machine.
#[derive(Clone, Debug)]
struct Entry {
    held: Held,
    running: bool,
    stopping: bool,
    ending: Option<Ending>,
}

/// Why a session was over, and where to go on.
enum Over {
    Elsewhere(Option<String>),
    Refused { reason: String, retry: bool },
    Broken(String),
    Shutdown,
}

/// The controllers may have answered fewer reports than these; then the next one waits and carries more.
const MOST_UNANSWERED: usize = 2;
/// How long reports wait for each other while there is other work to do.
const COALESCED: Duration = Duration::from_millis(40);
/// Reports per worker's part of the lease, when nothing changes.
const REPORTS_PER_LEASE: u32 = 8;
/// A session that answers nothing for this part of a lease is dead.
const PATIENCE_PER_LEASE: u32 = 2;
/// A refusal that time may heal is taken for final after this.
const REFUSALS_DEADLINE: Duration = Duration::from_secs(45);
/// How often old output is looked through.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Runs a worker until `shutdown`. What it runs goes on without it.
///
/// # Errors
/// When it cannot start, or the controllers refuse it for good.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (supervisor, mut events, found) = Supervisor::open(&config.data_dir).await?;
    let boot_id = clock::boot_id().context("cannot tell this boot of the machine from others")?;
    let identity = Identity::load(supervisor.dir().root(), &boot_id)?;
    let contact =
        Contact::open(supervisor.dir(), &boot_id).context("cannot write the contact file")?;
    info!(name = %config.name, uuid = %identity.uuid, epoch = %identity.epoch, found = found.len(), "worker starts");
    let mut agent = Agent {
        attempts: found.iter().map(|found| (found.attempt, adopt(found, identity.epoch))).collect(),
        config,
        identity,
        incarnation: Uuid::new_v4(),
        supervisor,
        contact,
        orders: Vec::new(),
        ordered: false,
        stop_part: Millis(0),
        dirty: true,
    };
    let result = agent.serve(&mut events, &shutdown).await;
    agent.supervisor.close().await;
    result
}

/// What a restarted agent makes of an attempt that it finds. One whose record is not whole is of this life of the worker:
/// the controllers ended all others when this life began. Under any other epoch they would not hear of its end.
fn adopt(found: &Found, epoch: Epoch) -> Entry {
    let held = found.launch.as_ref().map(|launch| launch.held.clone());
    let held = held.unwrap_or_else(|| Held { epoch, ..Held::default() });
    let ending = match &found.state {
        FoundState::Ended(exit) => Some(exit.to_ending()),
        FoundState::NeverStarted => Some(Ending {
            message: Some(String::from("the worker restarted before it started")),
            ..Ending::new(EndReason::NodeLost, clock::wall_clock())
        }),
        FoundState::Running { .. } | FoundState::SupervisorLost { .. } => None,
    };
    let running = matches!(found.state, FoundState::Running { main: Some(_), .. });
    Entry { held, running, stopping: false, ending }
}

impl From<Refusal> for Over {
    fn from(refusal: Refusal) -> Over {
        match refusal {
            Refusal::Elsewhere(leader) => Over::Elsewhere(leader),
            Refusal::Refused { reason, retry } => Over::Refused { reason, retry },
            Refusal::Broken(why) => Over::Broken(why),
        }
    }
}

impl Entry {
    fn local(&self) -> Local {
        match self.ending {
            Some(_) => Local::Ended,
            None => Local::Live {
                cpus: self.held.cpus,
                memory: self.held.memory,
                stopping: self.stopping,
            },
        }
    }
}

fn end_reason(reason: StopReason) -> EndReason {
    match reason {
        StopReason::User => EndReason::User,
        StopReason::Preempted | StopReason::Requeue => EndReason::Preempted,
        StopReason::GangFailed => EndReason::GangFailed,
    }
}

impl Agent {
    async fn serve(
        &mut self,
        events: &mut Events,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut way = Way::new(self.config.join.clone());
        let mut refused_since: Option<Instant> = None;
        let mut leaderless = false;
        loop {
            let link = Link::new(way.next(), self.config.token.clone(), self.hello());
            let dialled = tokio::select! {
                dialled = self.meanwhile(events, link.dial()) => dialled,
                () = shutdown.cancelled() => return Ok(()),
            };
            let over = match dialled {
                Ok((session, welcome)) => {
                    refused_since = None;
                    leaderless = false;
                    way.arrived(&welcome.controllers);
                    self.attend(events, session, welcome, shutdown).await?
                }
                Err(over) => over.into(),
            };
            match over {
                Over::Shutdown => return Ok(()),
                Over::Elsewhere(leader) => {
                    // Said once: while a cluster is founded, or elects, every controller says so again and again.
                    if leader.is_none() && !std::mem::replace(&mut leaderless, true) {
                        info!("the controllers have no leader yet; trying again");
                    }
                    way.follow(leader);
                }
                Over::Broken(why) => {
                    warn!(why, "no session with a controller");
                    way.failed();
                }
                Over::Refused { reason, retry } => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if !retry || since.elapsed() > REFUSALS_DEADLINE {
                        anyhow::bail!("the controllers refuse this worker: {reason}");
                    }
                    warn!(reason, "refused for now");
                    way.failed();
                }
            }
            let pause = tokio::time::sleep(way.pause());
            tokio::select! {
                () = self.meanwhile(events, pause) => {}
                () = shutdown.cancelled() => return Ok(()),
            }
        }
    }

    /// Goes on noticing what happens here while `work` is under way.
    async fn meanwhile<T>(&mut self, events: &mut Events, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                Some(event) = events.next() => self.take_event(event),
            }
        }
    }

    fn hello(&self) -> Hello {
        let config = &self.config;
        let identity = &self.identity;
        Hello {
            registration: RegisterWorker {
                uuid: identity.uuid,
                name: config.name.clone(),
                epoch: identity.epoch,
                address: crate::worker::machine::host_name(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                cpus: config.cpus,
                memory: config.memory,
                gpus: config.gpus.discover(identity.uuid),
                labels: config.labels.clone(),
                backends: [Backend::Native].into(),
                ephemeral: config.ephemeral,
            },
            incarnation: self.incarnation,
            cluster_id: identity.cluster_id.clone(),
            owed: self.reports().filter(|report| report.epoch < identity.epoch).collect(),
            clock: clock::wall_clock().0,
        }
    }

    /// One session with a leader.
    async fn attend(
        &mut self,
        events: &mut Events,
        session: Joined,
        welcome: Welcome,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Over> {
        let Session { outbound, mut inbound } = session.stream;
        let hub = session.hub;
        info!(worker = %welcome.worker, cluster = welcome.cluster_id, term = welcome.term, "joined");
        if let Some(why) = self.join(&welcome)? {
            return Ok(Over::Broken(why));
        }
        self.ordered = false;
        // The worker's part is half of a lease, the stop's a quarter.
        self.stop_part = Millis(welcome.lease.0 / 2);
        let lease = welcome.lease.to_duration();
        let mut tick = tokio::time::interval(lease / REPORTS_PER_LEASE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut prune = tokio::time::interval(PRUNE_EVERY);
        let mut unanswered: VecDeque<(u64, BootTime)> = VecDeque::new();
        let mut number = 0;
        let mut heard = Instant::now();
        let mut reported = Instant::now();
        self.dirty = true;
        loop {
            let may_report = self.dirty && unanswered.len() < MOST_UNANSWERED;
            let next_report = reported + self.patience();
            if may_report && Instant::now() >= next_report {
                number += 1;
                reported = Instant::now();
                unanswered.push_back((number, BootTime::now()));
                let report = Report {
                    number,
                    attempts: self.reports().collect(),
                    gpus: None,
                    settled: self.is_settled(),
                };
                self.dirty = false;
                if outbound.send(WorkerMessage::Report(report)).await.is_err() {
                    return Ok(Over::Broken(String::from("the controller is gone")));
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return Ok(Over::Shutdown),
                message = inbound.next() => {
                    heard = Instant::now();
                    match message {
                        Some(Ok(ControllerMessage::Orders { answers, orders })) => {
                            self.take_orders(answers, orders, &mut unanswered).await?;
                        }
                        Some(Ok(ControllerMessage::OpenLog { stream, request })) => {
                            logs::send(self.supervisor.dir().clone(), hub.clone(), stream, request);
                        }
                        Some(Ok(ControllerMessage::Redirect { leader })) => return Ok(Over::Elsewhere(leader)),
                        Some(Ok(ControllerMessage::Refused { reason, retry })) => return Ok(Over::Refused { reason, retry }),
                        Some(Ok(ControllerMessage::Welcome(_))) => {}
                        Some(Err(error)) => return Ok(Over::Broken(error.to_string())),
                        None => return Ok(Over::Broken(String::from("the controller ended the session"))),
                    }
                }
                Some(event) = events.next() => {
                    self.take_event(event);
                    self.take_turns(events).await;
                }
                _ = tick.tick() => {
                    if heard.elapsed() > lease / PATIENCE_PER_LEASE {
                        return Ok(Over::Broken(String::from("the controller fell silent")));
                    }
                    self.dirty = true;
                }
                () = tokio::time::sleep_until(next_report), if may_report => {}
                _ = prune.tick() => self.prune(),
            }
        }
    }

    /// Notes which cluster this worker belongs to; or says why it may not be this one.
    fn join(&mut self, welcome: &Welcome) -> anyhow::Result<Option<String>> {
        let theirs = &welcome.cluster_id;
        match self.identity.cluster_id.as_deref().map(|own| kinship(own, theirs)) {
            Some(Kinship::Same) => return Ok(None),
            None | Some(Kinship::Newer) => {}
            Some(Kinship::Older | Kinship::Rival) => {
                return Ok(Some(format!(
                    "{theirs} is not the generation of its cluster that this worker belongs to"
                )));
            }
            // The cluster of before is gone, by an operator's word; this one's terms are its own.
            Some(Kinship::Stranger) => self.identity.stamp = OrderStamp::default(),
        }
        if self.identity.cluster_id.is_some() {
            warn!(
                cluster = theirs,
                "from now on this worker belongs to this cluster, or generation"
            );
        }
        // Those were of another history.
        self.orders.clear();
        self.identity.cluster_id = Some(theirs.clone());
        self.identity.save(self.supervisor.dir().root())?;
        Ok(None)
    }

    async fn take_orders(
        &mut self,
        answers: u64,
        orders: Orders,
        unanswered: &mut VecDeque<(u64, BootTime)>,
    ) -> anyhow::Result<()> {
        if orders.stamp < self.identity.stamp {
            // A leader that was deposed does not know it yet. What it says is old, and so is its contact.
            return Ok(());
        }
        self.note_stamp(orders.stamp)?;
        while let Some((number, sent)) = unanswered.front().copied() {
            if number > answers {
                break;
            }
            unanswered.pop_front();
            self.contact.record(sent).context("cannot write the contact file")?;
        }
        self.orders = orders.orders;
        // Whoever waits for this worker hears of it soon.
        self.dirty |= !self.ordered;
        self.ordered = true;
        self.act().await;
        Ok(())
    }

    /// Remembers whom it obeyed; on disk only when the leader changes.
    fn note_stamp(&mut self, stamp: OrderStamp) -> anyhow::Result<()> {
        let changed = stamp.term != self.identity.stamp.term;
        self.identity.stamp = stamp;
        if changed {
            let kept = OrderStamp { term: stamp.term, index: 0 };
            let identity = Identity { stamp: kept, ..self.identity.clone() };
            identity.save(self.supervisor.dir().root())?;
        }
        Ok(())
    }

    /// Does what the orders ask beyond what is.
    async fn act(&mut self) {
        let local = self.attempts.iter().map(|(id, entry)| (*id, entry.local())).collect();
        let capacity = Capacity { cpus: self.config.cpus, memory: self.config.memory };
        let (mut launches, mut settled) = (Vec::new(), Vec::new());
        for action in reconcile::reconcile(&self.orders, &local, capacity) {
            match action {
                Action::Start(attempt) => launches.extend(self.prepare(attempt)),
                Action::Stop(attempt, cause) => self.stop(attempt, cause).await,
                Action::Decline(attempt, reason) => self.decline(attempt, reason),
                Action::Account(attempt) => self.account_for(attempt),
                Action::Forget(attempt) => settled.push(attempt),
            }
        }
        if !launches.is_empty()
            && let Err(error) = self.supervisor.start(launches).await
        {
            error!(%error, "the supervisor does not start attempts");
        }
        if !settled.is_empty() {
            self.forget(settled);
        }
    }

    /// How long a report may wait for others to share its way: nothing here depends on the answer as long as tasks wait
    /// for their turn, and a log entry costs the same for one end as for twenty.
    fn patience(&self) -> Duration {
        let waits = |order: &Order| order.prefetched && !self.attempts.contains_key(&order.attempt);
        if self.orders.iter().any(waits) { COALESCED } else { Duration::ZERO }
    }

    /// What ended may have made room for attempts that wait here for it.
    async fn take_turns(&mut self, events: &mut Events) {
        while let Some(Some(event)) = tokio::task::unconstrained(events.next()).now_or_never() {
            self.take_event(event);
        }
        if self.orders.iter().any(|order| !self.attempts.contains_key(&order.attempt)) {
            self.act().await;
        }
    }

    fn prepare(&mut self, attempt: AttemptId) -> Option<attempt_dir::Launch> {
        let order = self.orders.iter().find(|order| order.attempt == attempt)?;
        if self.is_late(order) {
            return None;
        }
        let launch = driver::native::launch(&self.work(order));
        let entry =
            Entry { held: launch.held.clone(), running: false, stopping: false, ending: None };
        self.attempts.insert(attempt, entry);
        Some(launch)
    }

    /// Whether it would have to end as soon as it began: the orders were long under way, or its turn came when no leader
    /// had been heard for as long as it may run on. It may run elsewhere by now.
    fn is_late(&self, order: &Order) -> bool {
        match order.lost_after {
            LostAfter::After(length) => BootTime::now().since(self.contact.last()) >= length,
            LostAfter::Keep => false,
        }
    }

    fn work(&self, order: &Order) -> Work {
        let spec = &order.spec;
        Work {
            attempt: order.attempt,
            epoch: order.slice.epoch,
            worker: self.config.name.to_string(),
            argv: spec.command.clone(),
            env: spec.env.clone(),
            working_dir: spec.working_dir.clone(),
            gpus: order.slice.gpus.iter().map(|grant| grant.gpu.to_string()).collect(),
            cpus: order.slice.cpus,
            memory: order.slice.memory,
            limits: Limits {
                time: spec.time_limit,
                lost_after: match order.lost_after {
                    LostAfter::After(length) => Some(length),
                    LostAfter::Keep => None,
                },
                stop_signal: spec.stop.signal,
                grace: spec.stop.grace,
                lost_grace: spec.stop.grace.min(self.stop_part),
                log: self.config.log_limit,
            },
            rank: None,
        }
    }

    async fn stop(&mut self, attempt: AttemptId, cause: StopCause) {
        let Some(entry) = self.attempts.get_mut(&attempt) else { return };
        entry.stopping = true;
        let (reason, by) = match cause {
            StopCause::Ordered(reason) => (end_reason(reason), "the controllers"),
            StopCause::NotOurs => (EndReason::NodeLost, "the worker: it was given up meanwhile"),
        };
        let order = self.orders.iter().find(|order| order.attempt == attempt);
        let grace = order.map_or(Millis(0), |order| order.spec.stop.grace);
        info!(%attempt, %reason, "stopping");
        let intent = Intent { reason, by: by.to_owned(), grace };
        if let Err(error) = self.supervisor.stop(attempt, intent).await {
            warn!(%attempt, %error, "it is asked to stop again with the next orders");
            if let Some(entry) = self.attempts.get_mut(&attempt) {
                entry.stopping = false;
            }
        }
    }

    fn decline(&mut self, attempt: AttemptId, reason: StopReason) {
        let Some(order) = self.orders.iter().find(|order| order.attempt == attempt) else { return };
        let held = Held { epoch: order.slice.epoch, ..Held::default() };
        let ending = Ending {
            message: Some(String::from("it was called off before it started")),
            ..Ending::new(end_reason(reason), clock::wall_clock())
        };
        let entry = Entry { held, running: false, stopping: false, ending: Some(ending) };
        self.attempts.insert(attempt, entry);
        self.dirty = true;
    }

    /// The controllers do not know how it ended; this machine may, as long as its output is kept.
    fn account_for(&mut self, attempt: AttemptId) {
        let Some(order) = self.orders.iter().find(|order| order.attempt == attempt) else { return };
        let exit = self.supervisor.dir().find(attempt).and_then(|dir| dir.exit());
        let ending = exit.map_or_else(
            || Ending {
                message: Some(String::from("its worker has no trace of it")),
                ..Ending::new(EndReason::NodeLost, clock::wall_clock())
            },
            |exit| exit.to_ending(),
        );
        let held = Held { epoch: order.slice.epoch, ..Held::default() };
        let entry = Entry { held, running: false, stopping: false, ending: Some(ending) };
        self.attempts.insert(attempt, entry);
        self.dirty = true;
    }

    /// Whether nothing lives here but what the orders of this session name.
    fn is_settled(&self) -> bool {
        let lives = self.attempts.iter().filter(|(_, entry)| entry.ending.is_none());
        let ordered = |attempt| self.orders.iter().any(|order| order.attempt == attempt);
        self.ordered && lives.into_iter().all(|(attempt, _)| ordered(*attempt))
    }

    /// Nothing waits for this: what is not put aside now is found, reported and settled once more by the next agent.
    fn forget(&mut self, settled: Vec<AttemptId>) {
        self.attempts.retain(|attempt, _| !settled.contains(attempt));
        let forget = self.supervisor.forget(settled);
        tokio::spawn(async move {
            if let Err(error) = forget.await {
                warn!(%error, "ended attempts cannot be put aside");
            }
        });
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Started { attempt, .. } => {
                if let Some(entry) = self.attempts.get_mut(&attempt) {
                    entry.running = true;
                }
            }
            Event::Ended { attempt, exit } => {
                if let Some(entry) = self.attempts.get_mut(&attempt) {
                    entry.ending = Some(exit.to_ending());
                }
            }
            Event::ShimLost { attempt } => warn!(%attempt, "its supervisor was killed"),
        }
        self.dirty = true;
    }

    fn prune(&self) {
        let dir = self.supervisor.dir().clone();
        // Old output may take a while to remove, and nothing waits for it.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = attempt_dir::prune(&dir, &Retention::default()) {
                warn!(%error, "old output cannot be removed");
            }
        });
    }

    fn reports(&self) -> impl Iterator<Item = AttemptReport> + '_ {
        self.attempts.iter().filter_map(|(attempt, entry)| {
            let phase = match &entry.ending {
                Some(ending) => Phase::Ended(ending.clone()),
                None if entry.running => Phase::Running,
                None => return None,
            };
            Some(AttemptReport { attempt: *attempt, epoch: entry.held.epoch, phase })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_attempt_without_a_whole_record_is_told_under_the_present_epoch() {
        let attempt = "12.0.1".parse().unwrap();
        let found = Found { attempt, launch: None, state: FoundState::NeverStarted };
        let entry = adopt(&found, Epoch(3));
        assert_eq!(entry.held.epoch, Epoch(3));
        assert_eq!(entry.ending.unwrap().reason, EndReason::NodeLost);
    }
}
