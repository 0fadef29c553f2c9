//! `drigs jobs`.

use clap::Args;

use crate::cli::{
    Session,
    failure::Failure,
    screen::{Cell, Screen, Table},
    watch::Watch,
};
use crate::model::{JobId, Millis, TaskState};
use crate::rpc::api::{Api, EndingView, JobFilter, JobPage, JobView};

#[derive(Args, Clone, Debug)]
pub struct JobsArgs {
    /// Only these
    #[arg(value_name = "ID")]
    ids: Vec<JobId>,
    /// Also those that are over
    #[arg(short, long)]
    all: bool,
    /// Only in these states: R, PD, failed, … by commas
    #[arg(short, long = "state", value_name = "STATES", value_delimiter = ',', value_parser = state)]
    states: Vec<TaskState>,
    /// Only this user's
    #[arg(short, long, value_name = "~USER")]
    user: Option<String>,
    /// Only in this queue
    #[arg(short = 'p', long, alias = "partition", value_name = "~QUEUE")]
    queue: Option<String>,
    /// Only with this in their name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// At most so many, the newest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    watch: Watch,
}

/// A state by its name, or by Slurm's two letters.
pub fn state(text: &str) -> Result<TaskState, String> {
    match text.to_ascii_uppercase().as_str() {
        "PENDING" | "PD" => Ok(TaskState::Pending),
        "QUEUED" | "Q" => Ok(TaskState::Queued),
        "SCHEDULED" | "S" | "CF" => Ok(TaskState::Scheduled),
        "RUNNING" | "R" => Ok(TaskState::Running),
        "RECOVERING" | "RC" => Ok(TaskState::Recovering),
        "COMPLETED" | "CD" => Ok(TaskState::Completed),
        "FAILED" | "F" => Ok(TaskState::Failed),
        "CANCELLED" | "CANCELED" | "CA" => Ok(TaskState::Cancelled),
        _ => Err(format!(
            "`{text}` is not a state: pending, queued, scheduled, running, recovering, completed, failed or cancelled"
        )),
    }
}

pub async fn run(args: JobsArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let filter = JobFilter {
        ids: args.ids,
        states: args.states,
        user: args.user,
        queue: args.queue,
        name: args.name,
        finished: args.all,
        limit: args.limit,
        before: None,
    };
    args.watch
        .run(session, async |session: &mut Session<'_, _>| {
            let page = session.api.jobs(filter.clone(), session.consistency).await?;
            session.screen.show(&page.jobs, |screen| table(&page.jobs, screen).draw(screen))?;
            note_omissions(&page, session);
            Ok(())
        })
        .await
}

fn note_omissions<A>(page: &JobPage, session: &mut Session<'_, A>) {
    if page.next.is_some() {
        let shown = page.jobs.len();
        session.screen.note(format!("({shown} shown, there are more: -n raises the limit)"));
    }
}

pub fn table(jobs: &[JobView], screen: &Screen<'_>) -> Table {
    if screen.is_wide() {
        return wide_table(jobs, screen);
    }
    let mut table = Table::new([
        ">ID",
        "~NAME",
        "~USER",
        "~QUEUE",
        "STATE",
        ">TASKS",
        ">GPUS",
        ">TIME",
        "~REASON/WORKER",
    ]);
    for job in jobs {
        table.row(common(job, screen));
    }
    table
}

fn wide_table(jobs: &[JobView], screen: &Screen<'_>) -> Table {
    let mut table = Table::new([
        ">ID",
        "~NAME",
        "~USER",
        "~QUEUE",
        "STATE",
        ">TASKS",
        ">GPUS",
        ">TIME",
        "~REASON/WORKER",
        ">PRIORITY",
        ">NODES",
        ">CPUS",
        ">MEMORY",
        ">LIMIT",
        "SUBMITTED",
    ]);
    for job in jobs {
        let limit = job.time_limit_ms.map(|limit| Millis(limit).to_string()).unwrap_or_default();
        let more: [Cell; 6] = [
            job.priority.into(),
            job.nodes.into(),
            job.cpus.into(),
            (if job.memory.0 > 0 { job.memory.to_string() } else { String::new() }).into(),
            limit.into(),
            screen.moment(job.submitted_at).into(),
        ];
        table.row(common(job, screen).into_iter().chain(more));
    }
    table
}

fn common(job: &JobView, screen: &Screen<'_>) -> [Cell; 9] {
    [
        job.job_id.into(),
        (&job.name).into(),
        (&job.user).into(),
        (&job.queue).into(),
        Cell::state(job.status),
        tasks(job).into(),
        (job.gpus * job.nodes.max(1)).into(),
        time(job, screen).into(),
        reason_or_worker(job).into(),
    ]
}

/// Done of all, for an array.
fn tasks(job: &JobView) -> String {
    let it = &job.tasks;
    let over = it.completed + it.failed + it.cancelled;
    let all = over + it.pending + it.queued + it.scheduled + it.running + it.recovering;
    if job.is_array { format!("{over}/{all}") } else { String::new() }
}

fn time(job: &JobView, screen: &Screen<'_>) -> String {
    job.started_at
        .map(|started| screen.elapsed(started, job.completed_at).to_string())
        .unwrap_or_default()
}

fn reason_or_worker(job: &JobView) -> String {
    if let (true, Some(ended)) = (job.status.is_final(), &job.ended) {
        return ending(ended);
    }
    match (&job.reason, job.workers.as_slice()) {
        (_, [first, second, third, rest @ ..]) if !rest.is_empty() => {
            format!("{first},{second},{third},+{}", rest.len())
        }
        (None, workers) | (Some(_), workers @ [_, ..]) => workers.join(","),
        (Some(reason), []) => reason.to_string(),
    }
}

/// `EXIT 3`, `SIGNAL 9`, `TIMEOUT`.
pub fn ending(ended: &EndingView) -> String {
    match (ended.exit_code, ended.signal) {
        (_, Some(signal)) => format!("{} {signal}", ended.reason),
        (Some(code), None) if ended.reason == "EXIT" => format!("{} {code}", ended.reason),
        _ => ended.reason.clone(),
    }
}
