//! The records in an attempt's directory. Files outlive upgrades of the programs that read them: fields are only added.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    model::{AttemptId, Bytes, EndReason, Ending, Epoch, MilliCpus, Millis, Timestamp},
    worker::{clock::BootTime, process::Process},
};

/// All that a shim must know to run one attempt.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    #[serde(with = "as_text")]
    pub attempt: AttemptId,
    /// Random, and in the environment of all that the job starts: the proof that a process is the attempt's.
    pub nonce: String,
    pub argv: Vec<String>,
    /// The whole environment; nothing is added.
    pub env: BTreeMap<String, String>,
    pub working_dir: String,
    /// Entered instead where it exists on this machine: there need not be a shared filesystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_dir: Option<String>,
    pub umask: u32,
    pub time_limit: Option<Millis>,
    /// How long it may run on without word from a leader; `None` for ever.
    pub lost_after: Option<Millis>,
    pub stop_signal: i32,
    /// From the stop signal to SIGKILL.
    pub grace: Millis,
    /// The same when it is stopped because no leader was heard of: it must be gone before it may start elsewhere.
    pub lost_grace: Millis,
    /// How much of the output is kept, in bytes.
    pub log_limit: u64,
    pub held: Held,
}

/// What the attempt holds of this machine, for the agent that finds it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The life of the worker in which it was ordered.
    pub epoch: Epoch,
    pub cpus: MilliCpus,
    pub memory: Bytes,
}

/// `launch.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepared {
    pub boot_id: String,
    pub prepared_at: BootTime,
    pub launch: Launch,
}

/// The first line of `shim.json`; the second is the job's main [`Process`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub boot_id: String,
    /// `None` when the agent has made sure that the attempt will never start.
    pub shim: Option<Process>,
}

/// `intent.json`: why and how soon to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub reason: EndReason,
    /// Who asked, for people to read.
    pub by: String,
    /// From the stop signal to SIGKILL.
    pub grace: Millis,
}

/// `exit.json`: how an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub ended: Ended,
    /// Set when it was being stopped at that time.
    pub stopped: Option<Stopped>,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub ran_for: Millis,
    /// Of the main process and all descendants that were waited for.
    pub cpu_time: Millis,
    /// Of the largest single process.
    pub max_rss_bytes: u64,
    pub tree: Tree,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Exit(i32),
    Signal(i32),
    StartFailed {
        message: String,
        errno: Option<i32>,
    },
    /// It was called off before it was started.
    NeverStarted,
    /// Its main process did not end even when killed again and again: it hangs in the kernel.
    Stuck,
    /// Its shim died. What it had started was ended, but how its main process fared is not known.
    SupervisorLost,
    /// The machine was started anew meanwhile.
    Rebooted,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    pub cause: StopCause,
    pub by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StopCause {
    /// It reached its time limit.
    Timeout,
    /// No leader was heard of for longer than the attempt's `lost_after`.
    LostContact,
    /// Its shim was told to end by someone other than the agent, as when the machine shuts down.
    Shutdown,
    /// The agent asked for it.
    Intent(EndReason),
}

/// What is left of all that the attempt has started. It is over, and what it held is free, only when that is nothing
/// or cannot be helped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tree {
    Empty,
    /// The main process has ended and the rest is being ended.
    Draining(Vec<i32>),
    /// These survived every SIGKILL for a minute.
    Unkillable(Vec<i32>),
}

impl Exit {
    /// One that ends where it began.
    pub fn at_once(ended: Ended, at: Timestamp) -> Exit {
        Exit {
            ended,
            stopped: None,
            started_at: at,
            ended_at: at,
            ran_for: Millis(0),
            cpu_time: Millis(0),
            max_rss_bytes: 0,
            tree: Tree::Empty,
        }
    }

    pub fn is_final(&self) -> bool {
        match self.tree {
            Tree::Empty | Tree::Unkillable(_) => true,
            Tree::Draining(_) => false,
        }
    }

    /// The same in the words that the controllers use.
    pub fn to_ending(&self) -> Ending {
        let mut ending = Ending::new(self.reason(), self.ended_at);
        match &self.ended {
            Ended::Exit(code) => ending.exit_code = Some(*code),
            Ended::Signal(signal) => ending.signal = Some(*signal),
            Ended::StartFailed { message, .. } => ending.message = Some(message.clone()),
            Ended::NeverStarted => ending.message = Some("stopped before it started".to_owned()),
            Ended::Stuck => {
                ending.message =
                    Some("the job hangs in the kernel and cannot be killed".to_owned());
            }
            Ended::SupervisorLost => {
                ending.message = Some("the process that supervised the job was killed".to_owned());
            }
            Ended::Rebooted => ending.message = Some("the machine was restarted".to_owned()),
        }
        ending
    }

    fn reason(&self) -> EndReason {
        match (&self.ended, &self.stopped) {
            (Ended::Rebooted, _) => EndReason::NodeLost,
            (_, Some(stopped)) => stopped.cause.reason(),
            (Ended::StartFailed { .. } | Ended::NeverStarted, None) => EndReason::StartFailed,
            (Ended::Exit(0), None) => EndReason::Success,
            (Ended::Exit(_), None) => EndReason::Exit,
            (Ended::Signal(_) | Ended::Stuck, None) => EndReason::Signal,
            (Ended::SupervisorLost, None) => EndReason::SupervisorLost,
        }
    }
}

impl StopCause {
    fn reason(self) -> EndReason {
        match self {
            StopCause::Timeout => EndReason::Timeout,
            StopCause::LostContact | StopCause::Shutdown => EndReason::NodeLost,
            StopCause::Intent(reason) => reason,
        }
    }
}

impl fmt::Debug for Launch {
    /// Without the environment, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Ids as people write them (`12.0.1`), not as structs.
mod as_text {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(
        value: &impl Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err: Display>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
