use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::model::{Bytes, GpuUuid, ParseUnitError};

/// A GPU (or a MIG slice, which is handed out like one) as its worker found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub uuid: GpuUuid,
    /// The place in the machine's PCI order. May change over a reboot; the UUID does not.
    pub index: u32,
    pub model: String,
    /// Total VRAM.
    pub memory: Bytes,
    pub compute_capability: Option<ComputeCapability>,
    pub health: GpuHealth,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuHealth {
    Healthy,
    /// Gets no new work until the reason is gone.
    Quarantined {
        reason: String,
    },
}

/// What the chip can do, as `major.minor` (8.0 is an A100, 9.0 an H100).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    pub major: u32,
    pub minor: u32,
}

impl Gpu {
    pub fn is_healthy(&self) -> bool {
        self.health == GpuHealth::Healthy
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ComputeCapability {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let fault = || ParseUnitError {
            text: text.to_owned(),
            expected: "a compute capability (such as 8.0)",
        };
        let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
        Ok(ComputeCapability {
            major: major.parse().map_err(|_| fault())?,
            minor: minor.parse().map_err(|_| fault())?,
        })
    }
}

impl TryFrom<String> for ComputeCapability {
    type Error = ParseUnitError;

    fn try_from(text: String) -> Result<Self, ParseUnitError> {
        text.parse()
    }
}

impl From<ComputeCapability> for String {
    fn from(capability: ComputeCapability) -> String {
        capability.to_string()
    }
}
