//! What this machine is and has.

use std::fs;

use anyhow::Context as _;

use crate::model::Bytes;

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Cores that this process may use: affinity and CPU quotas count.
pub fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Main memory, or less where a control group allows less.
///
/// # Errors
/// When `/proc/meminfo` cannot be read.
pub fn memory() -> anyhow::Result<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .context("/proc/meminfo has no MemTotal")?;
    let total = Bytes(total * 1024);
    Ok(cgroup_limit().map_or(total, |limit| total.min(limit)))
}

/// The memory limit of this process's control group, version 2 or 1; `None` where there is none.
fn cgroup_limit() -> Option<Bytes> {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    files.iter().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).map(Bytes)
}
