//! The controllers: one committed log, replicas that follow it, and whoever leads. Raft itself is abstracted to what it
//! promises: entries are committed in the order in which a leader proposed them, what a deposed leader had under way is
//! kept up to some point and lost from there, and at most one leader commits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use drigs::controller::lease::Leases;
use drigs::controller::reconcile::{self, Limits};
use drigs::model::{AttemptId, LostAfter, Millis, Timestamp, WorkerId};
use drigs::scheduler::{self, View};
use drigs::state::{Batch, Command, Outcome, State};

use super::clock::Clock;
use super::dice::Dice;
use super::planted::Plant;
use super::store::Store;
use super::words::Down;
use super::world::{HOUR, Happening, SECOND, Time, World};

#[derive(Default)]
pub struct Log {
    pub entries: Vec<Batch>,
    /// What each entry led to on the first replica that applied it: the oracle's own.
    pub outcomes: Vec<Vec<Outcome>>,
    pub term: u64,
    pub leader: Option<usize>,
    under_way: VecDeque<Proposal>,
    proposed: u64,
    latest_commit: Time,
}

struct Proposal {
    number: u64,
    by: usize,
    term: u64,
    batch: Batch,
    origin: Origin,
}

/// Who waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Barrier,
    Decision,
    Hello(usize),
    Report(usize),
    Wish(usize),
}

pub struct Controller {
    pub state: State,
    pub applied: usize,
    pub up: bool,
    /// Cut off from the other controllers.
    pub isolated: bool,
    pub lead: Option<Lead>,
    pub sessions: BTreeMap<usize, Session>,
    clock: Clock,
    /// By how much its wall clock was set since it started; nothing may depend on it.
    pub wall_steps: u64,
    store: Store,
    /// What would be found on disk after a crash that lost the latest writes.
    flushed: Option<(Store, usize)>,
}

/// One leadership, from the election on. It ends when its holder hears of the next one.
pub struct Lead {
    pub term: u64,
    pub leases: Leases,
    /// Its barrier is applied.
    pub ready: bool,
    /// When a quorum last acknowledged it; `None` while every heartbeat is.
    pub acknowledged_until: Option<Time>,
    /// Its time never lies before what the state has seen, whatever the wall clock says.
    lift: u64,
    deciding_since: Option<Time>,
    /// When each worker's latest report came, by the true time.
    pub heard: BTreeMap<WorkerId, Time>,
    /// Ends that were reported and are not committed yet.
    pub ends_under_way: BTreeSet<AttemptId>,
}

/// A worker's session as its controller sees it.
pub struct Session {
    pub worker: WorkerId,
    pub term: u64,
    pub answers: u64,
    pub version: Option<u64>,
}

const WALL: u64 = 1_800_000_000_000;

impl Controller {
    pub fn new(dice: &mut Dice) -> Self {
        let rate = dice.between(9_900, 10_100);
        let wall = WALL + dice.below(2 * HOUR) - HOUR;
        let state = State::default();
        Controller {
            store: Store::of(&state),
            state,
            applied: 0,
            up: true,
            isolated: false,
            lead: None,
            sessions: BTreeMap::new(),
            clock: Clock::new(rate, wall),
            wall_steps: 0,
            flushed: None,
        }
    }

    pub fn leads(&self, term: u64) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.term == term && lead.ready)
    }

    fn time(&self, now: Time) -> Timestamp {
        let lift = self.lead.as_ref().map_or(0, |lead| lead.lift);
        Timestamp(self.clock.read(now) + lift + self.wall_steps)
    }
}

impl World {
    // Commits.

    pub fn propose(&mut self, by: usize, commands: Vec<Command>, origin: Origin) {
        let at = self.controllers[by].time(self.now);
        let Some(term) = self.controllers[by].lead.as_ref().map(|lead| lead.term) else { return };
        if self.log.leader != Some(by) || self.log.term != term {
            self.met("proposal of a deposed leader");
            return;
        }
        if !self.calm && origin != Origin::Barrier && self.dice.one_in(60) {
            self.met("proposal lost");
            return;
        }
        let mut batch = Batch { at, commands };
        if let Origin::Wish(wish) = origin {
            self.corrupt_wish(by, wish, &mut batch);
        }
        let delay = self.delay() + 1;
        let commit_at = (self.now + delay).max(self.log.latest_commit);
        self.log.latest_commit = commit_at;
        self.log.proposed += 1;
        let number = self.log.proposed;
        self.log.under_way.push_back(Proposal { number, by, term, batch, origin });
        self.after(commit_at - self.now, Happening::Commit(number));
    }

    fn corrupt_wish(&mut self, by: usize, wish: usize, batch: &mut Batch) {
        if self.has(Plant::IdempotencyKeyDropped) {
            for command in &mut batch.commands {
                if let Command::SubmitJob(submission) = command {
                    submission.key = format!("fresh-{}", self.dice.roll()).as_str().into();
                }
            }
        }
        if self.has(Plant::AcknowledgedBeforeCommit) {
            let mut guess = self.controllers[by].state.clone();
            let outcome = guess.apply_batch(batch.clone()).remove(0);
            self.answer(wish, outcome);
        }
        if self.has(Plant::CancelForgottenByTheLog)
            && matches!(batch.commands[0], Command::CancelTasks { .. })
        {
            self.answer(wish, Ok(Vec::new()));
            batch.commands.clear();
        }
    }

    pub fn commit(&mut self, number: u64) {
        let Some(first) = self.log.under_way.front() else { return };
        let (by, term) = (first.by, first.term);
        let leads = self.log.leader == Some(by) && self.log.term == term;
        if first.number != number || !leads || self.controllers[by].isolated {
            return;
        }
        let proposal = self.log.under_way.pop_front().expect("looked at above");
        self.append(proposal.batch);
        self.catch_up(by);
        let outcomes = self.log.outcomes.last().expect("appended above").clone();
        self.applied_own(by, proposal.origin, outcomes);
        self.orders_changed(by);
        for follower in 0..self.controllers.len() {
            if follower != by {
                let lag = if self.dice.one_in(20) { 10 * SECOND } else { 200 };
                let lag = self.dice.between(1, lag);
                self.after(lag, Happening::CatchUp(follower));
            }
        }
        let delay = self.dice.between(1, 10);
        self.after(delay, Happening::Decide(by, term, false));
    }

    fn append(&mut self, batch: Batch) {
        self.note(|| format!("entry {}: {:?}", self.log.entries.len() + 1, batch.commands));
        self.log.entries.push(batch.clone());
        let outcomes = self.witness(batch);
        self.log.outcomes.push(outcomes);
    }

    /// The leader has applied what it proposed: whoever waited for it is answered.
    fn applied_own(&mut self, leader: usize, origin: Origin, mut outcomes: Vec<Outcome>) {
        match origin {
            Origin::Barrier => self.begin_to_lead(leader),
            Origin::Decision => {
                if let Some(lead) = &mut self.controllers[leader].lead {
                    lead.deciding_since = None;
                }
            }
            Origin::Hello(session) => {
                if let Some(outcome) = outcomes.pop() {
                    self.admitted(leader, session, outcome);
                }
            }
            Origin::Report(session) => self.send_orders(leader, session),
            Origin::Wish(wish) => {
                let is_lost = !self.calm && self.dice.one_in(6);
                if is_lost {
                    self.met("answer lost");
                } else if !outcomes.is_empty() {
                    self.answer(wish, outcomes.remove(0));
                }
            }
        }
    }

    // Replicas.

    pub fn catch_up(&mut self, number: usize) {
        let stays_behind = {
            let it = &self.controllers[number];
            let leads_no_more = it.lead.as_ref().is_some_and(|lead| lead.term != self.log.term);
            !it.up || it.isolated || leads_no_more
        };
        if stays_behind {
            return;
        }
        while self.controllers[number].applied < self.log.entries.len() {
            self.apply_next(number);
        }
        if self.dice.one_in(8) {
            assert!(
                self.controllers[number].state == self.oracle.truth,
                "replica {number} differs at entry {}",
                self.log.entries.len()
            );
        }
    }

    fn apply_next(&mut self, number: usize) {
        let index = self.controllers[number].applied;
        let mut batch = self.log.entries[index].clone();
        let is_follower = self.log.leader != Some(number);
        if is_follower && self.has(Plant::FollowerSkipsABatch) && self.dice.one_in(100) {
            batch.commands.clear();
        }
        if is_follower && self.has(Plant::FollowerUsesItsOwnClock) {
            batch.at = self.controllers[number].time(self.now);
        }
        let skipped = batch.commands.is_empty();
        let it = &mut self.controllers[number];
        let outcomes = it.state.apply_batch(batch);
        it.store.write(&mut it.state);
        it.applied += 1;
        if !skipped {
            assert_eq!(
                outcomes,
                self.log.outcomes[index],
                "replica {number} at entry {}",
                index + 1
            );
        }
        if self.dice.one_in(40) {
            let it = &mut self.controllers[number];
            it.flushed = Some((it.store.clone(), it.applied));
        }
    }

    pub fn crash_controller(&mut self, number: usize) {
        self.note(|| format!("controller {number} crashes"));
        let it = &mut self.controllers[number];
        it.up = false;
        it.lead = None;
        it.sessions.clear();
        if self.log.leader == Some(number) {
            self.log.leader = None;
        }
    }

    /// It starts again from what is on its disk, or from another replica's snapshot.
    pub fn controller_back(&mut self, number: usize) {
        if self.controllers[number].up {
            return;
        }
        let own = (self.controllers[number].store.clone(), self.controllers[number].applied);
        let found = match self.dice.below(3) {
            0 => self.controllers[number].flushed.clone().unwrap_or(own),
            1 => {
                let other = self.dice.below(self.controllers.len() as u64) as usize;
                let other = &self.controllers[other];
                if other.applied >= own.1 { (other.store.clone(), other.applied) } else { own }
            }
            _ => own,
        };
        let (mut store, mut applied) = found;
        self.corrupt_snapshot(&mut store, &mut applied);
        let wall = WALL + self.dice.below(2 * HOUR) - HOUR;
        let it = &mut self.controllers[number];
        it.state = store.load();
        it.state.check_invariants();
        it.store = store;
        it.applied = applied;
        it.flushed = None;
        it.up = true;
        it.clock = Clock::new(10_000, wall);
        self.met("snapshot reload");
        self.note(|| format!("controller {number} is back at entry {applied}"));
        self.catch_up(number);
        assert!(
            self.controllers[number].isolated
                || self.controllers[number].state == self.oracle.truth,
            "replica {number} differs after its reload"
        );
    }

    fn corrupt_snapshot(&mut self, store: &mut Store, applied: &mut usize) {
        if self.has(Plant::SnapshotLosesTheKeys) {
            store.keys.clear();
        }
        if self.has(Plant::SnapshotLosesATask) {
            store.tasks.pop_first();
        }
        if self.has(Plant::SnapshotLosesTheCounters) {
            store.counters = Default::default();
        }
        if self.has(Plant::RedeliveredBatchAppliedTwice) {
            *applied = applied.saturating_sub(1);
        }
    }

    // Leadership.

    /// The present leader, if any, is cut off from the others or hands over; another one follows.
    pub fn depose(&mut self) {
        let Some(old) = self.log.leader else { return };
        self.met("leader change");
        let delay = self.dice.between(0, 3 * SECOND);
        match self.dice.below(3) {
            0 => {
                self.crash_controller(old);
                let away = self.dice.between(SECOND, 60 * SECOND);
                self.after(away, Happening::ControllerBack(old));
            }
            1 => {
                self.note(|| format!("controller {old} is cut off"));
                let now = self.now;
                let it = &mut self.controllers[old];
                it.isolated = true;
                if let Some(lead) = &mut it.lead {
                    lead.acknowledged_until = Some(now);
                }
                self.strand_workers(old);
            }
            _ => self.strand_workers(old),
        }
        self.after(delay, Happening::Elect);
    }

    /// Some workers go on with the old leader for a while, and some of those with nobody after that.
    fn strand_workers(&mut self, old: usize) {
        for machine in 0..self.machines.len() {
            if self.dice.one_in(3) {
                self.cut_machine(machine, super::world::Cut::AllBut(old));
            }
        }
    }

    pub fn elect(&mut self) {
        let old = self.log.leader;
        let able = |it: &Controller| it.up && !it.isolated;
        let candidates: Vec<usize> = (0..self.controllers.len())
            .filter(|number| able(&self.controllers[*number]))
            .filter(|number| Some(*number) != old)
            .collect();
        let alive = self.controllers.iter().filter(|it| able(it)).count();
        if candidates.is_empty() || alive <= self.controllers.len() / 2 {
            return self.after(SECOND, Happening::Elect);
        }
        let leader = self.dice.pick(&candidates);
        self.log.term += 1;
        self.log.leader = Some(leader);
        self.keep_some_proposals();
        if let Some(old) = old {
            self.make_deposed(old);
        }
        let term = self.log.term;
        self.note(|| format!("controller {leader} is elected for term {term}"));
        let is_hasty = self.has(Plant::NewLeaderSkipsTheBarrier);
        self.controllers[leader].sessions.clear();
        self.controllers[leader].lead = Some(Lead {
            term,
            leases: Leases::new(self.lease, Timestamp(0)),
            ready: false,
            acknowledged_until: None,
            lift: 0,
            deciding_since: None,
            heard: BTreeMap::new(),
            ends_under_way: BTreeSet::new(),
        });
        if is_hasty {
            self.begin_to_lead(leader);
        }
        self.propose(leader, Vec::new(), Origin::Barrier);
    }

    /// Of what the old leader had under way, the new one may have some: then it is committed, and nobody is told.
    fn keep_some_proposals(&mut self) {
        let kept = self.dice.below(self.log.under_way.len() as u64 + 1) as usize;
        let lost = self.log.under_way.split_off(kept);
        if !lost.is_empty() {
            self.met("proposals lost with their leader");
        }
        for proposal in std::mem::take(&mut self.log.under_way) {
            self.met("committed untold");
            self.append(proposal.batch);
        }
    }

    fn make_deposed(&mut self, old: usize) {
        let now = self.now;
        let it = &mut self.controllers[old];
        let Some(lead) = &mut it.lead else { return };
        lead.acknowledged_until.get_or_insert(now);
        let term = lead.term;
        let late = self.dice.between(1, 2 * self.lease.length.0);
        self.after(late, Happening::Learn(old, term));
    }

    pub fn learn(&mut self, number: usize, term: u64) {
        let it = &mut self.controllers[number];
        it.isolated = false;
        if it.lead.as_ref().is_none_or(|lead| lead.term != term) {
            return;
        }
        it.lead = None;
        let sessions = std::mem::take(&mut it.sessions);
        self.note(|| format!("controller {number} learns that it leads no more"));
        for session in sessions.into_keys() {
            let leader = self.log.leader;
            self.send_down(session, Down::Redirect { leader });
        }
        self.catch_up(number);
    }

    fn begin_to_lead(&mut self, number: usize) {
        let trusts_nobody = self.has(Plant::NewLeaderTrustsNoWorker);
        let now = self.now;
        let lease = self.lease;
        let it = &mut self.controllers[number];
        let Some(lead) = &mut it.lead else { return };
        if lead.ready {
            return;
        }
        let (wall, seen) = (it.clock.read(now) + it.wall_steps, it.state.counters.now.0);
        lead.lift = seen.saturating_sub(wall);
        lead.ready = true;
        let term = lead.term;
        let since = if trusts_nobody { Timestamp(0) } else { it.time(now) };
        it.lead.as_mut().expect("seen above").leases = Leases::new(lease, since);
        self.after(1, Happening::Decide(number, term, true));
    }

    /// Lets the leader know what its quorum last said, and asks whether it may still act.
    pub fn may_act(&mut self, number: usize) -> bool {
        let blind = self.has(Plant::DeposedLeaderActsOn);
        let now = self.now;
        let it = &mut self.controllers[number];
        let Some(lead) = it.lead.as_ref().filter(|lead| lead.ready) else { return false };
        let acknowledged = lead.acknowledged_until.filter(|_| !blind).unwrap_or(now);
        let (acknowledged, now) = (it.time(acknowledged), it.time(now));
        let leases = &mut it.lead.as_mut().expect("seen above").leases;
        leases.quorum_acknowledged(acknowledged);
        leases.may_act(now)
    }

    // Decisions.

    pub fn decide(&mut self, number: usize, term: u64, again: bool) {
        if !self.controllers[number].leads(term) {
            return;
        }
        if again {
            let pause = self.dice.between(200, 1500);
            self.after(pause, Happening::Decide(number, term, true));
        }
        let now = self.now;
        let waits = self.controllers[number].lead.as_ref().and_then(|lead| lead.deciding_since);
        if waits.is_some_and(|since| since + 5 * SECOND > now) && !self.dice.one_in(50) {
            return;
        }
        if !self.may_act(number) {
            return;
        }
        let it = &self.controllers[number];
        let lead = it.lead.as_ref().expect("it leads");
        let limits = Limits { placements: 64, finished_jobs: 12 };
        let mut commands = reconcile::reconcile(&it.state, &lead.leases, it.time(now), limits);
        commands.extend(self.planted_decisions(number));
        if commands.is_empty() {
            return;
        }
        self.check_placements(number, &commands);
        self.controllers[number].lead.as_mut().expect("it leads").deciding_since = Some(now);
        self.propose(number, commands, Origin::Decision);
    }

    /// Work goes only where this leader heard the worker within a lease, by its own clock.
    fn check_placements(&self, number: usize, commands: &[Command]) {
        let it = &self.controllers[number];
        let lead = it.lead.as_ref().expect("it leads");
        for command in commands {
            let Command::PlaceTask(placement) = command else { continue };
            for slice in &placement.slices {
                let heard = lead.heard.get(&slice.worker).copied();
                let age = heard.map(|at| it.clock.read(self.now) - it.clock.read(at));
                assert!(
                    age.is_some_and(|age| age <= self.lease.length.0),
                    "{} is placed on {}, heard {age:?} ms ago",
                    placement.task,
                    slice.worker
                );
            }
        }
    }

    fn planted_decisions(&mut self, number: usize) -> Vec<Command> {
        let it = &self.controllers[number];
        let lead = it.lead.as_ref().expect("it leads");
        let now = it.time(self.now);
        let silent = || {
            let silent = it.state.workers.iter().filter(|(_, worker)| !worker.is_connected());
            silent.map(|(id, _)| *id)
        };
        if self.has(Plant::GivenUpWhenSilent) {
            let give_up = |worker| {
                let attempts = it.state.attempts_on(worker);
                attempts.map(move |attempt| Command::GiveUpAttempt { attempt, worker })
            };
            return silent().flat_map(give_up).collect();
        }
        if self.has(Plant::GivenUpWithoutTheLease) {
            let mut commands = Vec::new();
            for worker in silent() {
                let row = it.state.workers.get(&worker).expect("listed above");
                for attempt in it.state.attempts_on(worker) {
                    let job = it.state.jobs.get(&attempt.task.job).expect("it has an attempt");
                    let asked = job.spec.lost_after.unwrap_or(row.default_lost_after());
                    if let LostAfter::After(length) = self.lease.effective(asked)
                        && lead.leases.silent_since(worker) + length < now
                    {
                        commands.push(Command::GiveUpAttempt { attempt, worker });
                    }
                }
            }
            return commands;
        }
        if self.has(Plant::PlacesOnSilentWorkers) {
            let in_touch = it.state.workers.keys().copied().collect();
            let view = View { now, in_touch, leading_since: now, lease: Millis(0) };
            let plan = scheduler::plan(&it.state, &view, 8);
            return plan.placements.into_iter().map(Command::PlaceTask).collect();
        }
        Vec::new()
    }

    pub fn ends_under_way(&mut self, number: usize) -> Option<&mut BTreeSet<AttemptId>> {
        self.controllers[number].lead.as_mut().map(|lead| &mut lead.ends_under_way)
    }

    pub fn renew(&mut self, number: usize, worker: WorkerId) {
        let now = self.now;
        let time = self.controllers[number].time(now);
        let forgetful = self.has(Plant::LeasesNotRenewedByReports);
        let Some(lead) = &mut self.controllers[number].lead else { return };
        let first = lead.heard.insert(worker, now).is_none();
        if !forgetful || first {
            lead.leases.renew(worker, time);
        }
    }
}
