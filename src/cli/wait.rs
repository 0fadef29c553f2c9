//! `drigs wait ID…`, and what `submit --wait` does.

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use crate::cli::{
    Session,
    failure::{Failure, code},
    jobs, spec,
};
use crate::model::{JobId, Millis, TaskState};
use crate::rpc::api::{Api, ErrorKind, JobView};

#[derive(Args, Clone, Debug)]
pub struct WaitArgs {
    #[arg(value_name = "ID", required = true)]
    ids: Vec<JobId>,
    /// Give up after: 90s, 30m, 4h
    #[arg(long, value_name = "TIME", value_parser = spec::seconds)]
    timeout: Option<Millis>,
}

/// How long one question to the cluster stays open.
const PATIENCE: Duration = Duration::from_secs(30);
/// A cluster may be out of reach for so long before waiting is given up.
const MOST_SILENCE: Duration = Duration::from_secs(600);
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub async fn run(args: WaitArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let finished = until_over(&args.ids, args.timeout, session).await?;
    session.screen.show(&finished, |screen| jobs::table(&finished, screen).draw(screen))?;
    outcome(&finished)
}

/// Waits until all of `ids` are over. Ctrl-C ends the waiting, not the jobs.
///
/// # Errors
/// The time is up, a job does not exist, or the cluster was out of reach for too long.
pub async fn until_over(
    ids: &[JobId],
    timeout: Option<Millis>,
    session: &mut Session<'_, impl Api>,
) -> Result<Vec<JobView>, Failure> {
    let names: Vec<String> = ids.iter().map(JobId::to_string).collect();
    let names = names.join(" ");
    tokio::select! {
        jobs = ask_until_over(ids, timeout, session) => return jobs,
        Ok(()) = tokio::signal::ctrl_c() => {}
    }
    session.screen.note(format!(
        "\njob {names} goes on; `drigs wait {names}` waits again, `drigs cancel {names}` ends it"
    ));
    Err(Failure::quiet(code::INTERRUPTED))
}

async fn ask_until_over(
    ids: &[JobId],
    timeout: Option<Millis>,
    session: &mut Session<'_, impl Api>,
) -> Result<Vec<JobView>, Failure> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout.to_duration());
    let mut heard = Instant::now();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let patience = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        match session.api.wait(ids.to_vec(), patience).await {
            Ok(answer) if answer.done => return Ok(answer.jobs),
            Ok(answer) => {
                heard = Instant::now();
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(not_yet(&answer.jobs));
                }
            }
            Err(error)
                if error.kind == ErrorKind::Unavailable && heard.elapsed() < MOST_SILENCE =>
            {
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(error.into());
                }
                session.screen.note(format!("{}; trying again", error.message));
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn not_yet(jobs: &[JobView]) -> Failure {
    let still = jobs.iter().filter(|job| !job.status.is_final());
    let still: Vec<String> =
        still.map(|job| format!("job {} is {}", job.job_id, job.status)).collect();
    Failure::new(code::FAILED, format!("the time is up: {}", still.join(", ")))
}

/// The first code that is not 0, in the order in which the jobs were named.
pub fn outcome(jobs: &[JobView]) -> Result<(), Failure> {
    match jobs.iter().map(own_code).find(|code| *code != 0) {
        Some(code) => Err(Failure::quiet(code)),
        None => Ok(()),
    }
}

/// The job's own exit code: as a shell would report it, and 1 when it has none of its own.
fn own_code(job: &JobView) -> u8 {
    if job.status == TaskState::Completed {
        return 0;
    }
    let ended = job.ended.as_ref();
    let by_signal = ended.and_then(|ended| ended.signal).map(|signal| 128 + signal);
    let by_itself = ended.and_then(|ended| ended.exit_code);
    by_signal
        .or(by_itself)
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code != 0)
        .unwrap_or(code::FAILED)
}

/// One line for a person about how `job` ended.
pub fn epitaph(job: &JobView) -> String {
    let mut text = format!("job {} {}", job.job_id, job.status);
    if let Some(ended) = &job.ended {
        text = format!("{text}: {}", jobs::ending(ended));
        if let Some(message) = &ended.message {
            text = format!("{text} ({message})");
        }
    }
    text
}
