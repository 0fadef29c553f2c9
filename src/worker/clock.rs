//! The clocks that agent, launcher and shims share.

use std::{
    fs, io,
    ops::Add,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{
    model::{Millis, Timestamp},
    worker::sys,
};

/// Time since boot, with the time a machine slept: the one clock that agent and shims share and nobody sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(pub u64);

impl BootTime {
    pub fn now() -> BootTime {
        let time = clock_gettime(ClockId::Boottime);
        BootTime(time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000)
    }

    /// Zero when `earlier` lies ahead.
    pub fn since(self, earlier: BootTime) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// As processes count their start.
    pub fn to_ticks(self) -> u64 {
        self.0 * sys::ticks_per_second() / 1000
    }
}

impl Add<Millis> for BootTime {
    type Output = BootTime;

    fn add(self, length: Millis) -> BootTime {
        BootTime(self.0.saturating_add(length.0))
    }
}

/// Changes with every start of the machine; pids and boot times mean nothing across it.
///
/// # Errors
/// `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// For people, and for times that leave this machine.
pub fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
