//! What things are called. A type per id, so that two of them cannot be swapped.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseIdError {
    pub text: String,
    pub expected: &'static str,
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let digits = text.strip_prefix($prefix).unwrap_or(text);
                digits
                    .parse()
                    .map($name)
                    .map_err(|_| ParseIdError { text: text.to_owned(), expected: $expected })
            }
        }
    };
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Box<str>);

        impl $name {
            pub fn new(text: impl Into<Box<str>>) -> Self {
                $name(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(text.into())
            }
        }
    };
}

number!(
    /// A job, numbered from 1 in the order of submission.
    JobId, "", "a job id (a number such as 12)"
);
number!(
    /// A worker, numbered in the order of first registration. People may also use its name.
    WorkerId, "w", "a worker id (such as w3)"
);
number!(
    /// One life of a worker: the next one begins only when what ran in this one is gone.
    Epoch, "e", "an epoch"
);

text!(
    /// What people call a worker; unique in the cluster.
    WorkerName
);
text!(QueueName);
text!(
    /// Who submitted a job and is charged for it.
    UserName
);
text!(
    /// A GPU's UUID as the driver reports it (`GPU-…`, `MIG-…`): the only name that survives a reboot.
    GpuUuid
);
text!(
    /// Chosen by the client for one submission, so that a retry finds the job instead of making a second one.
    IdempotencyKey
);

impl Default for QueueName {
    fn default() -> Self {
        QueueName::from("default")
    }
}

/// One task of a job; a job that is not an array has only task 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    pub job: JobId,
    pub index: u32,
}

/// One try of a task. Numbers start at 1 and are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    pub task: TaskId,
    pub number: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.task, self.number)
    }
}

impl FromStr for TaskId {
    type Err = ParseIdError;

    /// Reads `12.3`, and Slurm's `12_3`.
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let fault = || ParseIdError { text: text.to_owned(), expected: "a task id (such as 12.3)" };
        let (job, index) = text.split_once(['.', '_']).ok_or_else(fault)?;
        Ok(TaskId {
            job: job.parse().map_err(|_| fault())?,
            index: index.parse().map_err(|_| fault())?,
        })
    }
}

impl FromStr for AttemptId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let fault =
            || ParseIdError { text: text.to_owned(), expected: "an attempt id (such as 12.3.1)" };
        let (task, number) = text.rsplit_once('.').ok_or_else(fault)?;
        Ok(AttemptId {
            task: task.parse().map_err(|_| fault())?,
            number: number.parse().map_err(|_| fault())?,
        })
    }
}
