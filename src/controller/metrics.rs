//! What Prometheus scrapes. Counts come from the state at the time of the scrape; only what has no row is kept here.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::raft::Raft;
use crate::rpc::api::{GpuView, StatusView};

/// The numbers that have no row in the state.
#[derive(Debug)]
pub struct Metrics {
    /// How long the leader takes to decide, in seconds.
    pub scheduling_latency: Histogram,
    pub leader_changes: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct GpuLabels {
    worker_id: String,
    device_id: String,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            scheduling_latency: Histogram::new(exponential_buckets(0.000_05, 2.0, 18)),
            leader_changes: Counter::default(),
        }
    }
}

/// Everything, in Prometheus' text format.
pub fn render(metrics: &Metrics, status: &StatusView, gpus: &[GpuView], raft: &Raft) -> String {
    let mut registry = Registry::with_prefix("drigs");
    let tasks = &status.tasks;
    let gauges = [
        ("active_workers", "Workers that a leader hears from", u64::from(status.workers_ready)),
        ("total_cpus", "CPU cores of connected workers", status.cpus.0 / 1000),
        ("total_gpus", "GPUs of connected workers", u64::from(status.gpus)),
        ("used_gpus", "GPUs held by attempts", u64::from(status.gpus_used)),
        ("queued_jobs", "Tasks that wait for room", tasks.queued),
        ("pending_jobs", "Tasks that are held or blocked", tasks.pending),
        ("running_jobs", "Tasks that run", tasks.running),
        ("recovering_jobs", "Tasks whose worker is out of touch", tasks.recovering),
    ];
    for (name, help, value) in gauges {
        registry.register(name, help, ConstGauge::new(value as i64));
    }
    let counters = [
        ("jobs_submitted", "Jobs taken", status.jobs_submitted),
        ("completed_jobs", "Tasks that completed", tasks.completed),
        ("failed_jobs", "Tasks that failed", tasks.failed),
        ("cancelled_jobs", "Tasks that were cancelled", tasks.cancelled),
    ];
    for (name, help, value) in counters {
        registry.register(name, help, ConstCounter::new(value));
    }
    register_gpus(&mut registry, gpus);
    register_raft(&mut registry, raft);
    let latency = metrics.scheduling_latency.clone();
    registry.register("scheduling_latency_seconds", "How long the leader takes to decide", latency);
    let changes = metrics.leader_changes.clone();
    registry.register("raft_leader_changes", "Changes of leader seen here", changes);
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

fn register_gpus(registry: &mut Registry, gpus: &[GpuView]) {
    let total = Family::<GpuLabels, Gauge>::default();
    let used = Family::<GpuLabels, Gauge>::default();
    for gpu in gpus {
        let labels = GpuLabels { worker_id: gpu.worker.clone(), device_id: gpu.device_id.clone() };
        let free = gpu.available_memory_bytes.0;
        total.get_or_create(&labels).set(gpu.total_memory_bytes.0 as i64);
        used.get_or_create(&labels).set(gpu.total_memory_bytes.0.saturating_sub(free) as i64);
    }
    registry.register("gpu_memory_total_bytes", "VRAM of each GPU", total);
    registry.register("gpu_memory_used_bytes", "VRAM given out on each GPU", used);
}

fn register_raft(registry: &mut Registry, raft: &Raft) {
    let status = raft.status();
    let leads = i64::from(raft.leadership().borrow().is_me);
    registry.register("raft_is_leader", "1 on the leader", ConstGauge::new(leads));
    registry.register("raft_term", "Raft's term", ConstGauge::new(status.term as i64));
    let applied = status.applied.unwrap_or(0) as i64;
    registry.register("raft_applied_index", "Last applied entry", ConstGauge::new(applied));
}
