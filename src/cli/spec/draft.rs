//! What one source said about a job, laid over what another said, and completed to a spec.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::cli::spec::{
    Fault, Place, Surroundings,
    value::{Begin, Nodes},
};
use crate::model::{
    Array, Backend, Bytes, Checkpoint, ComputeCapability, Container, Dependency, Distribution,
    GpuRequest, JobSpec, Layout, LostAfter, MilliCpus, Millis, QueueName, Request, Retry,
    RetryCause, Stop,
};

/// Everything is optional: what is left out is left to the source below, and at the end to the defaults.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub name: Option<String>,
    pub queue: Option<String>,
    pub priority: Option<u32>,
    pub cpus: Option<MilliCpus>,
    pub memory: Option<Bytes>,
    /// In all, over all nodes.
    pub gpus: Option<u32>,
    pub gpus_per_node: Option<u32>,
    pub gpu_memory: Option<Bytes>,
    pub gpu_model: Option<String>,
    pub gpu_sharing: Option<bool>,
    pub min_compute_capability: Option<ComputeCapability>,
    pub topology_aware: Option<bool>,
    pub nodes: Option<Nodes>,
    pub backend: Option<Backend>,
    pub command: Option<Vec<String>>,
    /// Follow the command.
    pub args: Option<Vec<String>>,
    pub env: BTreeMap<String, String>,
    pub working_dir: Option<String>,
    pub image: Option<String>,
    pub volumes: BTreeMap<String, String>,
    pub distribution: DistributionDraft,
    pub checkpoint: CheckpointDraft,
    pub time_limit: Option<Millis>,
    pub retry_max: Option<u32>,
    pub retry_on: Option<BTreeSet<RetryCause>>,
    pub signal: Option<i32>,
    pub grace: Option<Millis>,
    pub array: Option<Array>,
    pub dependencies: Option<Vec<Dependency>>,
    pub begin: Option<Begin>,
    pub lost_after: Option<LostAfter>,
    pub held: Option<bool>,
    pub labels: BTreeMap<String, String>,
    /// Where each field was said, by the field's name in a spec file.
    pub places: BTreeMap<&'static str, Place>,
}

#[derive(Clone, Debug, Default)]
pub struct DistributionDraft {
    pub mode: Option<String>,
    pub world_size: Option<u32>,
    pub master_addr: Option<String>,
    pub master_port: Option<u16>,
}

#[derive(Clone, Debug, Default)]
pub struct CheckpointDraft {
    pub enabled: Option<bool>,
    pub interval: Option<Millis>,
    pub dir: Option<String>,
}

/// How often checkpoints are made unless a spec says otherwise, as in the original DRIGS.
const CHECKPOINT_INTERVAL: Millis = Millis::from_secs(300);

/// Tells a job where it was submitted. The worker starts it there if that directory exists on its machine and the spec names
/// none, for there need not be a shared file system.
pub const SUBMIT_DIR: &str = "DRIGS_SUBMIT_DIR";

impl Draft {
    /// Lays this draft over a weaker one. Environments, labels and volumes are joined.
    pub fn over(self, below: Draft) -> Draft {
        Draft {
            name: self.name.or(below.name),
            queue: self.queue.or(below.queue),
            priority: self.priority.or(below.priority),
            cpus: self.cpus.or(below.cpus),
            memory: self.memory.or(below.memory),
            gpus: self.gpus.or(below.gpus),
            gpus_per_node: self.gpus_per_node.or(below.gpus_per_node),
            gpu_memory: self.gpu_memory.or(below.gpu_memory),
            gpu_model: self.gpu_model.or(below.gpu_model),
            gpu_sharing: self.gpu_sharing.or(below.gpu_sharing),
            min_compute_capability: self.min_compute_capability.or(below.min_compute_capability),
            topology_aware: self.topology_aware.or(below.topology_aware),
            nodes: self.nodes.or(below.nodes),
            backend: self.backend.or(below.backend),
            args: self.args.or(if self.command.is_some() { None } else { below.args }),
            command: self.command.or(below.command),
            env: joined(below.env, self.env),
            working_dir: self.working_dir.or(below.working_dir),
            image: self.image.or(below.image),
            volumes: joined(below.volumes, self.volumes),
            distribution: self.distribution.over(below.distribution),
            checkpoint: self.checkpoint.over(below.checkpoint),
            time_limit: self.time_limit.or(below.time_limit),
            retry_max: self.retry_max.or(below.retry_max),
            retry_on: self.retry_on.or(below.retry_on),
            signal: self.signal.or(below.signal),
            grace: self.grace.or(below.grace),
            array: self.array.or(below.array),
            dependencies: self.dependencies.or(below.dependencies),
            begin: self.begin.or(below.begin),
            lost_after: self.lost_after.or(below.lost_after),
            held: self.held.or(below.held),
            labels: joined(below.labels, self.labels),
            places: joined(below.places, self.places),
        }
    }

    /// Fills in the defaults and checks the whole.
    ///
    /// # Errors
    /// Names the place of the first thing that is wrong.
    pub fn finish(self, around: &Surroundings) -> Result<JobSpec, Fault> {
        let places = self.places.clone();
        let spec = self.complete(around)?;
        spec.check().map_err(|fault| place_of(&places, fault.field).fault(fault.message))?;
        Ok(spec)
    }

    fn complete(self, around: &Surroundings) -> Result<JobSpec, Fault> {
        let (layout, gpus) = self.layout()?;
        let begin = match self.begin {
            Some(begin) => Some(
                begin
                    .at(around.now, &around.time_zone)
                    .map_err(|message| self.place("begin").fault(message))?,
            ),
            None => None,
        };
        let Some(mut command) = self.command else {
            return Err(place_of(&self.places, "command").fault(
                "nothing to run: give the command after `--`, a script, or a file with `execution.entrypoint`",
            ));
        };
        command.extend(self.args.unwrap_or_default());
        if self.image.is_none() && !self.volumes.is_empty() {
            let place = place_of(&self.places, "volumes");
            return Err(place.fault("is for containers, but no image is named"));
        }
        let container = self.image.map(|image| Container { image, volumes: self.volumes });
        let default_backend = if container.is_some() { Backend::Docker } else { Backend::Native };
        let world_size = gpus.count.max(1).saturating_mul(layout_nodes(layout));
        let mut env = self.env;
        env.entry(SUBMIT_DIR.to_owned()).or_insert_with(|| around.directory.clone());
        Ok(JobSpec {
            name: self.name.unwrap_or_else(|| name_of(&command)),
            queue: self.queue.map_or_else(QueueName::default, QueueName::new),
            priority: self.priority.unwrap_or_default(),
            request: Request {
                cpus: self.cpus.unwrap_or(MilliCpus::from_cores(1)),
                memory: self.memory.unwrap_or_default(),
                gpus,
            },
            layout,
            backend: self.backend.unwrap_or(default_backend),
            command,
            env,
            working_dir: self.working_dir.map(|dir| absolute(&dir, &around.directory)),
            container,
            distribution: self.distribution.complete(world_size),
            checkpoint: self.checkpoint.complete(),
            time_limit: self.time_limit,
            retry: Retry {
                max: self.retry_max.unwrap_or_default(),
                on: self.retry_on.unwrap_or_default(),
            },
            stop: Stop {
                signal: self.signal.unwrap_or(JobSpec::SIGTERM),
                grace: self.grace.unwrap_or(JobSpec::DEFAULT_GRACE),
            },
            array: self.array,
            dependencies: self.dependencies.unwrap_or_default(),
            begin,
            lost_after: self.lost_after,
            held: self.held.unwrap_or_default(),
            labels: self.labels,
        })
    }

    fn layout(&self) -> Result<(Layout, GpuRequest), Fault> {
        let layout = match self.nodes {
            None | Some(Nodes::Count(1)) => Layout::Single,
            Some(Nodes::Count(nodes)) => Layout::Nodes(nodes),
            Some(Nodes::Any) => Layout::Anywhere,
        };
        let request = GpuRequest {
            count: self.gpus_each(layout)?,
            memory: self.gpu_memory.filter(|memory| *memory != Bytes(0)),
            sharing: self.gpu_sharing.unwrap_or_default(),
            model: self.gpu_model.clone(),
            min_compute_capability: self.min_compute_capability,
            topology_aware: self.topology_aware.unwrap_or_default(),
        };
        Ok((layout, request))
    }

    /// How many GPUs each node gives. Who describes a GPU without saying how many wants one.
    fn gpus_each(&self, layout: Layout) -> Result<u32, Fault> {
        let nodes = layout_nodes(layout);
        let described = self.gpu_memory.is_some_and(|memory| memory != Bytes(0))
            || self.gpu_model.is_some()
            || self.min_compute_capability.is_some()
            || self.gpu_sharing == Some(true);
        match (self.gpus_per_node, self.gpus) {
            (Some(_), _) if layout == Layout::Anywhere => Err(self.place("gpus_per_node").fault(
                "does not go with nodes `any`, which takes GPUs wherever they are; say how many in all",
            )),
            (Some(each), Some(all)) if each.checked_mul(nodes) != Some(all) => {
                Err(self.place("gpus_per_node").fault(format!(
                    "{each} on each of {nodes} nodes is not the {all} asked for in all; leave one out"
                )))
            }
            (Some(each), _) => Ok(each),
            (None, Some(all)) if all % nodes.max(1) != 0 => Err(self.place("gpus").fault(format!(
                "{all} GPUs do not divide over {nodes} nodes; say how many each gives (gpus per node)"
            ))),
            (None, Some(all)) => Ok(all / nodes.max(1)),
            (None, None) => Ok(u32::from(described)),
        }
    }

    fn place(&self, field: &'static str) -> Place {
        place_of(&self.places, field)
    }
}

impl DistributionDraft {
    fn over(self, below: DistributionDraft) -> DistributionDraft {
        DistributionDraft {
            mode: self.mode.or(below.mode),
            world_size: self.world_size.or(below.world_size),
            master_addr: self.master_addr.or(below.master_addr),
            master_port: self.master_port.or(below.master_port),
        }
    }

    /// The original's default, one process by itself, is no distribution at all.
    fn complete(self, world_size: u32) -> Option<Distribution> {
        let mode = self.mode.filter(|mode| mode != "single");
        if mode.is_none() && self.world_size.is_none_or(|size| size <= 1) {
            return None;
        }
        Some(Distribution {
            mode: mode.unwrap_or_else(|| String::from("ddp")),
            world_size: self.world_size.unwrap_or(world_size),
            master_addr: self.master_addr,
            master_port: self.master_port,
        })
    }
}

impl CheckpointDraft {
    fn over(self, below: CheckpointDraft) -> CheckpointDraft {
        CheckpointDraft {
            enabled: self.enabled.or(below.enabled),
            interval: self.interval.or(below.interval),
            dir: self.dir.or(below.dir),
        }
    }

    /// Who says how wants them, unless `enabled` says otherwise.
    fn complete(self) -> Option<Checkpoint> {
        let wanted = self.enabled.unwrap_or(self.interval.is_some() || self.dir.is_some());
        let interval = self.interval.unwrap_or(CHECKPOINT_INTERVAL);
        wanted.then_some(Checkpoint { interval, dir: self.dir })
    }
}

fn layout_nodes(layout: Layout) -> u32 {
    match layout {
        Layout::Nodes(nodes) => nodes,
        Layout::Single | Layout::Anywhere => 1,
    }
}

fn place_of(places: &BTreeMap<&'static str, Place>, field: &'static str) -> Place {
    places.get(field).cloned().unwrap_or_else(|| Place::new(field))
}

/// What a person would call it: the script if one is named, else the program.
fn name_of(command: &[String]) -> String {
    let is_script = |word: &&String| word.ends_with(".py") || word.ends_with(".sh");
    let word = command.iter().take(4).find(is_script).or(command.first());
    let file = word.and_then(|word| Path::new(word).file_name()?.to_str());
    file.unwrap_or("job").chars().take(64).collect()
}

fn absolute(path: &str, directory: &str) -> String {
    let joined = Path::new(directory).join(path);
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.to_str().unwrap_or(path).split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn joined<K: Ord, V>(mut below: BTreeMap<K, V>, above: BTreeMap<K, V>) -> BTreeMap<K, V> {
    below.extend(above);
    below
}
