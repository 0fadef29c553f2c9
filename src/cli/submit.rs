//! `drigs submit`.

mod words;

use std::{fs, io::Read as _, path::Path};

use clap::Args;
use uuid::Uuid;

use crate::cli::{
    Session,
    failure::Failure,
    spec::{self, Draft, Fault, Place, SpecFlags, Surroundings},
    wait,
};
use crate::model::{IdempotencyKey, JobSpec, UserName};
use crate::rpc::api::{Api, ApiError, ErrorKind, SubmitRequest, Submitted};

pub use self::words::script_arguments_apart;

#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "drigs submit [OPTIONS] -- COMMAND [ARG]…\n       drigs submit [OPTIONS] SCRIPT [ARG]…\n       drigs submit [OPTIONS] FILE.yaml\n       drigs submit [OPTIONS] -",
    after_help = EXAMPLES
)]
pub struct SubmitArgs {
    /// A job file (YAML or JSON), a script, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: Option<String>,
    /// The command; after a script its arguments
    #[arg(value_name = "COMMAND", last = true)]
    words: Vec<String>,

    /// Wait until it is over; ends with its exit code
    #[arg(short = 'W', long)]
    wait: bool,
    /// Print nothing but the job's id
    #[arg(long)]
    parsable: bool,
    /// Check and say what would happen, but submit nothing
    #[arg(long, alias = "test-only")]
    dry_run: bool,
    /// Refuse what no present worker could ever run
    #[arg(long)]
    strict: bool,
    /// Submissions with the same key within a day are one [default: a random one]
    #[arg(long, value_name = "KEY", value_parser = key)]
    key: Option<String>,
    /// On whose account
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    spec: SpecFlags,
}

const EXAMPLES: &str = "\
Examples:
  drigs submit -G 1 -t 4h -- python train.py --epochs 3
  drigs submit -G A100:80GB:2 -c 8 --mem 64G -- torchrun --nproc-per-node 2 train.py
  drigs submit -a 0-99%4 -- sh -c 'python sweep.py --seed $DRIGS_TASK_ID'
  drigs submit -d afterok:12 --retry 3 --retry-on oom,exit:75 job.sh data/
  drigs submit job.yaml --wait

A script says its flags in `#DRIGS` lines (`#DRIGS -G 2 -t 1h`); `#SBATCH` lines are understood too.
Flags of the command line win over those. The job gets no variable of this shell but those named with -e.";

fn key(text: &str) -> Result<String, String> {
    match text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        true => Err(String::from("a key is 1 to 200 characters, without line breaks")),
        false => Ok(text.to_owned()),
    }
}

fn is_spec_file(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

pub async fn run(args: SubmitArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let around = Surroundings {
        now: session.screen.now(),
        time_zone: session.screen.time_zone.clone(),
        directory: present_directory(),
    };
    let environment = |name: &str| std::env::var(name).ok();
    let (spec, warnings) = read(&args, &around, &environment)?;
    for warning in warnings {
        session.screen.note(format!("drigs: warning: {warning}"));
    }
    let key = args.key.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
    let request = SubmitRequest {
        spec,
        user: args
            .user
            .as_ref()
            .map_or_else(|| session.user.clone(), |it| UserName::new(it.as_str())),
        key: IdempotencyKey::new(key.as_str()),
        strict: args.strict,
        dry_run: args.dry_run,
    };
    let queue = request.spec.queue.clone();
    let submitted = session.api.submit(request).await.map_err(|error| maybe_taken(error, &key))?;
    for warning in &submitted.warnings {
        session.screen.note(format!("drigs: warning: {warning}"));
    }
    let of_tasks =
        if submitted.tasks > 1 { format!(", {} tasks", submitted.tasks) } else { String::new() };
    let Some(id) = submitted.job_id else {
        return session.screen.show(&submitted, |_| {
            format!("this would be taken: {} in queue {queue}\n", tasks(&submitted))
        });
    };
    match args.parsable {
        true => session.screen.print(&format!("{id}\n"))?,
        false => session.screen.show(&submitted, |_| format!("submitted job {id}{of_tasks}\n"))?,
    }
    if !args.wait {
        return Ok(());
    }
    let finished = wait::until_over(&[id], None, session).await?;
    for job in &finished {
        session.screen.note(wait::epitaph(job));
    }
    wait::outcome(&finished)
}

fn tasks(submitted: &Submitted) -> String {
    match submitted.tasks {
        1 => String::from("one task"),
        tasks => format!("{tasks} tasks"),
    }
}

/// Without an answer nobody knows whether the job was taken, but asking again with the same key cannot submit it twice.
fn maybe_taken(error: ApiError, key: &str) -> Failure {
    let unknown = error.kind == ErrorKind::Unavailable;
    let mut failure = Failure::from(error);
    if unknown {
        failure.message += &format!("; to ask again without submitting twice, add --key {key}");
    }
    failure
}

/// The complete spec, and what a person should know about it.
fn read(
    args: &SubmitArgs,
    around: &Surroundings,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(JobSpec, Vec<String>), Fault> {
    let mut flags = args.spec.clone().into_draft(environment, Place::new)?;
    let (below, warnings) = match &args.file {
        None => {
            if !args.words.is_empty() {
                flags.command = Some(args.words.clone());
            }
            flags.places.insert("command", Place::new("submit"));
            (Draft::default(), Vec::new())
        }
        Some(file) => read_source(file, &args.words, environment)?,
    };
    Ok((flags.over(below).finish(around)?, warnings))
}

fn read_source(
    file: &str,
    args: &[String],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(Draft, Vec<String>), Fault> {
    let (name, text) = match file {
        "-" => ("stdin", read_text("stdin", &mut std::io::stdin())?),
        file => (file, read_named(file)?),
    };
    let is_script = text.starts_with("#!") || file.ends_with(".sh") || file.ends_with(".bash");
    if is_script && !is_spec_file(file) {
        let script = spec::read_script(name, &text, args, environment)?;
        return Ok((script.draft, script.warnings));
    }
    if !is_spec_file(file) && file != "-" {
        return Err(Place::new(file).fault(
            "is neither a job file (.yaml, .json) nor a script: a script begins with `#!` and its interpreter",
        ));
    }
    if let Some(extra) = args.first() {
        return Err(
            Place::new(file).fault(format!("`{extra}` follows, but a job file takes no arguments"))
        );
    }
    Ok((spec::read_file(name, &text)?, Vec::new()))
}

fn read_named(file: &str) -> Result<String, Fault> {
    let place = Place::new(file);
    let mut opened = fs::File::open(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if file.contains(['.', '/']) => place.fault("no such file"),
        std::io::ErrorKind::NotFound => place
            .fault(format!("no such file; a command goes after `--`: drigs submit -- {file} …")),
        _ => place.fault(format!("cannot be read: {error}")),
    })?;
    read_text(file, &mut opened)
}

fn read_text(name: &str, source: &mut dyn std::io::Read) -> Result<String, Fault> {
    let place = Place::new(name);
    let mut bytes = Vec::new();
    let limit = spec::MAX_TEXT as u64;
    source
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| place.fault(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > limit {
        return Err(place.fault("is larger than 1M, the most that is read"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        Place::new(format!("{name}:{line}")).fault("is not UTF-8 text")
    })
}

/// As the shell shows it where possible: with the symbolic links that were followed.
fn present_directory() -> String {
    let physical = std::env::current_dir().ok();
    let logical = std::env::var("PWD")
        .ok()
        .filter(|logical| logical.starts_with('/') && fs::canonicalize(logical).ok() == physical);
    logical
        .or_else(|| physical.and_then(|path| path.to_str().map(str::to_owned)))
        .unwrap_or_else(|| String::from("/"))
}
