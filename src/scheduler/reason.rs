//! Why jobs wait, in one word each.

use std::{cell::OnceCell, collections::BTreeMap};

use crate::{
    model::{Job, JobId, TaskState, Timestamp, WaitReason},
    scheduler::{Reserved, View, round::Round},
    state::State,
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
            true => Some(self.of_waiting(id)),
            false => self.of_active(id, job),
        }
    }

    fn of_waiting(&self, id: JobId) -> WaitReason {
        // Whoever got a place is not left waiting.
        self.found().waiting.get(&id).copied().unwrap_or(WaitReason::Starting)
    }

    /// What is kept free, and for whom.
    pub(super) fn reserved(&self) -> Option<&Reserved> {
        self.found().reserved.as_ref()
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let mut waiting = BTreeMap::new();
            let round = Round::new(self.state, self.view, MOST_PLACEMENTS);
            let plan = round.run(|job, reason| {
                waiting.insert(job, reason);
            });
            Found { waiting, reserved: plan.reserved }
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
