use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Bytes, IndexSet, JobId, MilliCpus, TaskStatus, Worker, WorkerId};
use crate::state::{MOST_PREFETCHED, State, derived::Derived, derived::Used};

impl State {
    /// What must hold after every command. Called by tests and simulations.
    ///
    /// # Panics
    /// When something does not hold: then there is a bug in `apply`.
    pub fn check_invariants(&self) {
        assert_eq!(self.derived, Derived::of(self), "an index does not follow from the rows");
        self.check_every_task_is_in_one_place();
        self.check_allocations();
        self.check_waiting_lines();
        self.check_gpus_have_one_claimant();
    }

    fn check_every_task_is_in_one_place(&self) {
        let mut started: BTreeMap<JobId, IndexSet> = BTreeMap::new();
        for id in self.tasks.keys() {
            assert!(self.jobs.contains(&id.job), "{id} has no job");
            started.entry(id.job).or_default().insert(id.index);
        }
        for (id, job) in self.jobs.iter() {
            let mut all = IndexSet::new();
            let mut total = 0;
            let empty = IndexSet::new();
            let places = [
                &job.queued,
                &job.completed,
                &job.failed,
                &job.cancelled,
                started.get(id).unwrap_or(&empty),
            ];
            for set in places {
                all.extend(set);
                total += set.len();
            }
            assert_eq!(all, job.spec.indices(), "job {id} lost or invented a task");
            assert_eq!(total, all.len(), "a task of job {id} is in two places");
            assert_eq!(job.is_finished(), job.ended() == total, "job {id} is over, or is not");
            assert!(!job.is_finished() || job.waits_for.is_empty(), "job {id} ended while blocked");
        }
    }

    fn check_allocations(&self) {
        let mut held: BTreeMap<_, Used> = BTreeMap::new();
        for (id, task) in self.tasks.iter() {
            let attempt = match &task.status {
                TaskStatus::Queued { .. } => continue,
                TaskStatus::Ended { .. } => panic!("{id} is over and still in memory"),
                TaskStatus::Active(attempt) => attempt,
            };
            assert_eq!(attempt.number, task.attempts, "{id} runs an old attempt");
            assert!(attempt.parts.iter().any(|part| part.is_live()), "{id} runs nowhere");
            for part in attempt.parts.iter().filter(|part| part.is_live()) {
                let slice = &part.slice;
                let worker = self.workers.get(&slice.worker);
                let worker = worker.unwrap_or_else(|| panic!("{id} sits on a forgotten worker"));
                assert_eq!(
                    slice.epoch, worker.epoch,
                    "{id} sits on a past life of {}",
                    slice.worker
                );
                if !attempt.prefetched {
                    held.entry(slice.worker).or_default().add(slice);
                }
            }
        }
        for (id, used) in &held {
            let worker = self.workers.get(id).expect("looked up above");
            for (gpu, usage) in &used.gpus {
                assert!(usage.whole <= 1, "{gpu} has two owners");
                assert!(usage.whole == 0 || usage.shares == 0, "{gpu} is owned and shared");
            }
            let added = self.added(*id, worker);
            let fits = used.cpus <= worker.cpus || added.cpus == MilliCpus(0);
            assert!(fits, "the CPUs of {id} are given out twice");
            let fits = used.memory <= worker.memory || added.memory == Bytes(0);
            assert!(fits, "the memory of {id} is given out twice");
        }
    }

    /// What was placed there since the agent came back last. It may have come back with less to give than its attempts held
    /// already; of what it lacks, nothing may be added to them then.
    fn added(&self, id: WorkerId, worker: &Worker) -> Used {
        let mut added = Used::default();
        let attempts = self.attempts_on(id).filter_map(|attempt| self.live_attempt(attempt));
        for attempt in attempts.filter(|it| !it.prefetched && it.placed_at > worker.registered_at) {
            added.add(&attempt.part_on(id).expect("it is among this worker's").slice);
        }
        added
    }

    /// Whoever waits on a worker for a turn waits behind its own job, and only while there is no room.
    fn check_waiting_lines(&self) {
        for (id, worker) in self.workers.iter() {
            let mut jobs = BTreeSet::new();
            for waiting in self.prefetched(*id) {
                jobs.insert(waiting.task.job);
            }
            assert!(jobs.len() <= 1, "two jobs wait on {id} for their turn: {jobs:?}");
            assert!(self.prefetched_on(*id) <= MOST_PREFETCHED, "too many wait on {id}");
            let Some(first) = self.prefetched(*id).next() else { continue };
            let part = self.live_attempt(first).and_then(|attempt| attempt.part_on(*id));
            let slice = &part.expect("it is in the line of this worker").slice;
            let free = self.free(*id).expect("listed by the loop");
            assert!(!free.has_room_for(slice, worker), "{first} waits on {id} although it fits");
        }
    }

    fn check_gpus_have_one_claimant(&self) {
        let mut claimants = BTreeMap::new();
        for (id, worker) in self.workers.iter().filter(|(id, _)| !self.is_abandoned(**id)) {
            for gpu in &worker.gpus {
                let other = claimants.insert(&gpu.uuid, id);
                assert_eq!(other, None, "{} is claimed by {id} as well", gpu.uuid);
            }
        }
    }
}
