//! All that a job has started. The shim is a subreaper, so whatever a descendant does (double fork, a session of its
//! own, a closed terminal) it stays below the shim.

use rustix::process::{Pid, Signal, kill_process_group};

use crate::worker::process::{Process, Stat, descendants};

/// Children may be born while the tree is walked, so a kill walks it again until nothing new is found; a bomb that is
/// quicker than this is met again at the next round.
const WALKS_PER_KILL: usize = 16;

pub fn alive() -> Vec<Process> {
    descendants(&Stat::read_all(), &[std::process::id().cast_signed()])
}

/// Signals that fail (a process of another user) show in what stays alive, so no error is needed here.
pub fn ask(signal: Signal) {
    for process in alive() {
        let _ = process.signal(signal);
        wake(process);
    }
}

pub fn kill() {
    let mut killed = Vec::new();
    for _ in 0..WALKS_PER_KILL {
        let mut fresh = alive();
        fresh.retain(|process| !killed.contains(process));
        if fresh.is_empty() {
            return;
        }
        for process in &fresh {
            let _ = process.signal(Signal::KILL);
        }
        killed.extend(fresh);
    }
}

/// Only for a main process that was not reaped yet: until then its pid, and so its group's, is not given to another.
pub fn ask_group(main: Process, signal: Signal) {
    let Some(group) = Pid::from_raw(main.pid) else { return };
    let _ = kill_process_group(group, signal);
    let _ = kill_process_group(group, Signal::CONT);
}

/// A stopped process would not hear the signal before it is continued.
fn wake(process: Process) {
    let _ = process.signal(Signal::CONT);
}
