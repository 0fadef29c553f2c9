//! Processes of an attempt whose shim was killed. They have lost their parent; what proves them ours is the attempt's
//! random nonce in their environment. Nothing is signalled without that proof.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use rustix::process::{Signal, geteuid};

use crate::worker::{
    attempt_dir::Prepared,
    process::{Process, Stat, descendants},
};

pub const NONCE: &str = "DRIGS_ATTEMPT_NONCE";

const ASK_FOR: Duration = Duration::from_secs(2);
const KILL_FOR: Duration = Duration::from_secs(60);
const KILL_AGAIN_AFTER: Duration = Duration::from_secs(1);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Ends all that is left of the attempt, and returns what survived every SIGKILL. Blocks for a minute at worst.
pub fn end(prepared: &Prepared, main: Option<Process>) -> Vec<Process> {
    if signal_all(prepared, main, Signal::TERM, ASK_FOR).is_empty() {
        return Vec::new();
    }
    let began = Instant::now();
    loop {
        let left = signal_all(prepared, main, Signal::KILL, KILL_AGAIN_AFTER);
        if left.is_empty() || began.elapsed() > KILL_FOR {
            return left;
        }
    }
}

/// Signals every stray and waits until none is left, or until `patience` is at its end: then it returns them.
fn signal_all(
    prepared: &Prepared,
    main: Option<Process>,
    signal: Signal,
    patience: Duration,
) -> Vec<Process> {
    let began = Instant::now();
    let mut strays = find(prepared, main);
    while !strays.is_empty() {
        for stray in &strays {
            // Failures show in what stays alive.
            let _ = stray.signal(signal);
        }
        while strays.iter().any(|stray| stray.is_alive()) {
            if began.elapsed() > patience {
                strays.retain(|stray| stray.is_alive());
                return strays;
            }
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
        strays = find(prepared, main);
    }
    strays
}

/// The main process by its recorded identity, whatever carries the nonce, and all below these.
fn find(prepared: &Prepared, main: Option<Process>) -> Vec<Process> {
    let all = Stat::read_all();
    let marker = format!("{NONCE}={}", prepared.launch.nonce);
    let not_before = prepared.prepared_at.to_ticks().saturating_sub(1);
    let is_ours = |process: Process| {
        process.start >= not_before
            && is_own_users(process)
            && (Some(process) == main || process.has_in_environment(&marker))
    };
    let mut found: Vec<Process> = all
        .iter()
        .filter(|stat| !stat.zombie)
        .map(|stat| stat.process)
        .filter(|process| is_ours(*process))
        .collect();
    let roots: Vec<i32> = found.iter().map(|process| process.pid).collect();
    found.extend(descendants(&all, &roots));
    found.sort_unstable();
    found.dedup();
    found.retain(|process| process.pid != std::process::id().cast_signed());
    found
}

fn is_own_users(process: Process) -> bool {
    fs::metadata(format!("/proc/{}", process.pid))
        .is_ok_and(|directory| directory.uid() == geteuid().as_raw())
}
