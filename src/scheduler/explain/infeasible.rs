//! Requests that nothing in this cluster could ever meet.

use super::{obstacle::kind_of_gpu, plural};
use crate::{
    model::{Bytes, JobSpec, MilliCpus, Worker},
    scheduler::class::Class,
    state::State,
};

/// Why no registered worker, whatever its present state, could ever meet the request; `None` when some could, or when
/// there is no worker to judge by.
pub fn infeasible(state: &State, spec: &JobSpec) -> Option<String> {
    let class = Class::of(spec);
    let nodes = class.nodes();
    let able = state.workers.values().filter(|worker| class.could_run_on(worker)).count();
    if able >= nodes || state.workers.is_empty() {
        return None;
    }
    let shortage = shortage(state, &class);
    Some(match (nodes, able) {
        (1, _) => format!("no worker could ever run it: {shortage}"),
        (_, 0) => format!("none of the {nodes} nodes could ever run: {shortage}"),
        _ => format!(
            "it asks for {nodes} nodes, and only {} could ever run one of them",
            plural(able as u64, "worker")
        ),
    })
}

/// What is asked for beyond the most that one worker has, or that no one worker has all of it.
fn shortage(state: &State, class: &Class) -> String {
    let all: Vec<&Worker> = state.workers.values().collect();
    let admitted: Vec<&Worker> = all.iter().copied().filter(|it| class.admits(it)).collect();
    if admitted.is_empty() {
        return wrong_kind(&all, class);
    }
    let request = class.request;
    let most_cpus = admitted.iter().map(|it| it.cpus).max().unwrap_or(MilliCpus(0));
    let most_memory = admitted.iter().map(|it| it.memory).max().unwrap_or(Bytes(0));
    let most_gpus = admitted.iter().map(|it| class.gpus_of_its_kind(it).count()).max().unwrap_or(0);
    let mut short = Vec::new();
    if request.cpus > most_cpus {
        short.push(format!("asks for {} CPUs, the largest worker has {most_cpus}", request.cpus));
    }
    if request.memory > most_memory {
        short.push(format!(
            "asks for {} of memory, the largest worker has {most_memory}",
            request.memory
        ));
    }
    if request.gpus.count as usize > most_gpus {
        short.push(format!(
            "asks for {}{}, the largest worker has {most_gpus} of them",
            plural(request.gpus.count.into(), "GPU"),
            kind_of_gpu(request)
        ));
    }
    match short.is_empty() {
        true => String::from("each thing is somewhere, but no one worker has all of it"),
        false => short.join("; "),
    }
}

fn wrong_kind(workers: &[&Worker], class: &Class) -> String {
    let backend = workers.iter().any(|it| it.backends.contains(&class.backend));
    let labels: Vec<String> =
        class.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    match backend {
        false => format!("none runs {:?} jobs", class.backend).to_lowercase(),
        true => format!("none that would do carries {}", labels.join(", ")),
    }
}
