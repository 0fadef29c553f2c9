//! Nobody here may read the true time; everybody has a clock that is a little wrong.

/// A clock that runs at its own rate, from its own start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Ticks per ten thousand true milliseconds.
    rate: u64,
    /// What it showed when the world began.
    start: u64,
}

const TRUE_RATE: u64 = 10_000;

impl Clock {
    pub fn new(rate: u64, start: u64) -> Self {
        Clock { rate, start }
    }

    pub fn read(self, now: u64) -> u64 {
        self.start + now * self.rate / TRUE_RATE
    }

    /// The true time at which it first shows `reading`.
    pub fn when(self, reading: u64) -> u64 {
        (reading.saturating_sub(self.start) * TRUE_RATE).div_ceil(self.rate)
    }
}
