//! The GPUs that this worker offers.

mod simulated;

use std::str::FromStr;

use anyhow::bail;
use uuid::Uuid;

use self::simulated::Simulated;
use crate::model::Gpu;

/// Where the GPUs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inventory {
    None,
    /// Made up, so that a laptop can be a cluster: jobs get their UUIDs, and nothing else of them is real.
    Simulated(Simulated),
}

impl Inventory {
    /// The GPUs as they are now. `worker` makes simulated ones unique in the cluster.
    pub fn discover(&self, worker: Uuid) -> Vec<Gpu> {
        match self {
            Inventory::None => Vec::new(),
            Inventory::Simulated(simulated) => simulated.gpus(worker),
        }
    }
}

impl FromStr for Inventory {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':') {
            Some(("simulated", spec)) => Ok(Inventory::Simulated(spec.parse()?)),
            None if text == "none" => Ok(Inventory::None),
            _ => bail!("`{text}` is not none or simulated:SPEC (such as simulated:2xT4)"),
        }
    }
}
