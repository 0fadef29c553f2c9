//! Why jobs wait, in one word each.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    model::{Job, JobId, TaskState, Timestamp, WaitReason},
    scheduler::{
        Reserved, View,
        round::{Round, gate, max_running},
    },
    state::{RequestMark, State},
};

/// Placements that the round behind the reasons may make: jobs beyond it are far back in line.
const MOST_PLACEMENTS: usize = 10_000;

/// The reason of every waiting job, found in one pass over the line when the first of them is asked for.
#[derive(Debug)]
pub struct Reasons<'a> {
    pub(super) state: &'a State,
    pub(super) view: &'a View,
    found: OnceCell<Found>,
}

#[derive(Debug)]
struct Found {
    waiting: BTreeMap<JobId, WaitReason>,
    closed: BTreeMap<RequestMark, WaitReason>,
    placed: BTreeSet<JobId>,
    reserved: Option<Reserved>,
}

impl<'a> Reasons<'a> {
    pub fn new(state: &'a State, view: &'a View) -> Self {
        Reasons { state, view, found: OnceCell::new() }
    }

    pub fn now(&self) -> Timestamp {
        self.view.now
    }

    /// Why tasks of `id` are not running; `None` when all that are not over run.
    pub fn of(&self, id: JobId) -> Option<WaitReason> {
        let job = self.state.jobs.get(&id).filter(|job| !job.is_finished())?;
        let waits = !job.queued.is_empty() || self.state.requeued_of(id).next().is_some();
        match waits {
            true => Some(self.of_waiting(id, job)),
            false => self.of_active(id, job),
        }
    }

    fn of_waiting(&self, id: JobId, job: &Job) -> WaitReason {
        if let Some(reason) = gate(self.state, id, job, self.view.now) {
            return reason;
        }
        if max_running(job).is_some_and(|most| self.state.active_of(id) as usize >= most) {
            return WaitReason::MaxRunning;
        }
        let found = self.found();
        if let Some(reason) = found.waiting.get(&id) {
            return *reason;
        }
        // Whoever got a place, and was not left waiting with other tasks, has its turn.
        let passed_over = found.closed.get(&RequestMark::of(&job.spec));
        let passed_over = passed_over.filter(|_| !found.placed.contains(&id));
        passed_over.copied().unwrap_or(WaitReason::Starting)
    }

    /// What is kept free, and for whom.
    pub(super) fn reserved(&self) -> Option<&Reserved> {
        self.found().reserved.as_ref()
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let mut waiting = BTreeMap::new();
            let round = Round::new(self.state, self.view, MOST_PLACEMENTS);
            let outcome = round.run(|job, reason| {
                waiting.insert(job, reason);
            });
            Found {
                waiting,
                closed: outcome.closed,
                placed: outcome.plan.placements.iter().map(|it| it.task.job).collect(),
                reserved: outcome.plan.reserved,
            }
        })
    }

    fn of_active(&self, id: JobId, job: &Job) -> Option<WaitReason> {
        let counts = self.state.counts(id, job, self.view.now);
        match counts.summary() {
            TaskState::Recovering => Some(WaitReason::Recovering),
            TaskState::Scheduled => Some(WaitReason::Starting),
            TaskState::Pending
            | TaskState::Queued
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Cancelled => None,
        }
    }
}

impl WaitReason {
    /// Whether it waits for workers to have room, and for nothing else.
    pub(super) fn is_for_room(self) -> bool {
        match self {
            WaitReason::Resources | WaitReason::Priority | WaitReason::Reserved => true,
            WaitReason::Held
            | WaitReason::Dependency
            | WaitReason::BeginTime
            | WaitReason::Quota
            | WaitReason::MaxRunning
            | WaitReason::Backoff
            | WaitReason::Infeasible
            | WaitReason::NoWorkers
            | WaitReason::Recovering
            | WaitReason::Starting => false,
        }
    }
}
