use rustix::time::{ClockId, clock_gettime};

use crate::model::{Millis, Timestamp};

/// The controller's time: starts at the wall clock's reading and then goes on by the boot-time clock, so that setting
/// the wall clock moves no lease, and a suspended machine knows that time passed.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_at_start: Timestamp,
    boot_at_start: Millis,
}

impl Clock {
    pub fn start() -> Self {
        Clock {
            wall_at_start: Timestamp(read(ClockId::Realtime).0),
            boot_at_start: read(ClockId::Boottime),
        }
    }

    /// The same clock, set forward to what the state has seen: a leader before this one may have had a wall clock that was
    /// hours ahead, and what its decisions wait for would be as far away.
    pub fn not_behind(self, seen: Timestamp) -> Self {
        let behind = seen.since(self.now());
        Clock { wall_at_start: self.wall_at_start + behind, ..self }
    }

    pub fn now(&self) -> Timestamp {
        self.wall_at_start + (read(ClockId::Boottime) - self.boot_at_start)
    }
}

fn read(clock: ClockId) -> Millis {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Millis(seconds * 1000 + nanos / 1_000_000)
}
