//! A worker: dials out to the controllers, runs what they order, and reports until it is acknowledged.

// Pure, like the core.
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod reconcile;

mod config;
mod agent;
mod identity;
pub mod driver;
pub mod gpu;
pub mod supervisor;
pub mod launcher;
pub mod shim;
pub mod attempt_dir;
pub mod contact;
pub mod clock;
mod link;
mod logs;
mod machine;
mod stop_all;
pub mod process;
mod strays;
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
