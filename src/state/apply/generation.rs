//! A history that goes on from a survivor's log, or from a backup: what happened beyond it elsewhere is not known.
//!
//! Three things keep what may still run from being run twice. Every worker of before counts as estranged until it has
//! connected and is known to run nothing but what this history knows of; until then what it has is not given up by time.
//! Jobs of before are not placed while any worker is estranged, because it may run them already. And new jobs and
//! attempts get numbers that the other history can not have given.

use crate::model::{Epoch, JobId, Link, Worker, WorkerId};
use crate::state::{Event, Rejection, State, apply::Outcome};

/// New jobs are numbered from a multiple of this.
const JOBS_SKIPPED: u64 = 1_000_000;
const ATTEMPTS_SKIPPED: u32 = 1000;

impl State {
    pub(super) fn begin_generation(&mut self, adopted: Option<String>) -> Outcome {
        let now = self.counters.now;
        let workers: Vec<(WorkerId, Worker)> =
            self.workers.iter().map(|(id, worker)| (*id, worker.clone())).collect();
        for (id, worker) in workers {
            let link = match worker.link {
                Link::Connected => Link::Silent { since: now },
                silent @ Link::Silent { .. } => silent,
            };
            self.workers.insert(id, Worker { link, estranged: true, ..worker });
        }
        let highest = self.tasks.values().map(|task| task.attempts);
        let highest = highest.chain(self.jobs.values().map(|job| job.highest_attempt)).max();
        let counters = &mut self.counters;
        let highest = highest.unwrap_or(0).max(counters.doubtful_attempts);
        counters.doubtful_attempts = highest.saturating_add(ATTEMPTS_SKIPPED);
        counters.doubtful_jobs = counters.jobs_submitted;
        // At least half of the step is left for the other history.
        let steps = (counters.jobs_submitted + JOBS_SKIPPED / 2) / JOBS_SKIPPED + 1;
        counters.jobs_submitted = steps * JOBS_SKIPPED;
        counters.adopted_cluster = adopted.or(counters.adopted_cluster.take());
        self.settle_doubts();
        Ok(vec![Event::GenerationBegun])
    }

    /// It has connected, and runs nothing that this history does not know of.
    pub(super) fn settle_worker(&mut self, id: WorkerId, epoch: Epoch) -> Outcome {
        let worker = self.worker_in(id, epoch)?;
        if !worker.estranged {
            return Ok(Vec::new());
        }
        self.workers.insert(id, Worker { estranged: false, ..worker });
        self.settle_doubts();
        Ok(vec![Event::WorkerSettled(id)])
    }

    /// Once nobody is estranged, nothing of before can run where nobody sees it.
    pub(super) fn settle_doubts(&mut self) {
        if !self.workers.values().any(|worker| worker.estranged) {
            self.counters.doubtful_jobs = 0;
        }
    }

    pub(super) fn check_doubt(&self, job: JobId) -> Result<(), Rejection> {
        match self.is_in_doubt(job) {
            true => Err(Rejection::InDoubt(job)),
            false => Ok(()),
        }
    }
}
