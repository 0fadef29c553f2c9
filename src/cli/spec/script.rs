//! A job as a script, with its flags in `#DRIGS` lines or, from Slurm, `#SBATCH` lines. The script's text travels with the
//! job: no shared file system is needed, and later edits change nothing.

mod sbatch;

use crate::cli::spec::{Draft, Fault, MAX_TEXT, Place, SpecFlags, flags::Environment};
use crate::model::{Bytes, JobSpec};

/// A script's draft, and what a person should know about it.
#[derive(Clone, Debug)]
pub struct Script {
    pub draft: Draft,
    pub warnings: Vec<String>,
}

/// Runs an interpreter on a text that was handed over as an argument: the text goes into a file that is already deleted
/// when the interpreter opens it, so nothing is left behind, and `exec` keeps signals and exit codes as they are.
const FROM_DELETED_FILE: &str = r#"f=$(mktemp) && printf %s "$1" >"$f" && exec 3<"$f" && rm -f "$f" && shift && exec "$@" || exit 126"#;

/// Interpreters that take a text after `-c` and `$0` after that.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ksh", "zsh", "ash"];

/// Reads a script's text; `file` is what its faults call it, `args` are its own arguments.
///
/// # Errors
/// Names the line of a directive that is wrong.
pub fn read_script(
    file: &str,
    text: &str,
    args: &[String],
    environment: Environment<'_>,
) -> Result<Script, Fault> {
    if text.len() > MAX_TEXT.min(JobSpec::MAX_WORD) {
        let size = Bytes(text.len() as u64);
        return Err(Place::new(file).fault(format!(
            "is {size} in size; a script of at most 128K can travel with its job"
        )));
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let mut script = Script { draft: Draft::default(), warnings: Vec::new() };
    for (number, line) in directives(text) {
        let place = Place::new(format!("{file}:{number}"));
        let words = match line {
            Line::Drigs(rest) => words_of(rest, &place)?,
            Line::Sbatch(rest) => {
                let translated = sbatch::translate(&words_of(rest, &place)?);
                let warnings = translated.warnings.into_iter();
                script.warnings.extend(warnings.map(|warning| format!("{place}: {warning}")));
                translated.flags
            }
        };
        let flags = SpecFlags::from_directive(&words, &place)?;
        let at = |flag: &'static str| Place::new(format!("{place}: {flag}"));
        // As in Slurm, of two lines that say the same the later one holds.
        script.draft = flags.into_draft(environment, at)?.over(script.draft);
    }
    script.draft.name.get_or_insert_with(|| name.to_owned());
    script.draft.command = Some(command(name, text, args));
    script.draft.places.insert("command", Place::new(file));
    Ok(script)
}

enum Line<'a> {
    Drigs(&'a str),
    Sbatch(&'a str),
}

/// The directives with their line numbers. As in Slurm they end with the first line that is neither empty nor a comment.
fn directives(text: &str) -> impl Iterator<Item = (usize, Line<'_>)> {
    let head = text.lines().enumerate().take_while(|(_, line)| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    });
    head.filter_map(|(number, line)| {
        let directive = |name| {
            let rest: &str = line.strip_prefix(name)?;
            (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(rest)
        };
        let line = directive("#DRIGS").map(Line::Drigs);
        let line = line.or_else(|| directive("#SBATCH").map(Line::Sbatch))?;
        Some((number + 1, line))
    })
}

/// The words of a directive, quoted as in a shell; ` #` begins a comment.
fn words_of(rest: &str, place: &Place) -> Result<Vec<String>, Fault> {
    shlex::split(rest).ok_or_else(|| place.fault("a quotation mark is never closed"))
}

fn command(name: &str, text: &str, args: &[String]) -> Vec<String> {
    let interpreter = interpreter(text);
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut command = if is_shell(&interpreter) {
        [owned(&interpreter), owned(&["-c", text, name])].concat()
    } else {
        let bootstrap = owned(&["/bin/sh", "-c", FROM_DELETED_FILE, name, text]);
        [bootstrap, owned(&interpreter), owned(&["/dev/fd/3"])].concat()
    };
    command.extend_from_slice(args);
    command
}

/// As the kernel reads a `#!` line: a program, and the rest of the line as one argument.
fn interpreter(text: &str) -> Vec<&str> {
    let line = text.strip_prefix("#!").and_then(|rest| rest.lines().next()).unwrap_or("");
    let line = line.trim();
    match line.split_once([' ', '\t']) {
        Some((program, argument)) => vec![program, argument.trim()],
        None if line.is_empty() => vec!["/bin/sh"],
        None => vec![line],
    }
}

fn is_shell(interpreter: &[&str]) -> bool {
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut program = base(interpreter.first().copied().unwrap_or_default());
    if program == "env" {
        let rest = interpreter.get(1).copied().unwrap_or_default();
        let rest = rest.strip_prefix("-S").unwrap_or(rest);
        program = base(rest.split_whitespace().next().unwrap_or_default());
    }
    SHELLS.contains(&program.as_str())
}
