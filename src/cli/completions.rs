//! `drigs completions SHELL`.

use std::io::Write;

use clap::{Command, CommandFactory as _};

use crate::cli::{Arguments, failure::Failure};

#[derive(clap::Args, Clone, Debug)]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// `roles` are the program's other words, such as `drigs lab`.
///
/// # Errors
/// stdout cannot be written.
pub fn run(args: &CompletionsArgs, roles: &Command, out: &mut dyn Write) -> Result<(), Failure> {
    let mut command = Arguments::command();
    for role in roles.get_subcommands() {
        command = match command.find_subcommand(role.get_name()) {
            // `drigs worker` is the agent by its flags, and asks the cluster by its verbs.
            Some(_) => command.mut_subcommand(role.get_name(), |own| {
                own.args(role.get_arguments()).subcommands(role.get_subcommands())
            }),
            None => command.subcommand(role),
        };
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "drigs", &mut script);
    out.write_all(&script)?;
    Ok(())
}
