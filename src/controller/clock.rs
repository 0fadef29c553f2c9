use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rustix::time::{ClockId, clock_gettime};

use crate::model::{Millis, Timestamp};

/// The controller's time: starts at the wall clock's reading and then goes on by the boot-time clock, so that setting
/// the wall clock moves no lease, and a suspended machine knows that time passed. Its clones are one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    wall_at_start: Timestamp,
    boot_at_start: Millis,
    /// Milliseconds.
    set_forward: Arc<AtomicU64>,
}

impl Clock {
    pub fn start() -> Self {
        Clock {
            wall_at_start: Timestamp(read(ClockId::Realtime).0),
            boot_at_start: read(ClockId::Boottime),
            set_forward: Arc::default(),
        }
    }

    pub fn now(&self) -> Timestamp {
        let set_forward = Millis(self.set_forward.load(Ordering::Acquire));
        self.wall_at_start + set_forward + (read(ClockId::Boottime) - self.boot_at_start)
    }

    /// Sets the clock forward to what the state has seen. A leader before this one may have had a wall clock that was hours
    /// ahead: the state's own time would stand still until this one's caught up, and all that waits with it.
    pub fn catch_up(&self, seen: Timestamp) {
        self.set_forward.fetch_add(seen.since(self.now()).0, Ordering::AcqRel);
    }
}

fn read(clock: ClockId) -> Millis {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Millis(seconds * 1000 + nanos / 1_000_000)
}
