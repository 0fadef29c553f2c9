//! The worker: how jobs run on a machine.

pub mod driver;
pub mod supervisor;
pub mod launcher;
pub mod shim;
pub mod attempt_dir;
pub mod contact;
mod strays;
pub mod process;
pub mod clock;
mod sys;
