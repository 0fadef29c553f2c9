//! `drigs cancel`, `hold`, `release`, `requeue` and `update`: what people do to jobs.

use clap::Args;

use crate::cli::{Session, failure::Failure, jobs, spec, target};
use crate::model::{JobId, TaskState};
use crate::rpc::api::{Api, ApiError, ErrorKind, JobAction, JobFilter, TargetRef};

#[derive(Args, Clone, Debug)]
pub struct Targets {
    /// Jobs, or tasks of them: 12, 12.3
    #[arg(value_name = "ID", required = true, value_parser = target::parse)]
    targets: Vec<TargetRef>,
}

#[derive(Args, Clone, Debug)]
pub struct CancelArgs {
    /// Jobs, or tasks of them: 12, 12.3
    #[arg(value_name = "ID", value_parser = target::parse, required_unless_present_any = ["user", "states", "name", "queue"])]
    targets: Vec<TargetRef>,
    /// All of this user's that are not over
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// All in these states
    #[arg(short, long = "state", value_name = "STATES", value_delimiter = ',', value_parser = jobs::state)]
    states: Vec<TaskState>,
    /// All with this in their name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// All in this queue
    #[arg(short = 'p', long, alias = "partition", value_name = "QUEUE")]
    queue: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct UpdateArgs {
    #[arg(value_name = "ID", required = true)]
    ids: Vec<JobId>,
    /// 0 to 1000000; higher goes first
    #[arg(long, value_name = "N", required = true, value_parser = spec::priority, allow_negative_numbers = true)]
    priority: Option<u32>,
}

/// How many jobs are looked up at a time when they are chosen by what they are.
const PAGE: u32 = 1000;

pub async fn cancel(args: CancelArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let by_filter = args.user.is_some()
        || args.name.is_some()
        || args.queue.is_some()
        || !args.states.is_empty();
    if !by_filter {
        return all("cancelled", args.targets, JobAction::Cancel, session).await;
    }
    if !args.targets.is_empty() {
        return Err(Failure::usage("cancel: name jobs, or say which ones by a filter, not both"));
    }
    if let Some(state) = args.states.iter().find(|state| state.is_final()) {
        return Err(Failure::usage(format!("--state: jobs that are {state} cannot be cancelled")));
    }
    let filter = JobFilter {
        states: args.states,
        user: args.user,
        name: args.name,
        queue: args.queue,
        limit: PAGE,
        ..JobFilter::default()
    };
    let chosen = matching(filter, session).await?;
    if chosen.is_empty() {
        session.screen.note("no such job");
        return Ok(());
    }
    all("cancelled", chosen, JobAction::Cancel, session).await
}

/// Every job that matches, over all pages.
async fn matching(
    mut filter: JobFilter,
    session: &Session<'_, impl Api>,
) -> Result<Vec<TargetRef>, Failure> {
    let mut chosen = Vec::new();
    loop {
        let page = session.api.jobs(filter.clone(), session.consistency).await?;
        chosen.extend(page.jobs.iter().map(|job| TargetRef::Job(job.job_id)));
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return Ok(chosen),
        }
    }
}

pub async fn hold(args: Targets, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    all("held", args.targets, JobAction::Hold, session).await
}

pub async fn release(args: Targets, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    all("released", args.targets, JobAction::Release, session).await
}

pub async fn requeue(args: Targets, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    all("requeued", args.targets, JobAction::Requeue, session).await
}

pub async fn update(args: UpdateArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let priority = args.priority.unwrap_or_default();
    let targets = args.ids.into_iter().map(TargetRef::Job).collect();
    all("updated", targets, JobAction::SetPriority(priority), session).await
}

/// Does `action` to each; one that fails does not keep the others from it.
async fn all(
    done: &str,
    targets: Vec<TargetRef>,
    action: JobAction,
    session: &mut Session<'_, impl Api>,
) -> Result<(), Failure> {
    let mut failed: Option<Failure> = None;
    for target in targets {
        let shown = target::shown(target);
        match session.api.act(target, action, session.user.clone()).await {
            Ok(()) => session.screen.note(format!("{done} {shown}")),
            Err(error) if ends_it_all(&error) => return Err(error.into()),
            Err(error) => {
                // The last one is said by whoever gets it.
                let failure = Failure::from(error);
                if let Some(earlier) = failed.replace(failure) {
                    session.screen.note(format!("drigs: {}", earlier.message));
                }
            }
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Whether the next job would fare no better.
fn ends_it_all(error: &ApiError) -> bool {
    match error.kind {
        ErrorKind::Unavailable | ErrorKind::Denied => true,
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::Conflict
        | ErrorKind::Overloaded
        | ErrorKind::Internal => false,
    }
}
