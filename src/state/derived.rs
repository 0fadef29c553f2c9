//! Indexes that follow from the rows. Never stored; kept in step by the only two functions that change rows of jobs
//! and tasks, and compared with a fresh build by `check_invariants`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::model::{
    AttemptId, Bytes, GpuUuid, IdempotencyKey, Job, JobId, JobSpec, MilliCpus, Slice, Task, TaskId,
    TaskStatus, Timestamp, Worker, WorkerId,
};
use crate::state::State;

/// Where a job stands in line: the smallest is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePlace {
    pub queue_priority: Reverse<u32>,
    pub priority: Reverse<u32>,
    pub job: JobId,
    /// Equal for jobs that ask for the same, so that the planner can pass over them without a look at their rows.
    pub request: RequestMark,
}

/// Stands for what each task of a job asks of workers. Never leaves this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestMark(u64);

impl RequestMark {
    pub fn of(spec: &JobSpec) -> Self {
        let mut hasher = DefaultHasher::new();
        (&spec.request, spec.layout, spec.backend, &spec.labels).hash(&mut hasher);
        RequestMark(hasher.finish())
    }
}

/// What is held on one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: BTreeMap<GpuUuid, GpuUse>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GpuUse {
    pub whole: u32,
    pub shares: u32,
    pub shared: Bytes,
}

/// What is left on one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    pub cpus: MilliCpus,
    pub memory: Bytes,
    /// Per GPU the VRAM that may still be shared out. A whole GPU is free when all of it is.
    pub gpus: BTreeMap<GpuUuid, Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Derived {
    pub used: BTreeMap<WorkerId, Used>,
    /// Active attempts on each worker, prefetched ones included.
    pub on_worker: BTreeMap<WorkerId, BTreeSet<AttemptId>>,
    /// Of those, the ones that wait for their turn, in the order in which they get it.
    pub prefetched: BTreeMap<WorkerId, BTreeSet<(Timestamp, AttemptId)>>,
    /// Active tasks per job, and the GPUs that each queue's tasks hold.
    pub active: BTreeMap<JobId, u32>,
    /// Tasks that wait for another attempt.
    pub requeued: BTreeSet<TaskId>,
    /// Jobs with at least one task that waits to be started, in serving order.
    pub pending: BTreeSet<QueuePlace>,
    pub dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Finished jobs still in memory, oldest end first.
    pub finished: BTreeSet<(Timestamp, JobId)>,
    /// Idempotency keys by age.
    pub key_ages: BTreeSet<(Timestamp, IdempotencyKey)>,
}

impl Derived {
    pub fn of(state: &State) -> Derived {
        let mut derived = Derived::default();
        for (id, task) in state.tasks.iter() {
            derived.add_task(*id, task);
        }
        for (id, job) in state.jobs.iter() {
            derived.add_job(*id, job, state.queue_priority(job));
        }
        for (key, usage) in state.keys.iter() {
            derived.key_ages.insert((usage.at, key.clone()));
        }
        for id in derived.requeued.clone() {
            if let Some(job) = state.jobs.get(&id.job) {
                derived.pending.insert(place(id.job, job, state.queue_priority(job)));
            }
        }
        derived
    }

    pub fn add_task(&mut self, id: TaskId, task: &Task) {
        self.shift_task(id, task, true);
    }

    pub fn remove_task(&mut self, id: TaskId, task: &Task) {
        self.shift_task(id, task, false);
    }

    fn shift_task(&mut self, id: TaskId, task: &Task, add: bool) {
        let attempt = match &task.status {
            TaskStatus::Queued { .. } => return toggle(&mut self.requeued, id, add),
            TaskStatus::Ended { .. } => return,
            TaskStatus::Active(attempt) => attempt,
        };
        let attempt_id = AttemptId { task: id, number: attempt.number };
        count(&mut self.active, id.job, add);
        for part in attempt.parts.iter().filter(|part| part.is_live()) {
            let worker = part.slice.worker;
            toggle_in(&mut self.on_worker, worker, attempt_id, add);
            if attempt.prefetched {
                toggle_in(&mut self.prefetched, worker, (attempt.placed_at, attempt_id), add);
            } else {
                self.shift_used(&part.slice, add);
            }
        }
    }

    fn shift_used(&mut self, slice: &Slice, add: bool) {
        let used = self.used.entry(slice.worker).or_default();
        used.shift(slice, add);
        if *used == Used::default() {
            self.used.remove(&slice.worker);
        }
    }

    pub fn add_job(&mut self, id: JobId, job: &Job, queue_priority: u32) {
        if !job.queued.is_empty() {
            self.pending.insert(place(id, job, queue_priority));
        }
        for on in job.waits_for.keys() {
            self.dependents.entry(*on).or_default().insert(id);
        }
        if let Some(at) = job.finished_at {
            self.finished.insert((at, id));
        }
    }

    pub fn remove_job(&mut self, id: JobId, job: &Job, queue_priority: u32) {
        self.pending.remove(&place(id, job, queue_priority));
        for on in job.waits_for.keys() {
            toggle_in(&mut self.dependents, *on, id, false);
        }
        if let Some(at) = job.finished_at {
            self.finished.remove(&(at, id));
        }
    }
}

impl Used {
    pub fn add(&mut self, slice: &Slice) {
        self.shift(slice, true);
    }

    fn shift(&mut self, slice: &Slice, add: bool) {
        if add {
            self.cpus += slice.cpus;
            self.memory += slice.memory;
        } else {
            self.cpus = self.cpus - slice.cpus;
            self.memory = self.memory - slice.memory;
        }
        for grant in &slice.gpus {
            let usage = self.gpus.entry(grant.gpu.clone()).or_default();
            match (grant.share, add) {
                (None, true) => usage.whole += 1,
                (None, false) => usage.whole -= 1,
                (Some(share), true) => {
                    usage.shares += 1;
                    usage.shared += share;
                }
                (Some(share), false) => {
                    usage.shares -= 1;
                    usage.shared = usage.shared - share;
                }
            }
            if *usage == GpuUse::default() {
                self.gpus.remove(&grant.gpu);
            }
        }
    }

    /// What `worker` has beyond this. Sick GPUs are left out: they have nothing to give.
    pub fn left_of(&self, worker: &Worker) -> Free {
        let left = |uuid: &GpuUuid, total: Bytes| match self.gpus.get(uuid) {
            None => total,
            Some(usage) if usage.whole > 0 => Bytes(0),
            Some(usage) => total - usage.shared,
        };
        Free {
            cpus: worker.cpus - self.cpus,
            memory: worker.memory - self.memory,
            gpus: worker
                .gpus
                .iter()
                .filter(|gpu| gpu.is_healthy())
                .map(|gpu| (gpu.uuid.clone(), left(&gpu.uuid, gpu.memory)))
                .collect(),
        }
    }
}

impl Free {
    /// Whether the whole slice still fits on `worker`, of which this is left.
    pub fn has_room_for(&self, slice: &Slice, worker: &Worker) -> bool {
        let mut left = self.gpus.clone();
        slice.cpus <= self.cpus
            && slice.memory <= self.memory
            && slice.gpus.iter().all(|grant| {
                let Some(gpu) = worker.gpu(&grant.gpu) else { return false };
                let Some(free) = left.get_mut(&grant.gpu) else { return false };
                let fits = match grant.share {
                    None => *free == gpu.memory && gpu.memory > Bytes(0),
                    // A share of nothing would leave the GPU looking free.
                    Some(share) => share > Bytes(0) && share <= *free,
                };
                *free = grant.share.map_or(Bytes(0), |share| *free - share);
                fits
            })
    }

    /// Takes the slice out of what is left.
    pub fn take(&mut self, slice: &Slice) {
        self.cpus = self.cpus - slice.cpus;
        self.memory = self.memory - slice.memory;
        for grant in &slice.gpus {
            if let Some(free) = self.gpus.get_mut(&grant.gpu) {
                *free = grant.share.map_or(Bytes(0), |share| *free - share);
            }
        }
    }
}

pub(super) fn place(id: JobId, job: &Job, queue_priority: u32) -> QueuePlace {
    QueuePlace {
        queue_priority: Reverse(queue_priority),
        priority: Reverse(job.spec.priority),
        job: id,
        request: RequestMark::of(&job.spec),
    }
}

fn toggle<T: Ord>(set: &mut BTreeSet<T>, item: T, add: bool) {
    if add {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

fn toggle_in<K: Ord + Copy, T: Ord>(
    sets: &mut BTreeMap<K, BTreeSet<T>>,
    key: K,
    item: T,
    add: bool,
) {
    let set = sets.entry(key).or_default();
    toggle(set, item, add);
    if set.is_empty() {
        sets.remove(&key);
    }
}

fn count<K: Ord + Copy>(counts: &mut BTreeMap<K, u32>, key: K, add: bool) {
    let counter = counts.entry(key).or_default();
    *counter = if add { *counter + 1 } else { *counter - 1 };
    if *counter == 0 {
        counts.remove(&key);
    }
}
