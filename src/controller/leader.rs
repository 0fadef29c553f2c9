//! The leader's loop: as long as this controller leads, it compares what is with what should be and proposes the
//! difference.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::controller::{
    clock::Clock,
    lease::{Lease, Leases},
    metrics::Metrics,
    reconcile::{self, Limits},
};
use crate::model::{Millis, WorkerId};
use crate::raft::{Fence, Raft};
use crate::state::{Command, Outcome};

/// One leadership of this controller, from its barrier to its end. Sessions hold it, and die with it.
#[derive(Debug)]
pub struct Term {
    pub number: u64,
    raft: Raft,
    fence: Fence,
    clock: Clock,
    leases: Mutex<Leases>,
    /// Cancelled when the leadership is over.
    pub ended: CancellationToken,
}

/// How often a leader looks for what time alone has changed.
const TICK: Duration = Duration::from_millis(100);
/// The part of one core that planning may take when nothing can be placed: one in this many.
const IDLE_SHARE: u32 = 5;
/// How long a leader that can not get its barrier through waits before it tries again.
const BARRIER_RETRY: Duration = Duration::from_millis(50);

impl Term {
    /// Proposes under this leadership: a later leader's state is never changed by it.
    ///
    /// # Errors
    /// When the leadership is over or the log does not take it; then nothing, or everything, of it is in the log.
    pub async fn propose(&self, commands: Vec<Command>) -> anyhow::Result<Vec<Outcome>> {
        Ok(self.raft.propose_fenced(self.fence.clone(), commands).await?)
    }

    /// Records that `worker` was heard, unless a quorum may have chosen another leader meanwhile.
    pub fn renew(&self, worker: WorkerId) -> bool {
        let now = self.clock.now();
        let mut leases = self.leases();
        self.hear_quorum(&mut leases);
        let may_act = leases.may_act(now);
        if may_act {
            leases.renew(worker, now);
        }
        may_act
    }

    /// Whether orders may be given now.
    pub fn may_act(&self) -> bool {
        let now = self.clock.now();
        let mut leases = self.leases();
        self.hear_quorum(&mut leases);
        !self.ended.is_cancelled() && leases.may_act(now)
    }

    pub fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear_quorum(&self, leases: &mut Leases) {
        if let Some(age) = self.raft.quorum_age() {
            let age = Millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            let now = self.clock.now();
            leases.quorum_acknowledged(crate::model::Timestamp(now.0.saturating_sub(age.0)));
        }
    }
}

/// Leads whenever this controller is the leader, until `shutdown`. What it leads by is published on `terms`.
pub async fn run(
    raft: Raft,
    lease: Lease,
    clock: Clock,
    metrics: Arc<Metrics>,
    terms: watch::Sender<Option<Arc<Term>>>,
    shutdown: CancellationToken,
) {
    let mut leadership = raft.leadership();
    loop {
        let now = leadership.borrow_and_update().clone();
        if let (true, Some(fence)) = (now.is_me, now.fence) {
            let ended = shutdown.child_token();
            lead(&raft, lease, clock.clone(), &metrics, fence, now.term, &terms, ended).await;
        }
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one call, and a struct of them would only be unpacked again"
)]
async fn lead(
    raft: &Raft,
    lease: Lease,
    clock: Clock,
    metrics: &Metrics,
    fence: Fence,
    number: u64,
    terms: &watch::Sender<Option<Arc<Term>>>,
    ended: CancellationToken,
) {
    let still_leads = |raft: &Raft| {
        let now = raft.leadership().borrow().clone();
        now.is_me && now.term == number
    };
    // The barrier: from here the state holds everything that earlier leaders committed.
    loop {
        let barrier = tokio::select! {
            barrier = raft.propose_fenced(fence.clone(), Vec::new()) => barrier,
            () = ended.cancelled() => return,
        };
        let Err(error) = barrier else { break };
        if !still_leads(raft) {
            return;
        }
        warn!(term = number, %error, "the new leader's barrier is not committed yet");
        tokio::time::sleep(BARRIER_RETRY).await;
    }
    info!(term = number, "leading");
    clock.catch_up(raft.read(|state| state.counters.now));
    let leases = Mutex::new(Leases::new(lease, clock.now()));
    let term =
        Arc::new(Term { number, raft: raft.clone(), fence, clock, leases, ended: ended.clone() });
    terms.send_replace(Some(term.clone()));
    decide_until_deposed(raft, &term, metrics).await;
    ended.cancel();
    terms.send_replace(None);
    info!(term = number, "no longer leading");
}

async fn decide_until_deposed(raft: &Raft, term: &Term, metrics: &Metrics) {
    let mut applied = raft.applied();
    let mut leadership = raft.leadership();
    let mut pause = Pause::default();
    loop {
        let started = Instant::now();
        // Without a quorum a decision may wait for long; a controller that ends does not wait with it.
        let idle = tokio::select! {
            decided = decide(raft, term, metrics) => !decided,
            () = term.ended.cancelled() => return,
        };
        pause.after(idle, started.elapsed());
        let next_look = Instant::now() + pause.length();
        tokio::select! {
            () = term.ended.cancelled() => return,
            changed = leadership.changed() => {
                let now = leadership.borrow_and_update().clone();
                if changed.is_err() || !now.is_me || now.term != term.number {
                    return;
                }
            }
            () = wait_for_work(&mut applied, next_look) => {}
        }
    }
}

/// Until something was applied (but not before `next_look`), or a tick went by.
async fn wait_for_work(applied: &mut watch::Receiver<u64>, next_look: Instant) {
    tokio::time::sleep_until(next_look).await;
    // An error means that the raft room has shut down; the caller hears of that elsewhere.
    let _ = tokio::time::timeout(TICK, applied.changed()).await;
}

/// One look and its consequence. Says whether anything was accepted.
async fn decide(raft: &Raft, term: &Term, metrics: &Metrics) -> bool {
    let commands = {
        let now = term.clock.now();
        let mut leases = term.leases();
        term.hear_quorum(&mut leases);
        let started = Instant::now();
        let commands =
            raft.read(|state| reconcile::reconcile(state, &leases, now, Limits::default()));
        metrics.scheduling_latency.observe(started.elapsed().as_secs_f64());
        commands
    };
    if commands.is_empty() {
        return false;
    }
    match term.propose(commands).await {
        Ok(outcomes) => outcomes.iter().any(Result::is_ok),
        Err(error) => {
            warn!(term = term.number, %error, "the leader's decisions were not committed");
            false
        }
    }
}

/// Keeps a loop that finds nothing to do from taking a core for it.
#[derive(Default)]
struct Pause(Duration);

impl Pause {
    fn after(&mut self, idle: bool, took: Duration) {
        self.0 = if idle { (took * IDLE_SHARE).min(TICK) } else { Duration::ZERO };
    }

    fn length(&self) -> Duration {
        self.0
    }
}
