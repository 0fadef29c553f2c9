//! Processes by pid *and* start time: a pid alone may name another process by the time it is used.

use std::{
    fs::{self, File},
    io::{self, Read},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks since boot.
    pub start: u64,
}

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub process: Process,
    pub parent: i32,
    pub group: i32,
    /// Dead, but not yet taken note of by its parent.
    pub zombie: bool,
}

impl Process {
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> io::Result<Process> {
        let own = Process::with_pid(std::process::id().cast_signed());
        own.ok_or_else(|| io::Error::other("/proc cannot be read"))
    }

    /// Whoever has this pid now.
    pub fn with_pid(pid: i32) -> Option<Process> {
        Stat::read(pid).map(|stat| stat.process)
    }

    /// A zombie is not alive: nothing of it will ever run again.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.process == self && !stat.zombie)
    }

    /// Signals exactly this process: the descriptor is opened first and the start time read again, so that a process
    /// that got the pid meanwhile is never hit. A process that is gone is no error.
    ///
    /// # Errors
    /// It belongs to someone else, or the kernel has no pidfds (before 5.3).
    pub fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid).filter(|pid| *pid != Pid::INIT) else {
            return Err(io::Error::other(format!("refusing to signal pid {}", self.pid)));
        };
        let opened = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(opened) => opened,
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if Stat::read(self.pid).is_none_or(|stat| stat.process != self) {
            return Ok(());
        }
        match pidfd_send_signal(opened, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this process was started with `entry` (`NAME=value`) in its environment. Only what the own user may
    /// read counts.
    pub fn has_in_environment(self, entry: &str) -> bool {
        let Ok(environment) = fs::read(format!("/proc/{}/environ", self.pid)) else { return false };
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    }
}

impl Stat {
    pub fn read(pid: i32) -> Option<Stat> {
        // One read, as the kernel makes the text up anew each time; it is far shorter than this.
        let mut text = [0; 1024];
        let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut text).ok()?;
        let text = &text[..length];
        // The command's name is in parentheses and may itself hold some, and need not be UTF-8.
        let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
        let text = std::str::from_utf8(text.get(after_name..)?).ok()?;
        let mut fields = text.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let start = fields.nth(16)?.parse().ok()?;
        Some(Stat {
            process: Process { pid, start },
            parent,
            group,
            zombie: matches!(state, "Z" | "X" | "x"),
        })
    }

    /// Every process that can be seen; some may be gone when it returns.
    pub fn read_all() -> Vec<Stat> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Stat::read).collect()
    }
}

/// The living processes below any of `roots`, without these.
pub fn descendants(all: &[Stat], roots: &[i32]) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = roots.to_vec();
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|stat| stat.parent == parent) {
            parents.push(child.process.pid);
            if !child.zombie {
                found.push(child.process);
            }
        }
    }
    found
}
