//! The nouns: what every other room speaks of. Plain data, no behaviour beyond its own arithmetic.

mod allocation;
mod attempt;
mod check;
mod explanation;
mod gpu;
mod id;
mod index_set;
mod job;
pub mod lineage;
mod order;
mod spec;
mod unit;
mod user;
mod worker;

pub use self::allocation::{GpuGrant, Placement, Slice};
pub use self::attempt::{
    Attempt, EndReason, Ending, Part, PartStatus, StopReason, Task, TaskState, TaskStatus,
};
pub use self::check::SpecError;
pub use self::explanation::{Explanation, WaitReason};
pub use self::gpu::{ComputeCapability, Gpu, GpuHealth};
pub use self::id::{
    AttemptId, Epoch, GpuUuid, IdempotencyKey, JobId, ParseIdError, QueueName, TaskId, UserName,
    WorkerId, WorkerName,
};
pub use self::index_set::{IndexSet, ParseIndexSetError};
pub use self::job::{FirstFailure, Hold, Job};
pub use self::order::{AttemptReport, Order, OrderStamp, Orders, Phase};
pub use self::spec::{
    Array, Backend, Checkpoint, Container, Dependency, DependencyKind, Distribution, GpuRequest,
    JobSpec, Layout, LostAfter, Request, Retry, RetryCause, Stop,
};
pub use self::unit::{Bytes, MilliCpus, Millis, ParseUnitError, Timestamp};
pub use self::user::Queue;
pub use self::worker::{Link, Mode, Worker};

#[cfg(test)]
mod tests;
