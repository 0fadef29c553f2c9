use serde::{Deserialize, Serialize};

/// A named line with its own limits, weight and priority (what others call a partition).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Queues of higher priority are served first, whatever their jobs' own priorities.
    pub priority: u32,
    /// Its share beside other queues under a fair order; 1 to 1,000,000.
    pub weight: u32,
    /// How many GPUs its running tasks may hold together.
    pub max_gpus: Option<u32>,
    /// A closed queue takes no new jobs; what it has runs on.
    pub open: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { priority: 0, weight: 1, max_gpus: None, open: true }
    }
}
