//! Everything that needs more than one module, or real programs.

mod cli;
mod cluster;
mod lab;
mod refusals;
mod simulation;
mod supervision;
mod tidy;
