//! The flags that describe a job: those of `drigs submit`, and of `#DRIGS` lines. Named after Slurm's where it has them.

use std::collections::BTreeSet;

use clap::{Parser, error::ErrorKind};

use crate::cli::spec::{
    Draft, Fault, Place,
    value::{self, Begin, Gpus, Nodes},
};
use crate::model::{
    Array, Backend, Bytes, ComputeCapability, Dependency, LostAfter, MilliCpus, Millis, RetryCause,
};

#[derive(Clone, Debug, Default, clap::Args)]
pub struct SpecFlags {
    /// What people call the job [default: the script's or the program's name]
    #[arg(short = 'J', long, value_name = "NAME", help_heading = "Job")]
    job_name: Option<String>,
    /// The queue to wait in
    #[arg(short = 'p', long, alias = "partition", value_name = "QUEUE", help_heading = "Job")]
    queue: Option<String>,
    /// 0 to 1000000; higher goes first
    #[arg(long, value_name = "N", value_parser = value::priority, allow_negative_numbers = true, help_heading = "Job")]
    priority: Option<u32>,
    /// Many tasks at once, each told its index in DRIGS_TASK_ID: 0-99, 1,5,9, 0-99%4 (four at a time)
    #[arg(short = 'a', long, value_name = "INDICES", value_parser = value::array, allow_hyphen_values = true, help_heading = "Job")]
    array: Option<Array>,
    /// Wait for other jobs: afterok:12:13,afterany:14 (afterok, afterany, afternotok)
    #[arg(short = 'd', long, value_name = "LIST", value_parser = dependencies, help_heading = "Job")]
    dependency: Option<Dependencies>,
    /// Not before: now+1h, 16:00, 2026-01-31T16:00
    #[arg(long, value_name = "TIME", value_parser = value::begin, help_heading = "Job")]
    begin: Option<Begin>,
    /// Wait until `drigs release`
    #[arg(long, help_heading = "Job")]
    hold: bool,
    /// Something to remember it by; workers must carry the label too
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = value::pair, help_heading = "Job")]
    labels: Vec<(String, String)>,

    /// CPUs of each node; fractions are fine
    #[arg(short = 'c', long, alias = "cpus", value_name = "N", value_parser = value::cpus, allow_negative_numbers = true, help_heading = "Resources")]
    cpus_per_task: Option<MilliCpus>,
    /// Memory of each node: 512M, 16GB (a bare number is of MiB)
    #[arg(long, value_name = "SIZE", value_parser = value::memory, allow_negative_numbers = true, help_heading = "Resources")]
    mem: Option<Bytes>,
    /// GPUs in all: 2, a100:2, A100:80GB:2
    #[arg(short = 'G', long, value_name = "GPUS", value_parser = value::gpus, allow_negative_numbers = true, help_heading = "Resources")]
    gpus: Option<Gpus>,
    /// The least memory a GPU must have; with --gpu-sharing, what is taken of it
    #[arg(long, value_name = "SIZE", value_parser = value::memory, allow_negative_numbers = true, help_heading = "Resources")]
    gpu_mem: Option<Bytes>,
    /// Others may use the same GPU beside it
    #[arg(long, help_heading = "Resources")]
    gpu_sharing: bool,
    /// Such as 8.0 for an A100
    #[arg(long, value_name = "VERSION", value_parser = value::compute_capability, help_heading = "Resources")]
    min_compute_capability: Option<ComputeCapability>,
    /// Ask for well-connected GPUs
    #[arg(long, help_heading = "Resources")]
    topology_aware: bool,
    /// How many workers it spans, or `any` for GPUs wherever they are
    #[arg(short = 'N', long, value_name = "N", value_parser = value::nodes, allow_negative_numbers = true, help_heading = "Resources")]
    nodes: Option<Nodes>,
    /// GPUs of each node: 4, a100:4
    #[arg(long, value_name = "GPUS", value_parser = value::gpus, allow_negative_numbers = true, help_heading = "Resources")]
    gpus_per_node: Option<Gpus>,

    /// Set a variable; NAME alone copies its present value. Jobs inherit nothing else from here
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", help_heading = "Running")]
    env: Vec<String>,
    /// Variables to set or copy, by commas: PATH,HF_HOME=/data (NONE: the default)
    #[arg(long, value_name = "LIST", help_heading = "Running")]
    export: Option<String>,
    /// Where to run [default: the present directory, where the worker has it too]
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Running")]
    chdir: Option<String>,
    /// native, docker or distributed
    #[arg(long, value_name = "NAME", value_parser = value::backend, help_heading = "Running")]
    backend: Option<Backend>,
    /// Run in a container of this image
    #[arg(long, value_name = "IMAGE", help_heading = "Running")]
    container: Option<String>,
    /// Show a directory of the worker in the container
    #[arg(long = "volume", value_name = "HOST:CONTAINER", value_parser = value::volume, help_heading = "Running")]
    volumes: Vec<(String, String)>,

    /// End it after: 90s, 30m, 4h, 2d, 1:30:00 (a bare number is of minutes)
    #[arg(short = 't', long, value_name = "TIME", value_parser = value::time_limit, allow_hyphen_values = true, help_heading = "Ending")]
    time: Option<Millis>,
    /// Try a task again up to N times
    #[arg(long, value_name = "N", value_parser = value::count, allow_negative_numbers = true, help_heading = "Ending")]
    retry: Option<u32>,
    /// Only after: failure, signal, oom, timeout, start-failed, exit:75
    #[arg(long, value_name = "CAUSES", value_parser = retry_causes, help_heading = "Ending")]
    retry_on: Option<RetryCauses>,
    /// What asks it to end
    #[arg(long, value_name = "SIGNAL", value_parser = value::signal, allow_negative_numbers = true, help_heading = "Ending")]
    signal: Option<i32>,
    /// From the signal to SIGKILL
    #[arg(long, value_name = "TIME", value_parser = value::seconds, allow_negative_numbers = true, help_heading = "Ending")]
    grace: Option<Millis>,
    /// How long it runs on while its worker hears from no controller: 5m, keep
    #[arg(long, value_name = "TIME", value_parser = value::lost_after, allow_negative_numbers = true, help_heading = "Ending")]
    lost_after: Option<LostAfter>,
    /// stop: the same with the shortest time; keep: without limit
    #[arg(long, value_name = "WHAT", value_parser = value::on_disconnect, conflicts_with = "lost_after", help_heading = "Ending")]
    on_disconnect: Option<LostAfter>,
}

/// A list that is one value to the command line.
#[derive(Clone, Debug)]
struct Dependencies(Vec<Dependency>);

#[derive(Clone, Debug)]
struct RetryCauses(BTreeSet<RetryCause>);

fn dependencies(text: &str) -> Result<Dependencies, String> {
    value::dependencies(text).map(Dependencies)
}

fn retry_causes(text: &str) -> Result<RetryCauses, String> {
    value::retry_causes(text).map(RetryCauses)
}

/// One `#DRIGS` line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct Directive {
    #[command(flatten)]
    flags: SpecFlags,
}

/// Looks up a variable of the submitting process.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl SpecFlags {
    /// Reads the words of one directive at `place`.
    pub fn from_directive(words: &[String], place: &Place) -> Result<SpecFlags, Fault> {
        Directive::try_parse_from(words)
            .map(|directive| directive.flags)
            .map_err(|error| place.fault(condensed(&error)))
    }

    /// What the flags say. `place` names where a flag stands, given its name.
    ///
    /// # Errors
    /// An environment variable that is to be copied does not exist, or a value says something twice.
    pub fn into_draft(
        self,
        environment: Environment<'_>,
        place: impl Fn(&'static str) -> Place,
    ) -> Result<Draft, Fault> {
        let mut draft = Draft::default();
        for (field, flag, said) in self.said() {
            if said {
                draft.places.insert(field, place(flag));
            }
        }
        for text in &self.env {
            let (name, value) =
                variable(text, environment).map_err(|it| place("--env").fault(it))?;
            draft.env.insert(name, value);
        }
        if let Some(list) = &self.export {
            let exported = exported(list, environment).map_err(|it| place("--export").fault(it))?;
            draft.env.extend(exported);
        }
        let gpus = self.gpus.unwrap_or_default();
        let each = self.gpus_per_node.unwrap_or_default();
        draft.name = self.job_name;
        draft.queue = self.queue;
        draft.priority = self.priority;
        draft.cpus = self.cpus_per_task;
        draft.memory = self.mem;
        draft.gpus = gpus.count;
        draft.gpus_per_node = each.count;
        draft.gpu_model = gpus.model.or(each.model);
        draft.gpu_memory = self.gpu_mem.or(gpus.memory).or(each.memory);
        draft.gpu_sharing = self.gpu_sharing.then_some(true);
        draft.min_compute_capability = self.min_compute_capability;
        draft.topology_aware = self.topology_aware.then_some(true);
        draft.nodes = self.nodes;
        draft.backend = self.backend;
        draft.working_dir = self.chdir;
        draft.image = self.container;
        draft.volumes = self.volumes.into_iter().collect();
        draft.time_limit = self.time;
        draft.retry_max = self.retry;
        draft.retry_on = self.retry_on.map(|causes| causes.0);
        draft.signal = self.signal;
        draft.grace = self.grace;
        draft.array = self.array;
        draft.dependencies = self.dependency.map(|list| list.0);
        draft.begin = self.begin;
        draft.lost_after = self.lost_after.or(self.on_disconnect);
        draft.held = self.hold.then_some(true);
        draft.labels = self.labels.into_iter().collect();
        Ok(draft)
    }

    /// Which flag says which field, and whether it does.
    fn said(&self) -> [(&'static str, &'static str, bool); 25] {
        [
            ("name", "--job-name", self.job_name.is_some()),
            ("queue", "--queue", self.queue.is_some()),
            ("priority", "--priority", self.priority.is_some()),
            ("array", "--array", self.array.is_some()),
            ("depends_on", "--dependency", self.dependency.is_some()),
            ("begin", "--begin", self.begin.is_some()),
            ("labels", "--label", !self.labels.is_empty()),
            ("cpus", "--cpus-per-task", self.cpus_per_task.is_some()),
            ("memory", "--mem", self.mem.is_some()),
            ("gpus", "--gpus-per-node", self.gpus_per_node.is_some()),
            ("gpus_per_node", "--gpus-per-node", self.gpus_per_node.is_some()),
            ("gpus", "--gpus", self.gpus.is_some()),
            ("gpu", "--gpus", self.gpus.is_some()),
            ("gpu_memory", "--gpu-mem", self.gpu_mem.is_some()),
            ("gpu_sharing", "--gpu-sharing", self.gpu_sharing),
            ("nodes", "--nodes", self.nodes.is_some()),
            ("env", "--env", !self.env.is_empty() || self.export.is_some()),
            ("working_dir", "--chdir", self.chdir.is_some()),
            ("container", "--container", self.container.is_some() || self.backend.is_some()),
            ("volumes", "--volume", !self.volumes.is_empty()),
            ("time_limit", "--time", self.time.is_some()),
            ("retry", "--retry", self.retry.is_some()),
            ("signal", "--signal", self.signal.is_some()),
            ("grace", "--grace", self.grace.is_some()),
            ("lost_after", "--lost-after", self.lost_after.is_some()),
        ]
    }
}

/// `NAME=VALUE`, or `NAME` with its present value.
fn variable(text: &str, environment: Environment<'_>) -> Result<(String, String), String> {
    if text.contains('=') {
        return value::pair(text);
    }
    match environment(text) {
        Some(value) => Ok((text.to_owned(), value)),
        None => Err(format!("`{text}` is not set here; give it a value ({text}=…)")),
    }
}

fn exported(list: &str, environment: Environment<'_>) -> Result<Vec<(String, String)>, String> {
    match list {
        "NONE" => Ok(Vec::new()),
        _ if list.split(',').any(|word| word == "ALL") => Err(String::from(
            "`ALL` would carry every secret of this shell along; name what the job needs",
        )),
        _ => list.split(',').map(|word| variable(word.trim(), environment)).collect(),
    }
}

/// A complaint of the command line's reader in one line: the flag, what is wrong with it, and what might have been meant.
pub fn condensed(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => {
            flag.split([' ', '=']).next().map(|it| it.trim_matches(['<', '>', '[', ']', '.']))
        }
        _ => None,
    };
    if let (ErrorKind::ValueValidation, Some(flag), Some(source)) =
        (error.kind(), flag, std::error::Error::source(error))
    {
        return format!("{flag}: {source}");
    }
    let rendered = error.to_string();
    let mut lines = rendered.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let named: Vec<&str> = rendered
        .lines()
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    let first = match first.ends_with(':') && !named.is_empty() {
        true => format!("{first} {}", named.join(", ")),
        false => first,
    };
    let tips = rendered.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    let tips = tips.filter(|tip| !tip.starts_with("to pass"));
    tips.fold(first, |all, tip| format!("{all}; {tip}"))
}
