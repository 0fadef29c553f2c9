//! `12`, `12.3` or `12_3`: a job, or one of its tasks.

use crate::model::{JobId, TaskId};
use crate::rpc::api::TargetRef;

/// Reads what people call a job or a task.
pub fn parse(text: &str) -> Result<TargetRef, String> {
    if text.contains(['.', '_']) {
        return text.parse::<TaskId>().map(TargetRef::Task).map_err(|fault| fault.to_string());
    }
    text.parse::<JobId>()
        .map(TargetRef::Job)
        .map_err(|_| format!("`{text}` is not a job (such as 12) or a task (such as 12.3)"))
}

/// As people write it.
pub fn shown(target: TargetRef) -> String {
    match target {
        TargetRef::Job(job) => job.to_string(),
        TargetRef::Task(task) => task.to_string(),
    }
}
