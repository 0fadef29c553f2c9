//! Machines that come, fall silent, return and go.

use std::collections::BTreeSet;

use crate::model::{Epoch, Gpu, Link, Mode, Worker, WorkerId};
use crate::state::{Event, RegisterWorker, Rejection, State, apply::Outcome};

impl State {
    pub(super) fn register_worker(&mut self, registration: RegisterWorker) -> Outcome {
        let known = self.workers.iter().find(|(_, worker)| worker.uuid == registration.uuid);
        let known = known.map(|(id, worker)| (*id, worker.clone()));
        let own = known.as_ref().map(|(id, _)| *id);
        let namesake = self.worker_named(registration.name.as_str()).map(|(id, _)| id);
        let namesake = namesake.filter(|id| Some(*id) != own);
        if namesake.is_some_and(|id| !self.is_abandoned(id)) {
            return Err(Rejection::NameTaken(registration.name));
        }
        self.check_gpus(own, &registration.gpus)?;
        if let Some((id, worker)) = &known
            && registration.epoch < worker.epoch
        {
            return Err(Rejection::StaleEpoch(*id));
        }

        let mut events = Vec::new();
        if let Some(id) = namesake {
            self.workers.delete(&id);
            events.push(Event::WorkerForgotten(id));
        }
        let id = own.unwrap_or_else(|| {
            self.counters.workers_registered += 1;
            WorkerId(self.counters.workers_registered)
        });
        let (mode, old_epoch, was_ephemeral, was_estranged) = match known {
            Some((_, worker)) => (worker.mode, worker.epoch, worker.ephemeral, worker.estranged),
            None => (Mode::Active, registration.epoch, true, false),
        };
        // After a new start of its machine nothing of before runs there.
        let estranged = was_estranged && registration.epoch == old_epoch;
        if registration.epoch > old_epoch {
            self.lose_attempts_on(id, "its machine started anew", &mut events);
        }
        // What runs there may still go by the longer time that a standing worker grants: it must not be given up sooner.
        let is_idle = self.attempts_on(id).next().is_none();
        let worker = Worker {
            uuid: registration.uuid,
            name: registration.name,
            epoch: registration.epoch,
            address: registration.address,
            version: registration.version,
            cpus: registration.cpus,
            memory: registration.memory,
            gpus: registration.gpus,
            labels: registration.labels,
            backends: registration.backends,
            ephemeral: registration.ephemeral && (was_ephemeral || is_idle),
            mode,
            link: Link::Connected,
            registered_at: self.counters.now,
            estranged,
        };
        self.workers.insert(id, worker);
        self.settle_doubts();
        events.push(Event::WorkerRegistered(id));
        self.promote_prefetched(id, &mut events);
        Ok(events)
    }

    /// Silent, with nothing left that might still run there: its name and its GPUs are free to be claimed.
    pub(in crate::state) fn is_abandoned(&self, id: WorkerId) -> bool {
        self.workers.get(&id).is_none_or(|worker| !worker.is_connected() && !worker.estranged)
            && self.attempts_on(id).next().is_none()
    }

    fn check_gpus(&self, own: Option<WorkerId>, gpus: &[Gpu]) -> Result<(), Rejection> {
        let mut seen = BTreeSet::new();
        if let Some(gpu) = gpus.iter().find(|gpu| !seen.insert(&gpu.uuid)) {
            return Err(Rejection::GpuClaimed(gpu.uuid.to_string()));
        }
        for (id, worker) in self.workers.iter() {
            if Some(*id) == own || self.is_abandoned(*id) {
                continue;
            }
            if let Some(gpu) = gpus.iter().find(|gpu| worker.gpu(&gpu.uuid).is_some()) {
                return Err(Rejection::GpuClaimed(gpu.uuid.to_string()));
            }
        }
        Ok(())
    }

    pub(super) fn update_gpus(&mut self, id: WorkerId, epoch: Epoch, gpus: Vec<Gpu>) -> Outcome {
        let worker = self.worker_in(id, epoch)?;
        self.check_gpus(Some(id), &gpus)?;
        self.workers.insert(id, Worker { gpus, ..worker });
        Ok(vec![Event::GpusUpdated(id)])
    }

    pub(super) fn silence_worker(&mut self, id: WorkerId, epoch: Epoch) -> Outcome {
        let worker = self.worker_in(id, epoch)?;
        if !worker.is_connected() {
            return Ok(Vec::new());
        }
        let link = Link::Silent { since: self.counters.now };
        self.workers.insert(id, Worker { link, ..worker });
        Ok(vec![Event::WorkerSilent(id)])
    }

    pub(super) fn reconnect_worker(&mut self, id: WorkerId, epoch: Epoch) -> Outcome {
        let worker = self.worker_in(id, epoch)?;
        if worker.is_connected() {
            return Ok(Vec::new());
        }
        // While it was away, and nothing of it ran, another worker may have come with its GPUs.
        self.check_gpus(Some(id), &worker.gpus)?;
        self.workers.insert(id, Worker { link: Link::Connected, ..worker });
        Ok(vec![Event::WorkerBack(id)])
    }

    pub(super) fn drain_worker(&mut self, id: WorkerId, reason: String) -> Outcome {
        let worker = self.worker(id)?.clone();
        let mode = Mode::Draining { reason, since: self.counters.now };
        self.workers.insert(id, Worker { mode, ..worker });
        Ok(vec![Event::WorkerDraining(id)])
    }

    pub(super) fn resume_worker(&mut self, id: WorkerId) -> Outcome {
        let worker = self.worker(id)?.clone();
        self.workers.insert(id, Worker { mode: Mode::Active, ..worker });
        Ok(vec![Event::WorkerResumed(id)])
    }

    pub(super) fn forget_worker(&mut self, id: WorkerId) -> Outcome {
        if self.worker(id)?.is_connected() {
            return Err(Rejection::WorkerConnected(id));
        }
        let mut events = Vec::new();
        self.lose_attempts_on(id, "an operator forgot its worker", &mut events);
        self.workers.delete(&id);
        self.settle_doubts();
        events.push(Event::WorkerForgotten(id));
        Ok(events)
    }

    fn worker(&self, id: WorkerId) -> Result<&Worker, Rejection> {
        self.workers.get(&id).ok_or(Rejection::UnknownWorker(id))
    }

    pub(super) fn worker_in(&self, id: WorkerId, epoch: Epoch) -> Result<Worker, Rejection> {
        let worker = self.worker(id)?;
        if worker.epoch != epoch {
            return Err(Rejection::StaleEpoch(id));
        }
        Ok(worker.clone())
    }
}
