//! What keeps one worker from running a task, and which workers say the same.

use super::{cpus, plural};
use crate::{
    model::{Link, Mode, Request, WorkerId},
    scheduler::{View, class::Class, room::Room},
    state::State,
};

/// Names told of one group of workers.
const MOST_NAMES: usize = 4;

/// Why a worker does not run it, in the order in which people are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// It has no room for now: what is missing.
    NoRoom(String),
    /// It takes no work for now.
    Away(String),
    /// It could never run it.
    Unfit(String),
    /// None: it has room.
    Room,
}

pub(super) fn obstacle(state: &State, view: &View, id: WorkerId, class: &Class) -> Obstacle {
    let Some(room) = Room::of(state, id) else { return Obstacle::Away(String::from("gone")) };
    if let Some(why) = unfit(&room, class) {
        return Obstacle::Unfit(why);
    }
    if let Mode::Draining { reason, .. } = &room.worker.mode {
        return Obstacle::Away(format!("drained ({reason})"));
    }
    if let Link::Silent { since } = room.worker.link {
        return Obstacle::Away(format!("silent for {}", view.now.since(since)));
    }
    if !view.in_touch.contains(&id) {
        return Obstacle::Away(String::from("not heard from yet"));
    }
    match missing(&room, class.request) {
        missing if missing.is_empty() => Obstacle::Room,
        missing => Obstacle::NoRoom(missing.join(", ")),
    }
}

fn unfit(room: &Room, class: &Class) -> Option<String> {
    let (worker, request) = (room.worker, class.request);
    if !worker.backends.contains(&class.backend) {
        return Some(format!("no {:?} jobs", class.backend).to_lowercase());
    }
    if let Some((key, value)) = class.missing_label(worker) {
        return Some(format!("not labelled {key}={value}"));
    }
    if class.could_run_on(worker) {
        return None;
    }
    if request.cpus > worker.cpus {
        return Some(format!("{} of {} asked", cpus(worker.cpus), request.cpus));
    }
    if request.memory > worker.memory {
        return Some(format!("{} memory of {} asked", worker.memory, request.memory));
    }
    let has = class.gpus_of_its_kind(worker).count() as u64;
    Some(format!("{} of {} asked{}", plural(has, "GPU"), request.gpus.count, kind_of_gpu(request)))
}

/// What is not free of what is asked for.
fn missing(room: &Room, request: &Request) -> Vec<String> {
    let mut missing = Vec::new();
    let wanted = request.gpus.count as usize;
    let free = if wanted == 0 { 0 } else { room.usable(request).count() };
    if free < wanted {
        let sick = room.worker.gpus.len() - room.gpus.len();
        let sick = if sick > 0 { format!(" ({sick} sick)") } else { String::new() };
        missing.push(format!("{} free of {wanted} asked{sick}", plural(free as u64, "GPU")));
    }
    if request.cpus > room.cpus {
        missing.push(format!("{} free of {} asked", cpus(room.cpus), request.cpus));
    }
    if request.memory > room.memory {
        missing.push(format!("{} memory free of {} asked", room.memory, request.memory));
    }
    missing
}

/// ` (A100, 40G)`: the kind that is asked for, if any is.
pub(super) fn kind_of_gpu(request: &Request) -> String {
    let wanted = &request.gpus;
    let mut kind: Vec<String> = wanted.model.iter().cloned().collect();
    kind.extend(wanted.memory.map(|memory| format!("{memory}")));
    kind.extend(wanted.min_compute_capability.map(|least| format!("capability {least}")));
    match kind.is_empty() {
        true => String::new(),
        false => format!(" ({})", kind.join(", ")),
    }
}

/// `3 workers (a, b, c): 1 GPU free of 2 asked`, a line for each thing that is said.
pub(super) fn grouped(state: &State, obstacles: &[(WorkerId, Obstacle)]) -> Vec<String> {
    let mut groups: Vec<(&Obstacle, Vec<WorkerId>)> = Vec::new();
    for (worker, obstacle) in obstacles {
        match groups.iter_mut().find(|(other, _)| *other == obstacle) {
            Some((_, workers)) => workers.push(*worker),
            None => groups.push((obstacle, vec![*worker])),
        }
    }
    groups.sort();
    groups.iter().map(|(obstacle, workers)| line(state, obstacle, workers)).collect()
}

fn line(state: &State, obstacle: &Obstacle, workers: &[WorkerId]) -> String {
    let mut names: Vec<String> =
        workers.iter().take(MOST_NAMES).map(|id| super::worker_name(state, *id)).collect();
    if workers.len() > MOST_NAMES {
        names.push(String::from("…"));
    }
    let says = match obstacle {
        Obstacle::NoRoom(what) | Obstacle::Away(what) | Obstacle::Unfit(what) => what.as_str(),
        Obstacle::Room => "has room",
    };
    format!("{} ({}): {says}", plural(workers.len() as u64, "worker"), names.join(", "))
}
