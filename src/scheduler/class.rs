//! What a task asks for, without who asks: equal requests share one answer.

use std::collections::BTreeMap;

use crate::model::{Backend, Bytes, Gpu, JobSpec, Layout, Request, Worker};

/// Tasks of one class fit in the same places: once one of them found no room, none of the others will in this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class<'a> {
    pub request: &'a Request,
    pub layout: Layout,
    pub backend: Backend,
    pub labels: &'a BTreeMap<String, String>,
}

impl<'a> Class<'a> {
    pub fn of(spec: &'a JobSpec) -> Self {
        Class {
            request: &spec.request,
            layout: spec.layout,
            backend: spec.backend,
            labels: &spec.labels,
        }
    }

    /// How many workers it needs at one time. [`Layout::Anywhere`] is placed on one worker or not at all.
    pub fn nodes(&self) -> usize {
        match self.layout {
            Layout::Single | Layout::Anywhere => 1,
            Layout::Nodes(nodes) => nodes.max(1) as usize,
        }
    }

    /// Whether `worker` is of the right kind: what no free room can change.
    pub fn admits(&self, worker: &Worker) -> bool {
        worker.backends.contains(&self.backend) && self.missing_label(worker).is_none()
    }

    pub fn missing_label(&self, worker: &Worker) -> Option<(&'a String, &'a String)> {
        self.labels.iter().find(|(key, value)| worker.labels.get(*key) != Some(*value))
    }

    /// Whether an idle `worker` with all its GPUs in health could run one node of it.
    pub fn could_run_on(&self, worker: &Worker) -> bool {
        self.admits(worker)
            && self.request.cpus <= worker.cpus
            && self.request.memory <= worker.memory
            && self.gpus_of_its_kind(worker).count() >= self.request.gpus.count as usize
    }

    pub fn gpus_of_its_kind<'w>(&self, worker: &'w Worker) -> impl Iterator<Item = &'w Gpu> {
        worker.gpus.iter().filter(|gpu| self.request.suits(gpu))
    }
}

impl Request {
    /// Whether `gpu` is of the kind asked for, with VRAM enough.
    pub(super) fn suits(&self, gpu: &Gpu) -> bool {
        let wanted = &self.gpus;
        gpu.memory > Bytes(0)
            && wanted.memory.is_none_or(|memory| memory <= gpu.memory)
            && wanted.model.as_ref().is_none_or(|model| contains_ignoring_case(&gpu.model, model))
            && wanted
                .min_compute_capability
                .is_none_or(|least| gpu.compute_capability.is_some_and(|has| has >= least))
    }

    /// The VRAM taken of each GPU when others may use it too. Without a declared amount there is nothing to share by:
    /// the GPU is taken whole.
    pub(super) fn gpu_share(&self) -> Option<Bytes> {
        self.gpus.memory.filter(|memory| self.gpus.sharing && *memory > Bytes(0))
    }
}

fn contains_ignoring_case(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}
