//! Everything that needs more than one module, or real programs.

mod backup;
mod cli;
mod cluster;
mod lab;
mod membership;
mod refusals;
mod simulation;
mod supervision;
mod tidy;
