//! `drigs completions SHELL`.

use std::io::Write;

use clap::CommandFactory as _;

use crate::cli::{Arguments, failure::Failure};

#[derive(clap::Args, Clone, Debug)]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// # Errors
/// stdout cannot be written.
pub fn run(args: &CompletionsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "drigs", &mut script);
    out.write_all(&script)?;
    Ok(())
}
