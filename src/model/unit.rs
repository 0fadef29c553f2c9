//! Quantities, each with its unit in its type, and how people write them.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, stamped by whoever proposes a command.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// A length of time in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Thousandths of a CPU core.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MilliCpus(pub u64);

/// Why a text is not a quantity, and what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseUnitError {
    pub text: String,
    pub expected: &'static str,
}

impl Timestamp {
    /// How long ago `earlier` was; zero when it lies ahead.
    pub fn since(self, earlier: Timestamp) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Millis> for Timestamp {
    type Output = Timestamp;

    fn add(self, length: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(length.0))
    }
}

impl Millis {
    pub const fn from_secs(seconds: u64) -> Self {
        Millis(seconds * 1000)
    }

    pub const fn from_hours(hours: u64) -> Self {
        Millis(hours * 3_600_000)
    }

    pub fn to_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// Reads `90`, `90s`, `1.5h`, `2h30m`, `500ms`, and Slurm's `minutes`-first clock forms `1:30:00`, `30:00`,
    /// `1-12`, `1-12:30`. A bare number means `bare` of these.
    ///
    /// # Errors
    /// The text is none of these, or exceeds ten years.
    pub fn parse(text: &str, bare: Millis) -> Result<Millis, ParseUnitError> {
        let fault = || ParseUnitError {
            text: text.to_owned(),
            expected: "a length of time (such as 90s, 30m, 4h, 2d, 1:30:00 or 1-12:00)",
        };
        let parsed =
            if text.contains([':', '-']) { parse_clock(text) } else { parse_suffixed(text, bare) };
        let millis = parsed.ok_or_else(fault)?;
        if millis > 10.0 * 366.0 * 86_400_000.0 {
            return Err(fault());
        }
        Ok(Millis(millis.round() as u64))
    }
}

/// `[days-]hours:minutes[:seconds]` with days, `minutes:seconds` without hours, as Slurm reads them.
fn parse_clock(text: &str) -> Option<f64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days.parse::<u32>().ok()?), clock),
        None => (None, text),
    };
    let fields: Vec<u32> =
        clock.split(':').map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match (days, fields[..].len()) {
        (Some(_), 1) => (fields[0], 0, 0),
        (Some(_), 2) => (fields[0], fields[1], 0),
        (None, 2) => (0, fields[0], fields[1]),
        (_, 3) => (fields[0], fields[1], fields[2]),
        _ => return None,
    };
    let days = f64::from(days.unwrap_or(0));
    let hours = days * 24.0 + f64::from(hours);
    Some(((hours * 60.0 + f64::from(minutes)) * 60.0 + f64::from(seconds)) * 1000.0)
}

fn parse_suffixed(text: &str, bare: Millis) -> Option<f64> {
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let factor = match &rest[..letters] {
            "" if total == 0.0 && rest.is_empty() => bare.0 as f64,
            "ms" => 1.0,
            "s" | "sec" | "second" | "seconds" => 1000.0,
            "m" | "min" | "minute" | "minutes" => 60_000.0,
            "h" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            "w" | "week" | "weeks" => 7.0 * 86_400_000.0,
            _ => return None,
        };
        rest = &rest[letters..];
        total += number * factor;
    }
    Some(total)
}

impl fmt::Display for Millis {
    /// The two largest units: `2d4h`, `1h30m`, `12s`, `350ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
        let two = |f: &mut fmt::Formatter<'_>, big: u64, unit: char, small: u64, next: char| {
            if small == 0 {
                write!(f, "{big}{unit}")
            } else {
                write!(f, "{big}{unit}{small}{next}")
            }
        };
        if days > 0 {
            two(f, days, 'd', hours, 'h')
        } else if hours > 0 {
            two(f, hours, 'h', minutes, 'm')
        } else if minutes > 0 {
            two(f, minutes, 'm', seconds % 60, 's')
        } else if seconds > 0 || self.0 == 0 {
            write!(f, "{seconds}s")
        } else {
            write!(f, "{}ms", self.0)
        }
    }
}

impl Bytes {
    pub const fn from_mib(mib: u64) -> Self {
        Bytes(mib << 20)
    }

    pub const fn from_gib(gib: u64) -> Self {
        Bytes(gib << 30)
    }

    /// Reads `16GB`, `16G`, `16GiB`, `1.5T`, `512M`: every multiple is of 1024. A bare number means `bare` of these.
    ///
    /// # Errors
    /// The text is none of these, or exceeds an exbibyte.
    pub fn parse(text: &str, bare: Bytes) -> Result<Bytes, ParseUnitError> {
        let fault = || ParseUnitError {
            text: text.to_owned(),
            expected: "an amount of memory (such as 512M, 16GB or 1.5T)",
        };
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number: f64 = text[..digits].parse().map_err(|_| fault())?;
        let factor = match text[digits..].trim_start().to_ascii_uppercase().as_str() {
            "" => bare.0 as f64,
            "B" => 1.0,
            "K" | "KB" | "KIB" => 1024.0,
            "M" | "MB" | "MIB" => 1024.0 * 1024.0,
            "G" | "GB" | "GIB" => (1u64 << 30) as f64,
            "T" | "TB" | "TIB" => (1u64 << 40) as f64,
            _ => return Err(fault()),
        };
        let bytes = number * factor;
        if bytes > (1u64 << 60) as f64 {
            return Err(fault());
        }
        Ok(Bytes(bytes.round() as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
        for (size, unit) in units {
            if self.0 >= size {
                let tenths = (self.0 as u128 * 10 / size as u128) as u64;
                return match tenths % 10 {
                    0 => write!(f, "{}{unit}", tenths / 10),
                    tenth => write!(f, "{}.{tenth}{unit}", tenths / 10),
                };
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl MilliCpus {
    pub const fn from_cores(cores: u64) -> Self {
        MilliCpus(cores * 1000)
    }
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            _ => write!(f, "{}", self.0 as f64 / 1000.0),
        }
    }
}

macro_rules! arithmetic {
    ($name:ident) => {
        impl Add for $name {
            type Output = $name;

            fn add(self, other: $name) -> $name {
                $name(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                *self = *self + other;
            }
        }

        /// Saturates at zero: what is left is never negative.
        impl Sub for $name {
            type Output = $name;

            fn sub(self, other: $name) -> $name {
                $name(self.0.saturating_sub(other.0))
            }
        }
    };
}

arithmetic!(Millis);
arithmetic!(Bytes);
arithmetic!(MilliCpus);
