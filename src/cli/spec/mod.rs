//! Reading what a person submits (flags, a file, a script) into one complete, checked [`JobSpec`].
//!
//! Each source becomes a [`Draft`]: what it said, and where. Drafts are laid over one another, flags over directives over
//! defaults, and only the result is completed and checked; so a mistake found late still names the line it came from.

mod draft;
mod file;
mod flags;
mod node;
mod script;
mod value;

use std::fmt;

use crate::model::{JobSpec, Timestamp};

pub use self::draft::Draft;
pub use self::file::read_file;
pub use self::flags::{SpecFlags, condensed};
pub use self::node::parse_error;
pub use self::script::read_script;
pub use self::value::{priority, seconds};

/// What is wrong with a submission, in one line that starts with the place: a flag, or `file:line:column`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Fault {
    pub place: Place,
    pub message: String,
}

/// Where something was said: `--gpus`, `job.yaml:4:3`, `job.sh:2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(String);

/// What a spec may depend on beside its own text.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub now: Timestamp,
    pub time_zone: jiff::tz::TimeZone,
    /// Where relative paths start, and where the job runs unless it says otherwise.
    pub directory: String,
}

/// The largest file or script that is read at all.
pub const MAX_TEXT: usize = JobSpec::MAX_SIZE;

impl Place {
    pub fn new(text: impl Into<String>) -> Place {
        Place(text.into())
    }

    pub fn fault(&self, message: impl Into<String>) -> Fault {
        Fault { place: self.clone(), message: message.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The known word that is close enough to `word` to have been meant.
fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::damerau_levenshtein(word, candidate);
    known
        .into_iter()
        .map(|candidate| (distance(candidate), candidate.len().abs_diff(word.len()), candidate))
        .filter(|(distance, _, candidate)| *distance <= 1 + candidate.len() / 4)
        .min_by_key(|(distance, length, _)| (*distance, *length))
        .map(|(.., candidate)| candidate)
}

#[cfg(test)]
mod tests;
