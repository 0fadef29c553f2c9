//! Streams of short tasks.
//!
//! Between two tasks on one worker lies a round trip: the report of an end, its commit, the next placement, its order. For
//! tasks of a few milliseconds that is most of the time. So where an array's tasks have proven short, and nothing of
//! higher standing waits for the worker, some more of them are handed out ahead, to begin as others end.

use crate::{
    model::{Attempt, AttemptId, Job, JobId, Millis, Placement, Slice, TaskId, WorkerId},
    scheduler::{class::Class, room::Room, round::Round},
    state::{MOST_PREFETCHED, State},
};

/// How much work waits on each running slot: some round trips' worth, and all that a wrong guess can cost.
const AHEAD: Millis = Millis(200);
const MOST_PER_SLOT: u64 = 64;
/// How many tasks must have ended before their lengths say something about the next ones.
const FEWEST_ENDED: u64 = 8;
/// A task that runs for longer than this is no longer one of a stream: nothing more waits for its slot, and what waited
/// for so long is called back when there is room elsewhere.
const STALLED: Millis = Millis(2_000);

impl<'a> Round<'a> {
    /// Hands out tasks of `waiting` behind those of the same job that run now. Called for the first job of its class that
    /// finds no room: while there is room, tasks go there instead.
    pub(super) fn prefetch(
        &mut self,
        id: JobId,
        job: &'a Job,
        mut waiting: impl Iterator<Item = TaskId>,
    ) {
        let class = Class::of(&job.spec);
        let request = class.request;
        if request.gpus.count > 0 || class.nodes() > 1 || job.spec.array.is_none() {
            return;
        }
        let Some(depth) = self.depth(id, job) else { return };
        let most_running = job.spec.array.as_ref().and_then(|array| array.max_running);
        let mut left = most_running
            .map_or(usize::MAX, |most| (most as usize).saturating_sub(self.running(id)));
        for host in self.standing(class).hosts.clone() {
            if self.is_wanted_by_others(host, &class) {
                continue;
            }
            let worker = self.rooms[host].id;
            let here = waiting_of(self.state, id, worker);
            if here < self.state.prefetched_on(worker) {
                continue; // another job's tasks wait there
            }
            let wanted = self.fresh_slots(id, worker, here / depth as usize) * depth as usize;
            let more = wanted.min(MOST_PREFETCHED).saturating_sub(here);
            for _ in 0..more.min(left) {
                if self.is_spent() {
                    return;
                }
                let Some(task) = waiting.next() else { return };
                let slices = vec![slice_behind(&self.rooms[host], &class)];
                self.plan.placements.push(Placement { task, slices, prefetch: true });
                left -= 1;
            }
        }
    }

    /// How many tasks may wait behind each running one; `None` when they have not proven short.
    fn depth(&self, id: JobId, job: &Job) -> Option<u64> {
        let ended = job.completed.len() + job.failed.len();
        if ended < FEWEST_ENDED {
            return None;
        }
        let waiting: usize =
            self.rooms.iter().map(|room| waiting_of(self.state, id, room.id)).sum();
        let slots = (self.running(id) - waiting.min(self.running(id))).max(1) as u64;
        let elapsed = self.view.now.since(job.started_at?).0.max(1);
        let mean = (elapsed * slots / ended).max(1);
        // Near the end of an array the rest is left for whoever is free first.
        let depth = (AHEAD.0 / mean).min(MOST_PER_SLOT).min(job.queued.len() / slots);
        (depth > 0).then_some(depth)
    }

    fn is_wanted_by_others(&mut self, host: usize, class: &Class<'a>) -> bool {
        let blocked = self.blocked.clone();
        blocked
            .into_iter()
            .any(|other| other != *class && self.standing(other).hosts.contains(&host))
    }

    /// The job's tasks on `worker` that run, or will with this round, and not for too long yet. Nothing when there cannot
    /// be more than `enough` of them.
    fn fresh_slots(&self, id: JobId, worker: WorkerId, enough: usize) -> usize {
        let planned = self.plan.placements.iter().rev().take_while(|it| it.task.job == id);
        let planned = planned.filter(|it| !it.prefetch && it.slices[0].worker == worker).count();
        let all = || self.state.attempts_on(worker).filter(|it| it.task.job == id);
        if all().count() - waiting_of(self.state, id, worker) + planned <= enough {
            return 0;
        }
        let now = self.view.now;
        let fresh = |attempt: &Attempt| {
            attempt.stop.is_none()
                && !attempt.prefetched
                && attempt.started_at.is_none_or(|at| now.since(at) < STALLED)
        };
        all().filter(|it| self.state.live_attempt(*it).is_some_and(fresh)).count() + planned
    }

    /// Attempts that wait on a worker for a turn that does not come, although there is room elsewhere, or where nothing
    /// new should start any more.
    pub(super) fn stalled(&self) -> Vec<AttemptId> {
        let mut stalled = Vec::new();
        for id in &self.view.in_touch {
            let closed = self.state.workers.get(id).is_some_and(|row| !row.is_ready());
            // They stand in the order of their placements: behind one that is fresh all are.
            let waiting = self.state.prefetched(*id).map_while(|attempt| {
                let row = self.state.live_attempt(attempt)?;
                let waited = self.view.now.since(row.placed_at) >= STALLED;
                (closed || waited).then_some((attempt, row))
            });
            let stoppable = waiting.filter(|(_, row)| row.stop.is_none());
            let vain = stoppable.filter(|(it, _)| closed || self.fits_elsewhere(it.task.job, *id));
            stalled.extend(vain.map(|(attempt, _)| attempt));
        }
        stalled
    }

    fn fits_elsewhere(&self, job: JobId, than: WorkerId) -> bool {
        let Some(job) = self.state.jobs.get(&job) else { return false };
        let class = Class::of(&job.spec);
        self.untouched.iter().any(|room| room.id != than && room.fits(&class))
    }
}

fn waiting_of(state: &State, job: JobId, worker: WorkerId) -> usize {
    state.prefetched(worker).filter(|it| it.task.job == job).count()
}

/// What it will hold when its turn comes.
fn slice_behind(room: &Room, class: &Class) -> Slice {
    Slice {
        worker: room.id,
        epoch: room.worker.epoch,
        cpus: class.request.cpus,
        memory: class.request.memory,
        gpus: Vec::new(),
        first_rank: 0,
        ranks: 1,
    }
}
