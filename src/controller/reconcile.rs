//! What the leader wants next. Looks only at what is true now, so a new leader needs no recovery of its own.

use std::collections::BTreeSet;

use crate::controller::lease::{Lease, Leases};
use crate::model::{
    AttemptId, AttemptReport, LostAfter, Order, PartStatus, Phase, Timestamp, Worker, WorkerId,
};
use crate::scheduler::{self, View};
use crate::state::{Command, State};

/// How much is decided in one go, and how much is remembered.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Placements in one plan.
    pub placements: usize,
    /// Finished jobs kept in memory; older ones are read from the store.
    pub finished_jobs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { placements: 512, finished_jobs: 10_000 }
    }
}

/// The commands that the leader proposes next.
pub fn reconcile(state: &State, leases: &Leases, now: Timestamp, limits: Limits) -> Vec<Command> {
    if !leases.may_act(now) {
        return Vec::new();
    }
    let mut commands = Vec::new();
    for (id, worker) in state.workers.iter() {
        if worker.is_connected() && leases.is_expired(*id, now) {
            commands.push(Command::SilenceWorker { worker: *id, epoch: worker.epoch });
        } else if !worker.is_connected() && leases.is_in_touch(*id, now) {
            commands.push(Command::ReconnectWorker { worker: *id, epoch: worker.epoch });
        } else if !worker.is_connected() && !worker.estranged {
            give_up_attempts(state, leases, *id, worker, now, &mut commands);
        }
    }
    retire_jobs(state, limits.finished_jobs, &mut commands);
    let plan = scheduler::plan(state, &view(state, leases, now), limits.placements);
    commands.extend(plan.recalls.into_iter().map(|attempt| Command::RecallAttempt { attempt }));
    commands.extend(plan.placements.into_iter().map(Command::PlaceTask));
    commands
}

/// What the scheduler may see: work goes only where this leader is heard.
pub fn view(state: &State, leases: &Leases, now: Timestamp) -> View {
    let in_touch = |id: &WorkerId| leases.is_in_touch(*id, now);
    View {
        now,
        in_touch: state.workers.keys().copied().filter(in_touch).collect(),
        leading_since: leases.leading_since(),
        lease: leases.lease().length,
    }
}

/// What a worker's report leads to; nothing where the state already says the same. One that was silent is back first.
pub fn commands_for(state: &State, worker: WorkerId, reports: &[AttemptReport]) -> Vec<Command> {
    let row = state.workers.get(&worker).filter(|row| !row.is_connected());
    let back = row.map(|row| Command::ReconnectWorker { worker, epoch: row.epoch });
    let mut reports: Vec<&AttemptReport> = reports.iter().collect();
    // Ends first: they make the room that the starts of those who waited for it take.
    reports.sort_by_key(|report| report.phase == Phase::Running);
    let told = reports.into_iter().filter_map(|report| command_for(state, worker, report));
    back.into_iter().chain(told).collect()
}

/// A worker that was estranged is not, once it runs nothing but what it is ordered to.
pub fn settlement(state: &State, worker: WorkerId, settled: bool) -> Option<Command> {
    let row = state.workers.get(&worker).filter(|row| row.estranged && settled)?;
    Some(Command::SettleWorker { worker, epoch: row.epoch })
}

fn command_for(state: &State, worker: WorkerId, report: &AttemptReport) -> Option<Command> {
    let attempt = report.attempt;
    let epoch = report.epoch;
    let part = state.live_attempt(attempt)?.part_on(worker)?;
    match (&report.phase, &part.status) {
        (Phase::Running, PartStatus::Assigned) => {
            Some(Command::StartPart { attempt, worker, epoch })
        }
        (Phase::Ended(ending), PartStatus::Assigned | PartStatus::Running) => {
            Some(Command::EndPart { attempt, worker, epoch, ending: ending.clone() })
        }
        (Phase::Running, PartStatus::Running) | (_, PartStatus::Ended(_)) => None,
    }
}

/// Everything that `worker` should have now, those that run first, then those that wait for their turn.
///
/// `None` while the state holds the worker for silent: a command that gives up what it has may be under way, and orders
/// let it run on. It gets them once its return is committed, which is behind such a command, or makes it void.
pub fn orders(state: &State, worker: WorkerId, lease: Lease) -> Option<Vec<Order>> {
    state.workers.get(&worker).filter(|row| row.is_connected())?;
    let waiting: BTreeSet<AttemptId> = state.prefetched(worker).collect();
    let at_once = state.attempts_on(worker).filter(|attempt| !waiting.contains(attempt));
    let all = at_once.chain(state.prefetched(worker));
    Some(all.filter_map(|attempt| order(state, worker, attempt, lease)).collect())
}

fn order(state: &State, id: WorkerId, attempt_id: AttemptId, lease: Lease) -> Option<Order> {
    let worker = state.workers.get(&id)?;
    let attempt = state.live_attempt(attempt_id)?;
    let spec = state.jobs.get(&attempt_id.task.job)?.spec.clone();
    let node = attempt.parts.iter().position(|part| part.slice.worker == id)?;
    let lost_after = lease.effective(lost_after(spec.lost_after, worker));
    Some(Order {
        attempt: attempt_id,
        slice: attempt.parts[node].slice.clone(),
        spec,
        lost_after,
        stop: attempt.stop,
        prefetched: attempt.prefetched,
        node: node as u32,
        nodes: attempt.parts.len() as u32,
        world_size: attempt.parts.iter().map(|part| part.slice.ranks).sum(),
        begun: state.is_of_before(attempt_id),
    })
}

fn lost_after(asked: Option<LostAfter>, worker: &Worker) -> LostAfter {
    asked.unwrap_or_else(|| worker.default_lost_after())
}

fn give_up_attempts(
    state: &State,
    leases: &Leases,
    id: WorkerId,
    worker: &Worker,
    now: Timestamp,
    commands: &mut Vec<Command>,
) {
    for attempt in state.attempts_on(id) {
        let Some(job) = state.jobs.get(&attempt.task.job) else { continue };
        let end = leases.given_up_at(id, lost_after(job.spec.lost_after, worker));
        if end.is_some_and(|end| end < now) {
            commands.push(Command::GiveUpAttempt { attempt, worker: id });
        }
    }
}

fn retire_jobs(state: &State, most: usize, commands: &mut Vec<Command>) {
    let excess = state.finished_count().saturating_sub(most);
    if excess > 0 {
        let jobs = state.finished().take(excess).map(|(_, job)| job).collect();
        commands.push(Command::RetireJobs { jobs });
    }
}
