//! Tasks that have no place yet.

use super::{
    cpus,
    infeasible::infeasible,
    obstacle::{Obstacle, grouped, obstacle},
    plural, when, worker_name,
};
use crate::{
    model::{AttemptId, Job, JobId, Slice, TaskId, TaskStatus, Timestamp, WaitReason, WorkerId},
    scheduler::{
        Reasons,
        class::Class,
        reservation::{holdings, latest_end, outlooks},
        room::Room,
        round::gate,
    },
    state::State,
};

/// Holders and dependencies told of one by one.
const MOST_TOLD: usize = 5;

/// A job with tasks that wait.
pub(super) struct Waiting<'a> {
    pub reasons: &'a Reasons<'a>,
    pub id: JobId,
    pub job: &'a Job,
}

impl Waiting<'_> {
    pub fn describe(&self, reason: WaitReason) -> Vec<String> {
        let (state, now) = (self.reasons.state, self.reasons.view.now);
        let id = self.id;
        match reason {
            WaitReason::Held => self.held(),
            WaitReason::Dependency => self.dependencies(),
            WaitReason::BeginTime => {
                let begin = self.job.spec.begin.unwrap_or(now);
                vec![format!("its begin time is {}", when(begin, now))]
            }
            WaitReason::Quota => self.quota(),
            WaitReason::MaxRunning => vec![format!(
                "its array runs {}, as many as it may at one time",
                plural(state.active_of(id).into(), "task")
            )],
            WaitReason::Backoff => self.backoff(),
            WaitReason::Infeasible => infeasible(state, &self.job.spec).into_iter().collect(),
            WaitReason::NoWorkers => self.no_workers(),
            WaitReason::Resources => self.resources(),
            WaitReason::Priority => {
                let mut lines =
                    vec![String::from("there is room, but jobs before it in line take it")];
                lines.extend(self.obstacles());
                lines
            }
            WaitReason::Reserved => self.reserved(),
            WaitReason::Recovering => vec![self.in_doubt()],
            WaitReason::Starting => {
                vec![String::from("it has its turn: the leader places it in its next round")]
            }
        }
    }

    /// How many jobs are served before it.
    pub fn ahead(&self) -> Option<u64> {
        let (state, now) = (self.reasons.state, self.reasons.view.now);
        let eligible =
            |id: &JobId| state.jobs.get(id).is_some_and(|job| gate(state, *id, job, now).is_none());
        gate(state, self.id, self.job, now).is_none().then(|| {
            let before = state.pending().map(|place| place.job).take_while(|id| *id != self.id);
            before.filter(eligible).count() as u64
        })
    }

    /// The earliest start that follows from what is known; others in line may still make it later.
    pub fn earliest_start(&self, reason: WaitReason) -> Option<Timestamp> {
        let (state, now) = (self.reasons.state, self.reasons.view.now);
        match reason {
            WaitReason::BeginTime => self.job.spec.begin,
            WaitReason::Backoff => {
                state.requeued_of(self.id).filter_map(|task| not_before(state, task)).min()
            }
            WaitReason::Resources | WaitReason::Priority | WaitReason::Reserved => {
                let class = Class::of(&self.job.spec);
                let rooms = self.rooms();
                let outlooks =
                    outlooks(&class, rooms.iter(), |worker| holdings(state, worker, now));
                let needed = outlooks.get(class.nodes() - 1)?;
                needed.at.filter(|at| *at > now)
            }
            WaitReason::Held
            | WaitReason::Dependency
            | WaitReason::Quota
            | WaitReason::MaxRunning
            | WaitReason::Infeasible
            | WaitReason::NoWorkers
            | WaitReason::Recovering
            | WaitReason::Starting => None,
        }
    }

    fn rooms(&self) -> Vec<Room<'_>> {
        let in_touch = self.reasons.view.in_touch.iter();
        in_touch
            .filter_map(|id| Room::of(self.reasons.state, *id))
            .filter(|room| room.worker.is_ready())
            .collect()
    }

    fn in_doubt(&self) -> String {
        let estranged = self.reasons.state.estranged();
        let mut names: Vec<&str> = estranged.map(|(_, worker)| worker.name.as_str()).collect();
        let more = names.len().saturating_sub(MOST_TOLD);
        names.truncate(MOST_TOLD);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "the cluster was recovered or restored, and it may run already on a worker that was not heard since: {}{more}. \
             It goes on when they connect; for one that is gone, `drigs worker forget NAME`",
            names.join(", ")
        )
    }

    fn held(&self) -> Vec<String> {
        let Some(hold) = &self.job.hold else { return Vec::new() };
        let since = when(hold.at, self.reasons.view.now);
        vec![format!("held by {} {since}; `drigs release {}` lets it go", hold.by, self.id)]
    }

    fn dependencies(&self) -> Vec<String> {
        let state = self.reasons.state;
        let line = |(on, kind): (&JobId, &crate::model::DependencyKind)| {
            let stands = state.jobs.get(on).map_or(String::from("no longer known"), |job| {
                state.counts(*on, job, self.reasons.view.now).summary().to_string()
            });
            format!("waits for job {on} ({}), which is {stands}", kind.as_str())
        };
        let mut lines: Vec<String> = self.job.waits_for.iter().take(MOST_TOLD).map(line).collect();
        let more = self.job.waits_for.len().saturating_sub(MOST_TOLD);
        if more > 0 {
            lines.push(format!("and for {more} more"));
        }
        lines
    }

    fn quota(&self) -> Vec<String> {
        let state = self.reasons.state;
        let queue = &self.job.spec.queue;
        let most = state.queues.get(queue).and_then(|it| it.max_gpus).unwrap_or(0);
        let held: usize = state
            .active_tasks()
            .filter(|(id, ..)| state.jobs.get(&id.job).is_some_and(|it| it.spec.queue == *queue))
            .flat_map(|(_, _, attempt)| &attempt.parts)
            .filter(|part| part.is_live())
            .map(|part| part.slice.gpus.len())
            .sum();
        let asked = u64::from(self.job.spec.request.gpus.count) * u64::from(self.job.spec.nodes());
        vec![format!(
            "queue `{queue}` holds {held} of the {} it may hold together; this needs {asked}",
            plural(most.into(), "GPU")
        )]
    }

    fn backoff(&self) -> Vec<String> {
        let (state, now) = (self.reasons.state, self.reasons.view.now);
        let line = |task: TaskId| {
            let row = state.tasks.get(&task)?;
            let TaskStatus::Queued { not_before, last } = &row.status else { return None };
            let ended =
                last.as_ref().map_or(String::new(), |ending| format!(" ({})", ending.reason));
            let again = when((*not_before).max(now), now);
            Some(format!("{task} failed{ended} and is tried again {again}"))
        };
        state.requeued_of(self.id).filter_map(line).take(MOST_TOLD).collect()
    }

    fn no_workers(&self) -> Vec<String> {
        match self.reasons.state.workers.is_empty() {
            true => vec![String::from("no worker has joined the cluster")],
            false => self.obstacles(),
        }
    }

    fn resources(&self) -> Vec<String> {
        let mut lines = self.obstacles();
        let nodes = Class::of(&self.job.spec).nodes();
        if nodes > 1 {
            lines.insert(0, format!("it needs {nodes} workers with room at one time"));
        }
        lines.extend(self.holders());
        lines
    }

    fn reserved(&self) -> Vec<String> {
        let state = self.reasons.state;
        let Some(reserved) = self.reasons.reserved() else { return self.obstacles() };
        let names: Vec<String> =
            reserved.workers.iter().map(|id| worker_name(state, *id)).collect();
        let until = reserved.at.map_or(String::new(), |at| {
            format!(" and starts {} at the latest", when(at, self.reasons.view.now))
        });
        let mut lines = vec![format!(
            "room on {} is kept for job {}, which is before it in line{until}",
            names.join(", "),
            reserved.job
        )];
        lines.extend(self.obstacles());
        lines
    }

    fn obstacles(&self) -> Vec<String> {
        grouped(self.reasons.state, &self.told_by_workers())
    }

    fn told_by_workers(&self) -> Vec<(WorkerId, Obstacle)> {
        let (state, view) = (self.reasons.state, self.reasons.view);
        let class = Class::of(&self.job.spec);
        state.workers.keys().map(|id| (*id, obstacle(state, view, *id, &class))).collect()
    }

    /// Who holds the room that is missing, the first to end first.
    fn holders(&self) -> Vec<String> {
        let (state, now) = (self.reasons.state, self.reasons.view.now);
        let wants_gpus = self.job.spec.request.gpus.count > 0;
        let workers = self.told_by_workers().into_iter();
        let mut holders: Vec<(Timestamp, AttemptId, Slice)> = workers
            .filter(|(_, obstacle)| matches!(obstacle, Obstacle::NoRoom(_)))
            .flat_map(|(worker, _)| state.attempts_on(worker).map(move |id| (worker, id)))
            .filter_map(|(worker, id)| {
                let attempt = state.live_attempt(id).filter(|it| !it.prefetched)?;
                let slice = attempt.part_on(worker)?.slice.clone();
                let end = latest_end(state, id.task.job, attempt.started_at, attempt.stop, now);
                Some((end.unwrap_or(Timestamp(u64::MAX)), id, slice))
            })
            .filter(|(.., slice)| !wants_gpus || !slice.gpus.is_empty())
            .collect();
        holders.sort_by_key(|(end, id, slice)| (*end, *id, slice.worker));
        let mut lines: Vec<String> =
            holders.iter().take(MOST_TOLD).map(|holder| self.holder(holder)).collect();
        if holders.len() > MOST_TOLD {
            lines.push(format!("and {} more hold what it needs", holders.len() - MOST_TOLD));
        }
        lines
    }

    fn holder(&self, (end, id, slice): &(Timestamp, AttemptId, Slice)) -> String {
        let (state, now) = (self.reasons.state, self.reasons.view.now);
        let gpus = match slice.gpus.len() {
            0 => String::new(),
            count => format!("{}, ", plural(count as u64, "GPU")),
        };
        let end = match end.0 {
            u64::MAX => String::from("no time limit"),
            _ => format!("ends {} at the latest", when(*end, now)),
        };
        let worker = worker_name(state, slice.worker);
        format!("{id} holds {gpus}{} on {worker}; {end}", cpus(slice.cpus))
    }
}

pub(super) fn not_before(state: &State, task: TaskId) -> Option<Timestamp> {
    match &state.tasks.get(&task)?.status {
        TaskStatus::Queued { not_before, .. } => Some(*not_before),
        TaskStatus::Active(_) | TaskStatus::Ended { .. } => None,
    }
}
