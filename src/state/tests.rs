//! What each command does, and when it is refused.

mod any_command;
mod attempts;
mod dependencies;
mod gangs;
mod generations;
mod jobs;
mod scale;
mod streams;
mod workers;
