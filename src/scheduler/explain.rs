use crate::{
    model::{Explanation, JobId, JobSpec},
    scheduler::{Reasons, View},
    state::{Rejection, State},
};

/// Why the tasks of a job stand where they stand.
pub fn explain(
    state: &State,
    view: &View,
    id: JobId,
    index: Option<u32>,
) -> Result<Explanation, Rejection> {
    let job = state.jobs.get(&id).ok_or(Rejection::UnknownJob(id))?;
    let _ = index;
    Ok(Explanation {
        target: id.to_string(),
        state: state.counts(id, job, view.now).summary(),
        reason: Reasons::new(state, view).of(id),
        ended: None,
        lines: Vec::new(),
        ahead: None,
        earliest_start: None,
    })
}

/// Why no registered worker, whatever its present state, could ever meet the request; `None` when some could.
pub fn infeasible(state: &State, spec: &JobSpec) -> Option<String> {
    let _ = (state, spec);
    None
}
