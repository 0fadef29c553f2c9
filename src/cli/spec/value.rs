//! Single values as people write them, the same in flags, directives and files. Each says in one line what would be right.

use std::collections::BTreeSet;

use jiff::{civil, tz::TimeZone};

use crate::model::{
    Array, Backend, Bytes, ComputeCapability, Dependency, DependencyKind, IndexSet, JobId, JobSpec,
    LostAfter, MilliCpus, Millis, RetryCause, Timestamp,
};

type Parsed<T> = Result<T, String>;

/// `MODEL:VRAM:COUNT`, any of them left out: `2`, `a100:2`, `A100:80GB:2`, `24GB`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    pub count: Option<u32>,
    pub memory: Option<Bytes>,
    pub model: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    Count(u32),
    /// Wherever GPUs are free within one reachability group.
    Any,
}

/// The cluster's default lease: what `on_disconnect: stop` stands for.
const ONE_LEASE: Millis = Millis::from_secs(20);

pub fn count(text: &str) -> Parsed<u32> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number of 0 or more"))
}

pub fn cpus(text: &str) -> Parsed<MilliCpus> {
    let fault = || format!("`{text}` is not a number of CPUs (such as 4 or 0.5)");
    let cores: f64 = text.parse().map_err(|_| fault())?;
    match (0.0..1e9).contains(&cores) {
        true => Ok(MilliCpus((cores * 1000.0).round() as u64)),
        false => Err(fault()),
    }
}

/// As Slurm reads it: a bare number is of mebibytes.
pub fn memory(text: &str) -> Parsed<Bytes> {
    Bytes::parse(text, Bytes::from_mib(1)).map_err(|fault| fault.to_string())
}

/// As the original DRIGS reads it in files: a bare number is of bytes.
pub fn memory_in_file(text: &str) -> Parsed<Bytes> {
    Bytes::parse(text, Bytes(1)).map_err(|fault| fault.to_string())
}

/// As Slurm reads it: a bare number is of minutes.
pub fn time_limit(text: &str) -> Parsed<Millis> {
    Millis::parse(text, Millis::from_secs(60)).map_err(|fault| fault.to_string())
}

/// A bare number is of seconds.
pub fn seconds(text: &str) -> Parsed<Millis> {
    Millis::parse(text, Millis::from_secs(1)).map_err(|fault| fault.to_string())
}

pub fn gpus(text: &str) -> Parsed<Gpus> {
    let fault = || format!("`{text}` is not a GPU request (such as 2, a100:2 or A100:80GB:2)");
    let mut gpus = Gpus::default();
    let words: Vec<&str> = text.split(':').collect();
    for (place, word) in words.iter().enumerate() {
        let last = place + 1 == words.len();
        if let (true, Ok(count)) = (last, word.parse()) {
            gpus.count = Some(count);
        } else if let (None, Some(memory)) = (gpus.memory, amount(word)) {
            gpus.memory = Some(memory);
        } else if place == 0 && !word.is_empty() && !word.starts_with(['-', '.']) {
            gpus.model = Some((*word).to_owned());
        } else {
            return Err(fault());
        }
    }
    Ok(gpus)
}

/// An amount of memory with its unit: in a GPU request a bare number is a count.
fn amount(word: &str) -> Option<Bytes> {
    let has_unit = word.ends_with(|c: char| c.is_ascii_alphabetic());
    has_unit.then(|| Bytes::parse(word, Bytes(1)).ok()).flatten()
}

pub fn compute_capability(text: &str) -> Parsed<ComputeCapability> {
    text.parse().map_err(|fault: crate::model::ParseUnitError| fault.to_string())
}

pub fn nodes(text: &str) -> Parsed<Nodes> {
    match text {
        "any" => Ok(Nodes::Any),
        _ => text
            .parse()
            .map(Nodes::Count)
            .map_err(|_| format!("`{text}` is not a number of nodes (such as 2), nor `any`")),
    }
}

pub fn priority(text: &str) -> Parsed<u32> {
    match text.parse() {
        Ok(priority) if priority <= JobSpec::MAX_PRIORITY => Ok(priority),
        _ => Err(format!("`{text}` is not a priority (0 to {})", JobSpec::MAX_PRIORITY)),
    }
}

/// `0-99`, `1,5,9`, `0-100:10`, each with `%4` for at most four at a time.
pub fn array(text: &str) -> Parsed<Array> {
    let (indices, most) = match text.split_once('%') {
        Some((indices, most)) => (indices, Some(most)),
        None => (text, None),
    };
    let fault = || format!("`{text}` is not an array of tasks (such as 0-99, 1,5,9 or 0-99%4)");
    let max_running = match most {
        Some(most) => Some(most.parse().map_err(|_| fault())?),
        None => None,
    };
    let indices: IndexSet = indices.parse().map_err(|_| fault())?;
    if indices.is_empty() {
        return Err(fault());
    }
    Ok(Array { indices, max_running })
}

/// `afterok:12:13,afterany:14`; a bare number means `afterok`.
pub fn dependencies(text: &str) -> Parsed<Vec<Dependency>> {
    let mut dependencies = Vec::new();
    for part in text.split(',') {
        dependencies.extend(dependency(part)?);
    }
    Ok(dependencies)
}

fn dependency(part: &str) -> Parsed<Vec<Dependency>> {
    let mut words = part.trim().split(':').peekable();
    let first = words.peek().copied().unwrap_or_default();
    let kind = match first {
        "afterok" => DependencyKind::AfterOk,
        "afterany" => DependencyKind::AfterAny,
        "afternotok" => DependencyKind::AfterNotOk,
        _ if first.parse::<JobId>().is_ok() => {
            return words.map(|id| job(part, DependencyKind::AfterOk, id)).collect();
        }
        _ => {
            return Err(format!(
                "`{part}` is not a dependency (such as afterok:12:13, afterany:14 or afternotok:15)"
            ));
        }
    };
    words.next();
    let jobs: Vec<Dependency> = words.map(|id| job(part, kind, id)).collect::<Parsed<_>>()?;
    match jobs.is_empty() {
        true => Err(format!("`{part}` names no job (such as {first}:12)")),
        false => Ok(jobs),
    }
}

fn job(part: &str, kind: DependencyKind, id: &str) -> Parsed<Dependency> {
    match id.parse() {
        Ok(job) => Ok(Dependency { kind, job }),
        Err(_) => Err(format!("`{id}` in `{part}` is not a job id (a number such as 12)")),
    }
}

/// `failure,signal,oom,timeout,start-failed,exit:75`.
pub fn retry_causes(text: &str) -> Parsed<BTreeSet<RetryCause>> {
    text.split(',').map(|word| retry_cause(word.trim())).collect()
}

pub fn retry_cause(word: &str) -> Parsed<RetryCause> {
    if let Some(code) = word.strip_prefix("exit:") {
        return match code.parse() {
            Ok(code) if (1..=255).contains(&code) => Ok(RetryCause::ExitCode(code)),
            _ => Err(format!("`{code}` in `{word}` is not an exit code of 1 to 255")),
        };
    }
    match word.to_ascii_lowercase().replace('_', "-").as_str() {
        "failure" => Ok(RetryCause::Failure),
        "signal" => Ok(RetryCause::Signal),
        "oom" | "out-of-memory" => Ok(RetryCause::OutOfMemory),
        "timeout" => Ok(RetryCause::Timeout),
        "start-failed" => Ok(RetryCause::StartFailed),
        _ => Err(format!(
            "`{word}` is not a cause to retry: failure, signal, oom, timeout, start-failed or exit:CODE"
        )),
    }
}

/// By name, with or without `SIG`, or by number.
pub fn signal(text: &str) -> Parsed<i32> {
    const NAMES: [(&str, i32); 12] = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ABRT", libc::SIGABRT),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("CONT", libc::SIGCONT),
        ("STOP", libc::SIGSTOP),
        ("WINCH", libc::SIGWINCH),
    ];
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named
        .or_else(|| name.parse().ok().filter(|number| (1..=64).contains(number)))
        .ok_or_else(|| format!("`{text}` is not a signal (such as TERM, USR1 or 15)"))
}

pub fn lost_after(text: &str) -> Parsed<LostAfter> {
    if text == "keep" {
        return Ok(LostAfter::Keep);
    }
    seconds(text)
        .map(LostAfter::After)
        .map_err(|_| format!("`{text}` is not a length of time (such as 5m or 1h), nor `keep`"))
}

pub fn on_disconnect(text: &str) -> Parsed<LostAfter> {
    match text {
        "stop" => Ok(LostAfter::After(ONE_LEASE)),
        "keep" => Ok(LostAfter::Keep),
        _ => Err(format!("`{text}` is neither `stop` nor `keep`")),
    }
}

pub fn backend(text: &str) -> Parsed<Backend> {
    match text.to_ascii_lowercase().as_str() {
        "native" => Ok(Backend::Native),
        "docker" => Ok(Backend::Docker),
        "distributed" | "pytorch" => Ok(Backend::Distributed),
        _ => Err(format!("`{text}` is not a backend: native, docker or distributed")),
    }
}

/// `NAME=VALUE`.
pub fn pair(text: &str) -> Parsed<(String, String)> {
    match text.split_once('=') {
        Some(("", _)) => Err(format!("`{text}` has no name before its `=`")),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("`{text}` is not NAME=VALUE")),
    }
}

/// `HOST:CONTAINER`.
pub fn volume(text: &str) -> Parsed<(String, String)> {
    match text.split_once(':') {
        Some((host, inside)) if !host.is_empty() && !inside.is_empty() => {
            Ok((host.to_owned(), inside.to_owned()))
        }
        _ => Err(format!("`{text}` is not HOST-PATH:CONTAINER-PATH")),
    }
}

/// When to begin. What depends on the clock is settled by [`Begin::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    In(Millis),
    At(Timestamp),
    Local(civil::DateTime),
    /// The next time that the clock shows this.
    Next(civil::Time),
}

/// `now+1h`, `16:00`, `2026-01-31`, `2026-01-31T16:00`, or a time with its zone.
pub fn begin(text: &str) -> Parsed<Begin> {
    let fault = || {
        format!(
            "`{text}` is not a time (such as now+1h, 16:00, 2026-01-31T16:00 or 2026-01-31T16:00Z)"
        )
    };
    if let Some(rest) = text.strip_prefix("now") {
        return match rest.strip_prefix('+') {
            Some(length) => seconds(length.trim()).map(Begin::In).map_err(|_| fault()),
            None if rest.is_empty() => Ok(Begin::In(Millis(0))),
            None => Err(fault()),
        };
    }
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return u64::try_from(instant.as_millisecond())
            .map(|millis| Begin::At(Timestamp(millis)))
            .map_err(|_| fault());
    }
    if let Ok(moment) = text.parse::<civil::DateTime>() {
        return Ok(Begin::Local(moment));
    }
    text.parse::<civil::Time>().map(Begin::Next).map_err(|_| fault())
}

impl Begin {
    /// # Errors
    /// The time does not exist, or lies before 1970.
    pub fn at(self, now: Timestamp, zone: &TimeZone) -> Parsed<Timestamp> {
        let impossible = |_| String::from("the time is out of range");
        let millis = |zoned: jiff::ZonedDateTime| {
            u64::try_from(zoned.timestamp().as_millisecond())
                .map(Timestamp)
                .map_err(|_| String::from("the time lies before 1970"))
        };
        match self {
            Begin::In(length) => Ok(now + length),
            Begin::At(at) => Ok(at),
            Begin::Local(moment) => {
                millis(moment.to_zoned_datetime(zone.clone()).map_err(impossible)?)
            }
            Begin::Next(time) => {
                let now = jiff::Timestamp::from_millisecond(now.0 as i64)
                    .map_err(impossible)?
                    .to_zoned_datetime(zone.clone());
                let day = match time > now.time() {
                    true => now.date(),
                    false => now.date().tomorrow().map_err(impossible)?,
                };
                millis(day.to_datetime(time).to_zoned_datetime(zone.clone()).map_err(impossible)?)
            }
        }
    }
}
