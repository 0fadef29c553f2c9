//! What one worker can still give, and whether a request fits in it.

use crate::{
    model::{Bytes, Gpu, GpuGrant, MilliCpus, Request, Slice, Worker, WorkerId},
    scheduler::class::Class,
    state::State,
};

/// A worker and what nobody holds on it, with the placements of this round taken out.
#[derive(Clone, Debug)]
pub(super) struct Room<'a> {
    pub id: WorkerId,
    pub worker: &'a Worker,
    pub cpus: MilliCpus,
    pub memory: Bytes,
    /// The healthy ones.
    pub gpus: Vec<GpuRoom<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GpuRoom<'a> {
    pub gpu: &'a Gpu,
    /// VRAM that may still be shared out; the GPU is free as a whole when all of it is.
    pub left: Bytes,
}

/// How badly a request fits: the smallest is the best fit. First the VRAM of the GPUs it would take (a job that asks for
/// 16G stays off an 80G card, one that shares goes to the fullest card), then the free GPUs beside it (a job without GPUs
/// stays off GPU machines), then the share of CPU and memory that would be left over.
pub(super) type Misfit = (Bytes, usize, u64, WorkerId);

impl<'a> Room<'a> {
    pub fn of(state: &'a State, id: WorkerId) -> Option<Room<'a>> {
        let worker = state.workers.get(&id)?;
        let free = state.free(id)?;
        let gpus = worker.gpus.iter().filter(|gpu| gpu.is_healthy());
        let left = |gpu: &Gpu| free.gpus.get(&gpu.uuid).copied().unwrap_or_default();
        let gpus = gpus.map(|gpu| GpuRoom { gpu, left: left(gpu) }).collect();
        Some(Room { id, worker, cpus: free.cpus, memory: free.memory, gpus })
    }

    /// The same worker with nothing running on it; its sick GPUs stay out.
    pub fn emptied(&self) -> Room<'a> {
        let gpus = self.gpus.iter().map(|it| GpuRoom { gpu: it.gpu, left: it.gpu.memory });
        Room { cpus: self.worker.cpus, memory: self.worker.memory, gpus: gpus.collect(), ..*self }
    }

    /// Whether one node of the class would fit here now.
    pub fn fits(&self, class: &Class) -> bool {
        class.request.cpus <= self.cpus
            && class.request.memory <= self.memory
            && self.has_gpus(class.request)
            && class.admits(self.worker)
    }

    fn has_gpus(&self, request: &Request) -> bool {
        let wanted = request.gpus.count as usize;
        wanted == 0 || self.usable(request).take(wanted).count() == wanted
    }

    /// The GPUs that would do, as they stand now.
    pub fn usable(&self, request: &Request) -> impl Iterator<Item = &GpuRoom<'a>> {
        let share = request.gpu_share();
        self.gpus.iter().filter(move |it| it.can_give(share) && request.suits(it.gpu))
    }

    pub fn misfit(&self, class: &Class) -> Misfit {
        let request = class.request;
        let vram = match request.gpus.count {
            0 => Bytes(0),
            _ => self.usable(request).map(|it| it.left).min().unwrap_or_default(),
        };
        let spare = self.gpus.iter().filter(|it| it.is_free()).count();
        let left = permille(self.cpus.0 - request.cpus.0, self.worker.cpus.0)
            + permille(self.memory.0 - request.memory.0, self.worker.memory.0);
        (vram, spare, left, self.id)
    }

    /// What one node of the class would take here, with the best-fitting GPUs. `None` when it does not fit.
    pub fn slice(&self, class: &Class) -> Option<Slice> {
        if !self.fits(class) {
            return None;
        }
        let request = class.request;
        let mut gpus: Vec<&GpuRoom> = match request.gpus.count {
            0 => Vec::new(),
            _ => self.usable(request).collect(),
        };
        gpus.sort_by_key(|it| (it.left, it.gpu.index));
        gpus.truncate(request.gpus.count as usize);
        let share = request.gpu_share();
        Some(Slice {
            worker: self.id,
            epoch: self.worker.epoch,
            cpus: request.cpus,
            memory: request.memory,
            gpus: gpus.into_iter().map(|it| GpuGrant { gpu: it.gpu.uuid.clone(), share }).collect(),
            first_rank: 0,
            ranks: 1,
        })
    }

    pub fn take(&mut self, slice: &Slice) {
        self.cpus = self.cpus - slice.cpus;
        self.memory = self.memory - slice.memory;
        self.shift_gpus(slice, |left, _, share| share.map_or(Bytes(0), |share| left - share));
    }

    /// What `slice` holds has come free.
    pub fn give_back(&mut self, slice: &Slice) {
        self.cpus = (self.cpus + slice.cpus).min(self.worker.cpus);
        self.memory = (self.memory + slice.memory).min(self.worker.memory);
        self.shift_gpus(slice, |left, all, share| share.map_or(all, |share| left + share).min(all));
    }

    fn shift_gpus(&mut self, slice: &Slice, left: impl Fn(Bytes, Bytes, Option<Bytes>) -> Bytes) {
        for grant in &slice.gpus {
            for room in self.gpus.iter_mut().filter(|it| it.gpu.uuid == grant.gpu) {
                room.left = left(room.left, room.gpu.memory, grant.share);
            }
        }
    }
}

impl GpuRoom<'_> {
    pub fn is_free(&self) -> bool {
        self.left == self.gpu.memory
    }

    /// All of it for `None`, otherwise so much of its VRAM.
    fn can_give(&self, share: Option<Bytes>) -> bool {
        match share {
            None => self.is_free(),
            Some(share) => share <= self.left,
        }
    }
}

fn permille(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1000 / u128::from(whole.max(1))) as u64
}
