//! Everything that needs more than one module, or real programs.

mod cluster;
mod lab;
mod refusals;
mod simulation;
mod supervision;
mod tidy;
