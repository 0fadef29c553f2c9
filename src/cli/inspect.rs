//! `drigs inspect ID`.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::{
    Session,
    failure::Failure,
    jobs,
    screen::{Cell, Screen, Table},
    target,
};
use crate::model::{JobSpec, Layout, LostAfter, Millis};
use crate::rpc::api::{Api, JobDetail, TargetRef, TaskFilter, TaskView};

#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// A job, or one of its tasks: 12, 12.3
    #[arg(value_name = "ID", value_parser = target::parse)]
    target: TargetRef,
}

pub async fn run(args: InspectArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    match args.target {
        TargetRef::Job(id) => {
            let detail = session.api.job(id, session.consistency).await?;
            session.screen.show(&detail, |screen| job(&detail, screen))
        }
        TargetRef::Task(id) => {
            let filter = TaskFilter {
                job: id.job,
                index: Some(id.index),
                states: Vec::new(),
                limit: 1,
                after: None,
            };
            let page = session.api.tasks(filter, session.consistency).await?;
            let Some(task) = page.tasks.first() else {
                return Err(Failure::new(
                    crate::cli::failure::code::NOT_FOUND,
                    format!("job {} has no task {}", id.job, id.index),
                ));
            };
            session.screen.show(task, |screen| tasks(&page.tasks, screen))
        }
    }
}

fn job(detail: &JobDetail, screen: &Screen<'_>) -> String {
    let (job, spec) = (&detail.job, &detail.spec);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<12} {value}");
        }
    };
    line("Job", format!("{} ({})", job.job_id, job.name));
    line("State", state(detail));
    line("User", job.user.to_string());
    line("Queue", format!("{}, priority {}", job.queue, job.priority));
    line("Command", spec.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    line("Directory", spec.working_dir.clone().unwrap_or_default());
    line("Needs", needs(spec));
    line("Labels", pairs(&spec.labels));
    line("Array", array(detail));
    line("Limits", limits(spec));
    line("Waits for", joined(detail.waits_for.iter()));
    line("Held by", joined(detail.held_by.iter()));
    line("Begins", spec.begin.map(|at| screen.moment_and_age(at)).unwrap_or_default());
    line("Submitted", screen.moment_and_age(job.submitted_at));
    line("Started", job.started_at.map(|at| screen.moment_and_age(at)).unwrap_or_default());
    line("Ended", job.completed_at.map(|at| screen.moment_and_age(at)).unwrap_or_default());
    line("Environment", spec.env.keys().cloned().collect::<Vec<_>>().join(" "));
    if !detail.task_list.is_empty() {
        text.push('\n');
        text.push_str(&tasks(&detail.task_list, screen));
    }
    text
}

fn state(detail: &JobDetail) -> String {
    let job = &detail.job;
    let mut text = job.status.to_string();
    if let (false, Some(reason)) = (job.status.is_final(), job.reason) {
        let _ = write!(text, " ({reason}; `drigs explain {}` says more)", job.job_id);
    }
    if let (true, Some(ended)) = (job.status.is_final(), &job.ended) {
        let _ = write!(text, " ({})", jobs::ending(ended));
        if let Some(message) = &ended.message {
            let _ = write!(text, ": {message}");
        }
    }
    text
}

fn needs(spec: &JobSpec) -> String {
    let request = &spec.request;
    let mut parts = vec![counted(request.cpus, "CPU")];
    if request.memory.0 > 0 {
        parts.push(format!("{} memory", request.memory));
    }
    let gpus = &request.gpus;
    if gpus.count > 0 {
        let mut text = counted(gpus.count, "GPU");
        if let Some(model) = &gpus.model {
            let _ = write!(text, " {model}");
        }
        if let Some(memory) = gpus.memory {
            let _ = write!(text, " of {memory}{}", if gpus.sharing { ", shared" } else { "" });
        }
        if let Some(capability) = gpus.min_compute_capability {
            let _ = write!(text, ", compute capability {capability}");
        }
        parts.push(text);
    }
    let each = parts.join(", ");
    match spec.layout {
        Layout::Single => each,
        Layout::Nodes(nodes) => format!("{nodes} nodes, each {each}"),
        Layout::Anywhere => format!("{each}, wherever they are"),
    }
}

fn counted(count: impl std::fmt::Display, what: &str) -> String {
    match count.to_string() {
        one if one == "1" => format!("1 {what}"),
        several => format!("{several} {what}s"),
    }
}

fn array(detail: &JobDetail) -> String {
    let Some(array) = &detail.spec.array else { return String::new() };
    let counts = &detail.job.tasks;
    let named = [
        (counts.running, "running"),
        (counts.recovering, "recovering"),
        (counts.scheduled, "scheduled"),
        (counts.queued, "queued"),
        (counts.pending, "pending"),
        (counts.completed, "completed"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
    ];
    let counts = named.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    let most = array.max_running.map(|most| format!(", {most} at a time")).unwrap_or_default();
    format!("{}{most}: {}", array.indices, counts.join(", "))
}

fn limits(spec: &JobSpec) -> String {
    let mut parts = Vec::new();
    parts.extend(spec.time_limit.map(|limit| format!("{limit} of time")));
    if spec.retry.max > 0 {
        parts.push(format!("up to {} more tries", spec.retry.max));
    }
    parts.extend(spec.lost_after.map(|lost| match lost {
        LostAfter::After(length) => format!("given up {length} after its worker fell silent"),
        LostAfter::Keep => String::from("kept however long its worker is silent"),
    }));
    parts.join(", ")
}

fn tasks(tasks: &[TaskView], screen: &Screen<'_>) -> String {
    let mut table =
        Table::new([">TASK", "STATE", ">ATTEMPT", "~WORKER", "STARTED", ">TIME", "~GPUS", "~END"]);
    for task in tasks {
        let time = task.started_at.map(|at| screen.elapsed(at, task.ended_at));
        table.row([
            (&task.task_id).into(),
            Cell::state(task.status),
            task.attempt.into(),
            task.worker_names.join(",").into(),
            task.started_at.map(|at| screen.moment(at)).unwrap_or_default().into(),
            time.as_ref().map(Millis::to_string).unwrap_or_default().into(),
            task.gpus.join(",").into(),
            task.ended.as_ref().map(jobs::ending).unwrap_or_default().into(),
        ]);
    }
    table.draw(screen)
}

/// A word as a shell would take it; long ones are cut, for a whole script may be one.
fn quoted(word: &str) -> String {
    let short: String = word.lines().next().unwrap_or_default().chars().take(60).collect();
    let cut = if short.len() < word.len() { format!("{short}…") } else { short };
    shlex::try_quote(&cut).map_or_else(|_| String::from("…"), std::borrow::Cow::into_owned)
}

fn pairs(labels: &std::collections::BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn joined<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}
