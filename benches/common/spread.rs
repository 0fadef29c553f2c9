//! How durations spread.

use std::{fmt, time::Duration};

#[derive(Clone, Debug)]
pub struct Spread {
    sorted: Vec<Duration>,
}

impl Spread {
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// By nearest rank, so that it is one that was measured; zero when nothing was.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.sorted.len() * percent).div_ceil(100);
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub fn min(&self) -> Duration {
        self.percentile(0)
    }

    pub fn median(&self) -> Duration {
        self.percentile(50)
    }

    pub fn p99(&self) -> Duration {
        self.percentile(99)
    }

    pub fn max(&self) -> Duration {
        self.percentile(100)
    }

    /// The cells of a table's row, in the order of [`Spread::HEADINGS`].
    pub fn cells(&self) -> [String; 5] {
        let number = self.len().to_string();
        [number, ms(self.min()), ms(self.median()), ms(self.p99()), ms(self.max())]
    }

    pub const HEADINGS: [&str; 5] = ["n", "min ms", "p50 ms", "p99 ms", "max ms"];

    /// How much of `other` this is, in the same order.
    pub fn ratios(&self, other: &Spread) -> [String; 5] {
        let of = |mine: Duration, theirs: Duration| ratio(mine.as_secs_f64(), theirs.as_secs_f64());
        [
            String::new(),
            of(self.min(), other.min()),
            of(self.median(), other.median()),
            of(self.p99(), other.p99()),
            of(self.max(), other.max()),
        ]
    }
}

impl FromIterator<Duration> for Spread {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        Spread { sorted }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [number, min, median, p99, max] = self.cells();
        write!(f, "min {min} ms, p50 {median} ms, p99 {p99} ms, max {max} ms (n={number})")
    }
}

/// Milliseconds to three places that matter.
pub fn ms(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    match ms {
        _ if ms >= 100.0 => format!("{ms:.0}"),
        _ if ms >= 10.0 => format!("{ms:.1}"),
        _ => format!("{ms:.2}"),
    }
}

pub fn ratio(mine: f64, theirs: f64) -> String {
    if theirs > 0.0 { format!("{:.2} x", mine / theirs) } else { String::from("-") }
}
