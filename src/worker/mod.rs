//! A worker: dials out to the controllers, runs what they order, and reports until it is acknowledged.

// Pure, like the core.
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod reconcile;

mod agent;
pub mod attempt_dir;
pub mod clock;
mod config;
pub mod contact;
pub mod driver;
pub mod gpu;
mod identity;
pub mod launcher;
mod link;
mod logs;
mod machine;
pub mod process;
pub mod shim;
mod stop_all;
mod strays;
pub mod supervisor;
mod sys;

pub use self::agent::run;
pub use self::config::WorkerAction;
pub use self::config::{Config, WorkerArgs};

/// Does what an operator asked of a data directory instead of running a worker on it.
///
/// # Errors
/// As the action says.
pub async fn act(action: WorkerAction) -> anyhow::Result<()> {
    match action {
        WorkerAction::StopAll { data_dir } => stop_all::stop_all(&data_dir).await,
    }
}
