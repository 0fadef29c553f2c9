//! How the first job that finds no room is kept from starving.
//!
//! The rule: the first job in line that could run on the workers in touch but finds no room waits for particular ones,
//! those where it would fit soonest by the time limits of what runs there, or after the fewest ends where limits are not
//! known. From then on a job behind it may start on these workers only if the waiting one will still fit there once those
//! attempts have ended, or if its own time limit ends it before that. One reservation at a time is enough: whoever has it
//! starts sooner or later, and then the next one is first.

use std::collections::BTreeMap;

use crate::{
    model::{JobId, Slice, StopReason, Timestamp, WorkerId},
    scheduler::{Reserved, class::Class, room::Room},
    state::State,
};

/// What is kept free for one job.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    job: JobId,
    class: Class<'a>,
    /// When it will fit, if all that it waits for has a time limit.
    at: Option<Timestamp>,
    /// Its workers as they will be then.
    futures: BTreeMap<WorkerId, Room<'a>>,
}

/// When a class will fit on one worker, and what that worker will be like.
#[derive(Debug)]
pub(super) struct Outlook<'a> {
    pub at: Option<Timestamp>,
    pub ends_awaited: usize,
    pub future: Room<'a>,
}

/// Something that holds room on a worker, and until when at the latest.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub until: Option<Timestamp>,
    pub slice: Slice,
}

impl<'a> Reservation<'a> {
    /// `None` when the class could not run on these workers even if they were empty.
    pub fn make<'r>(
        job: JobId,
        class: Class<'a>,
        rooms: impl Iterator<Item = &'r Room<'a>>,
        holdings: impl Fn(WorkerId) -> Vec<Holding>,
    ) -> Option<Self>
    where
        'a: 'r,
    {
        let outlooks = outlooks(&class, rooms, holdings);
        if outlooks.len() < class.nodes() {
            return None;
        }
        let chosen = &outlooks[..class.nodes()];
        let at = chosen.iter().map(|it| it.at).collect::<Option<Vec<_>>>();
        Some(Reservation {
            job,
            class,
            at: at.and_then(|times| times.into_iter().max()),
            futures: chosen.iter().map(|it| (it.future.id, it.future.clone())).collect(),
        })
    }

    pub fn summary(&self) -> Reserved {
        Reserved { job: self.job, workers: self.futures.keys().copied().collect(), at: self.at }
    }

    /// Whether what ends at `until` is gone before the reserved job could start.
    pub fn outlasts(&self, until: Option<Timestamp>) -> bool {
        matches!((self.at, until), (Some(at), Some(until)) if until <= at)
    }

    /// Whether the reserved job will still fit with `slice` beside it.
    pub fn permits(&self, slice: &Slice) -> bool {
        let Some(future) = self.futures.get(&slice.worker) else { return true };
        let mut future = future.clone();
        future.take(slice);
        future.fits(&self.class)
    }

    /// `slice` will still be there when the reserved job starts.
    pub fn take(&mut self, slice: &Slice) {
        if let Some(future) = self.futures.get_mut(&slice.worker) {
            future.take(slice);
        }
    }
}

/// Where the class would fit when enough of what runs there has ended: the soonest first.
pub(super) fn outlooks<'a: 'r, 'r>(
    class: &Class,
    rooms: impl Iterator<Item = &'r Room<'a>>,
    holdings: impl Fn(WorkerId) -> Vec<Holding>,
) -> Vec<Outlook<'a>> {
    let mut outlooks: Vec<_> =
        rooms.filter_map(|room| outlook(class, room, holdings(room.id))).collect();
    outlooks.sort_by_key(|it| (it.at.unwrap_or(NEVER), it.ends_awaited, it.future.id));
    outlooks
}

const NEVER: Timestamp = Timestamp(u64::MAX);

fn outlook<'a>(class: &Class, room: &Room<'a>, mut holdings: Vec<Holding>) -> Option<Outlook<'a>> {
    if !room.emptied().fits(class) {
        return None;
    }
    holdings.sort_by_key(|it| it.until.unwrap_or(NEVER));
    let mut future = room.clone();
    let mut at = Some(Timestamp(0));
    for (ended, holding) in holdings.iter().enumerate() {
        if future.fits(class) {
            return Some(Outlook { at, ends_awaited: ended, future });
        }
        future.give_back(&holding.slice);
        at = holding.until;
    }
    future.fits(class).then_some(Outlook { at, ends_awaited: holdings.len(), future })
}

/// What the attempts on `worker` hold.
pub(super) fn holdings(state: &State, worker: WorkerId, now: Timestamp) -> Vec<Holding> {
    let holding = |id| {
        let attempt = state.live_attempt(id).filter(|attempt| !attempt.prefetched)?;
        let part = attempt.part_on(worker).filter(|part| part.is_live())?;
        let until = latest_end(state, id.task.job, attempt.started_at, attempt.stop, now);
        Some(Holding { until, slice: part.slice.clone() })
    };
    state.attempts_on(worker).filter_map(holding).collect()
}

/// When an attempt is over at the latest: by its limit, or by its grace once it was told to stop.
pub(super) fn latest_end(
    state: &State,
    job: JobId,
    started_at: Option<Timestamp>,
    stop: Option<StopReason>,
    now: Timestamp,
) -> Option<Timestamp> {
    let spec = &state.jobs.get(&job)?.spec;
    if stop.is_some() {
        return Some(now + spec.stop.grace);
    }
    let limit = spec.time_limit?;
    Some((started_at.unwrap_or(now) + limit).max(now))
}
