//! `drigs logs ID`.

use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;

use crate::cli::{
    Session,
    failure::{Failure, code},
    target,
};
use crate::model::{Bytes, TaskId, TaskState};
use crate::rpc::api::{Api, ErrorKind, LogRequest, TargetRef, TaskFilter};

#[derive(Args, Clone, Debug)]
pub struct LogsArgs {
    /// A job (its first task), or one of its tasks: 12, 12.3
    #[arg(value_name = "ID", value_parser = target::parse)]
    target: TargetRef,
    /// Go on as it is written, until it is over
    #[arg(short, long)]
    follow: bool,
    /// Which attempt [default: the latest]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Which node of a job that spans several
    #[arg(long, alias = "rank", value_name = "N", default_value_t = 0)]
    node: u32,
    /// Only the last so many lines
    #[arg(short = 'n', long, alias = "lines", value_name = "LINES")]
    tail: Option<u64>,
}

/// How long a broken stream is taken up again before it is given up.
const MOST_RESUMPTIONS: u32 = 20;
const RESUME_AFTER: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(500);

pub async fn run(args: LogsArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let follow = args.follow;
    let shown = target::shown(args.target);
    tokio::select! {
        ended = show(args, session) => return ended,
        Ok(()) = tokio::signal::ctrl_c(), if follow => {}
    }
    session.screen.note(format!("\n{shown} goes on; `drigs logs -f {shown}` follows it again"));
    Err(Failure::quiet(code::INTERRUPTED))
}

async fn show(args: LogsArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let task = task(args.target, session).await?;
    if args.follow && args.attempt.is_none() {
        until_started(task, session).await?;
    }
    let mut request = LogRequest {
        task,
        attempt: args.attempt,
        node: args.node,
        follow: args.follow,
        tail: args.tail,
        from: 0,
    };
    let mut resumptions = 0;
    loop {
        let Err((failure, kind)) = stream(&mut request, session).await else { return Ok(()) };
        let broken = matches!(kind, Some(ErrorKind::Unavailable | ErrorKind::Overloaded));
        if !broken || resumptions == MOST_RESUMPTIONS {
            return Err(failure);
        }
        resumptions += 1;
        tokio::time::sleep(RESUME_AFTER).await;
    }
}

/// A job without an array has task 0; of an array, the first one is meant.
async fn task(target: TargetRef, session: &Session<'_, impl Api>) -> Result<TaskId, Failure> {
    match target {
        TargetRef::Task(task) => Ok(task),
        TargetRef::Job(job) => {
            let detail = session.api.job(job, session.consistency).await?;
            Ok(TaskId { job, index: detail.spec.indices().first().unwrap_or(0) })
        }
    }
}

/// Waits for the first attempt; says once what it waits for.
async fn until_started(task: TaskId, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let filter = TaskFilter {
        job: task.job,
        index: Some(task.index),
        states: Vec::new(),
        limit: 1,
        after: None,
    };
    let mut said = false;
    loop {
        let page = session.api.tasks(filter.clone(), session.consistency).await?;
        let state = page.tasks.first().map(|task| (task.attempt, task.status));
        let waits = match state {
            Some((_, state)) if state.is_final() => return Ok(()),
            Some((_, TaskState::Running | TaskState::Recovering)) => return Ok(()),
            Some((_, state)) => state,
            None => TaskState::Queued,
        };
        if !said {
            session.screen.note(format!("{task} is {waits}; its output follows once it runs"));
            said = true;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Copies one stream to stdout, and remembers in `request` where to go on.
async fn stream(
    request: &mut LogRequest,
    session: &mut Session<'_, impl Api>,
) -> Result<(), (Failure, Option<ErrorKind>)> {
    let told = |error: crate::rpc::api::ApiError| {
        let kind = error.kind;
        (Failure::from(error), Some(kind))
    };
    let mut chunks = session.api.logs(request.clone()).await.map_err(told)?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(told)?;
        if chunk.dropped > 0 && request.from == 0 && request.tail.is_none() {
            let dropped = Bytes(chunk.dropped);
            session
                .screen
                .note(format!("({dropped} before this were dropped to keep within the limit)"));
        }
        session.screen.write(&chunk.bytes).map_err(|failure| (failure, None))?;
        request.from = chunk.offset + chunk.bytes.len() as u64;
        request.attempt = Some(chunk.attempt.number);
        request.tail = None;
    }
    Ok(())
}
