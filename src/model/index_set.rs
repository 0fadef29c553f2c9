//! Sets of task indices kept as ranges, so that an array of a million queued tasks is one small row.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A set of `u32`, stored as disjoint, non-adjacent ranges (first → last, both inclusive).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IndexSet {
    ranges: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a set of task indices (such as 0-99, 1,5,9 or 0-100:10)")]
pub struct ParseIndexSetError {
    pub text: String,
}

impl IndexSet {
    pub fn new() -> Self {
        IndexSet::default()
    }

    pub fn from_range(first: u32, last: u32) -> Self {
        let mut set = IndexSet::new();
        set.insert_range(first, last);
        set
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    pub fn contains(&self, index: u32) -> bool {
        self.ranges.range(..=index).next_back().is_some_and(|(_, last)| *last >= index)
    }

    pub fn first(&self) -> Option<u32> {
        self.ranges.first_key_value().map(|(first, _)| *first)
    }

    pub fn last(&self) -> Option<u32> {
        self.ranges.last_key_value().map(|(_, last)| *last)
    }

    pub fn insert(&mut self, index: u32) {
        self.insert_range(index, index);
    }

    /// Adds `first..=last`; nothing when `first > last`.
    pub fn insert_range(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first, last);
        // Every range that touches or overlaps the new one melts into it.
        while let Some((known_first, known_last)) =
            self.ranges.range(..=last.saturating_add(1)).next_back().map(|(a, b)| (*a, *b))
        {
            if known_last.saturating_add(1) < first {
                break;
            }
            self.ranges.remove(&known_first);
            first = first.min(known_first);
            last = last.max(known_last);
        }
        self.ranges.insert(first, last);
    }

    /// Takes `index` out; says whether it was in.
    pub fn remove(&mut self, index: u32) -> bool {
        let Some((first, last)) = self.ranges.range(..=index).next_back().map(|(a, b)| (*a, *b))
        else {
            return false;
        };
        if last < index {
            return false;
        }
        self.ranges.remove(&first);
        if first < index {
            self.ranges.insert(first, index - 1);
        }
        if index < last {
            self.ranges.insert(index + 1, last);
        }
        true
    }

    /// Takes `first..=last` out, as far as it is in.
    pub fn remove_range(&mut self, first: u32, last: u32) {
        while let Some((known_first, known_last)) =
            self.ranges.range(..=last).next_back().map(|(a, b)| (*a, *b))
        {
            if known_last < first {
                return;
            }
            self.ranges.remove(&known_first);
            if last < known_last {
                self.ranges.insert(last + 1, known_last);
            }
            if known_first < first {
                self.ranges.insert(known_first, first - 1);
                return;
            }
        }
    }

    /// What is in both.
    pub fn intersection(&self, other: &IndexSet) -> IndexSet {
        let mut common = IndexSet::new();
        let (mut ours, mut theirs) = (self.ranges().peekable(), other.ranges().peekable());
        while let (Some((first, last)), Some((other_first, other_last))) =
            (ours.peek().copied(), theirs.peek().copied())
        {
            common.insert_range(first.max(other_first), last.min(other_last));
            // Whichever ends first has nothing more in common with the other.
            match last < other_last {
                true => ours.next(),
                false => theirs.next(),
            };
        }
        common
    }

    pub fn extend(&mut self, other: &IndexSet) {
        for (first, last) in other.ranges() {
            self.insert_range(first, last);
        }
    }

    /// The ranges in order, both ends inclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flat_map(|(first, last)| first..=last)
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Self {
        let mut set = IndexSet::new();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.ranges().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for IndexSet {
    type Err = ParseIndexSetError;

    /// Reads `0-99`, `1,5,9`, `0-100:10` (every tenth) and mixtures; the empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, ParseIndexSetError> {
        let mut set = IndexSet::new();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            insert_part(&mut set, part.trim())
                .ok_or_else(|| ParseIndexSetError { text: text.to_owned() })?;
        }
        Ok(set)
    }
}

/// An explicit step may name a million single indices; more is refused before it costs memory.
const MOST_STEPPED: u32 = 1_000_000;

fn insert_part(set: &mut IndexSet, part: &str) -> Option<()> {
    let (range, step) = match part.split_once(':') {
        Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0)?),
        None => (part, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None => (range.parse().ok()?, range.parse().ok()?),
    };
    if first > last {
        return None;
    }
    if step == 1 {
        set.insert_range(first, last);
        return Some(());
    }
    if (last - first) / step >= MOST_STEPPED {
        return None;
    }
    (first..=last).step_by(step as usize).for_each(|index| set.insert(index));
    Some(())
}

impl TryFrom<String> for IndexSet {
    type Error = ParseIndexSetError;

    fn try_from(text: String) -> Result<Self, ParseIndexSetError> {
        text.parse()
    }
}

impl From<IndexSet> for String {
    fn from(set: IndexSet) -> String {
        set.to_string()
    }
}
