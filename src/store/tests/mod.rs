mod commands;
mod data_dir;
mod log;
mod state;
