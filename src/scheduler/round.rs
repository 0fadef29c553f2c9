//! One pass over the line: every job in turn gets what it can, or a reason why not.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    model::{
        Job, JobId, Placement, QueueName, Slice, TaskId, TaskStatus, Timestamp, WaitReason,
        WorkerId,
    },
    scheduler::{
        Plan, View,
        class::Class,
        reservation::{Holding, Reservation, holdings, latest_end},
        room::Room,
    },
    state::{RequestMark, State},
};

pub(super) struct Round<'a> {
    pub state: &'a State,
    pub view: &'a View,
    pub budget: usize,
    pub plan: Plan,
    /// The workers that take new work now.
    pub rooms: Vec<Room<'a>>,
    /// The same before this round took anything.
    pub untouched: Vec<Room<'a>>,
    /// The same with nothing running there.
    emptied: Vec<Room<'a>>,
    classes: BTreeMap<Class<'a>, Standing>,
    /// The requests for which there is no place, whatever their time limits: all behind them wait for the same reason.
    closed: BTreeMap<RequestMark, WaitReason>,
    /// The classes that found no room so far, in the order of the first of them.
    pub blocked: Vec<Class<'a>>,
    reservation: Option<Reservation<'a>>,
    /// Who is to have the reservation: it is worked out only when somebody behind could take the room.
    first_in_line: Option<Candidate<'a>>,
    /// GPUs that each limited queue may still take.
    quotas: BTreeMap<&'a QueueName, u64>,
}

/// What a round came to.
pub(super) struct Outcome {
    pub plan: Plan,
    /// Why every job waits that asks for this and was not told of by itself.
    pub closed: BTreeMap<RequestMark, WaitReason>,
}

/// What is known of a class in this round.
#[derive(Debug)]
pub(super) struct Standing {
    /// Places in `rooms` of the workers that could run it if they were empty.
    pub hosts: Vec<usize>,
    /// The best fit so far. Placing there makes it fit even better, so it stays the best until it is full.
    host: Option<usize>,
    /// The job that found no room first.
    first_blocked: Option<JobId>,
    /// Set once one task of the class found no place: room only shrinks within a round.
    blocked: Option<WaitReason>,
    /// The same for tasks whose time limit lets them end before the reserved job could start.
    brief_blocked: Option<WaitReason>,
}

/// A task that wants a place.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    job: JobId,
    class: Class<'a>,
    avoid: Option<&'a BTreeSet<WorkerId>>,
    until: Option<Timestamp>,
}

impl<'a> Round<'a> {
    pub fn new(state: &'a State, view: &'a View, budget: usize) -> Self {
        let rooms: Vec<Room> = view
            .in_touch
            .iter()
            .filter_map(|id| Room::of(state, *id))
            .filter(|room| room.worker.is_ready())
            .collect();
        Round {
            state,
            view,
            budget,
            plan: Plan::default(),
            untouched: rooms.clone(),
            emptied: rooms.iter().map(Room::emptied).collect(),
            rooms,
            classes: BTreeMap::new(),
            closed: BTreeMap::new(),
            blocked: Vec::new(),
            reservation: None,
            first_in_line: None,
            quotas: quotas(state),
        }
    }

    /// Serves one job after the other, and tells `observe` why those that are left with waiting tasks wait. Jobs that ask
    /// for what others found no place for are passed over without a look at them.
    pub fn run(mut self, mut observe: impl FnMut(JobId, WaitReason)) -> Outcome {
        for place in self.state.pending() {
            if self.is_spent() {
                break;
            }
            if let Some(reason) = self.closed.get(&place.request) {
                *self.plan.waiting.entry(*reason).or_default() += 1;
                continue;
            }
            let Some(job) = self.state.jobs.get(&place.job) else { continue };
            if let Some(reason) = self.serve(place.job, job) {
                *self.plan.waiting.entry(reason).or_default() += 1;
                observe(place.job, reason);
                self.close_if_hopeless(place.request, &Class::of(&job.spec));
            }
        }
        self.plan.reserved = self.reservation.as_ref().map(Reservation::summary);
        Outcome { plan: self.plan, closed: self.closed }
    }

    fn close_if_hopeless(&mut self, request: RequestMark, class: &Class<'a>) {
        let standing = self.classes.get(class);
        if let Some((reason, _)) = standing.and_then(|it| it.blocked.zip(it.brief_blocked)) {
            self.closed.insert(request, reason);
        }
    }

    pub fn is_spent(&self) -> bool {
        self.plan.placements.len() >= self.budget
    }

    /// Places what it can of the job; why the rest waits.
    fn serve(&mut self, id: JobId, job: &'a Job) -> Option<WaitReason> {
        if let Some(reason) = gate(self.state, id, job, self.view.now) {
            if reason == WaitReason::BeginTime {
                self.wake_at(job.spec.begin);
            }
            return Some(reason);
        }
        let candidate = Candidate {
            job: id,
            class: Class::of(&job.spec),
            avoid: None,
            until: job.spec.time_limit.map(|limit| self.view.now + limit),
        };
        if let Some(reason) = self.known_block(&candidate) {
            return Some(if self.at_max_running(id, job) {
                WaitReason::MaxRunning
            } else {
                reason
            });
        }
        let in_backoff = match self.place_requeued(candidate, job) {
            Ok(in_backoff) => in_backoff,
            Err(reason) => return Some(reason),
        };
        self.place_queued(candidate, job).err().or(in_backoff)
    }

    /// Tasks that wait for another attempt go before those that never had one. Also says why some of them were passed
    /// over, which does not keep the others back.
    fn place_requeued(
        &mut self,
        candidate: Candidate<'a>,
        job: &'a Job,
    ) -> Result<Option<WaitReason>, WaitReason> {
        let state = self.state;
        let mut left = None;
        for task in state.requeued_of(candidate.job) {
            let Some(row) = state.tasks.get(&task) else { continue };
            let TaskStatus::Queued { not_before, .. } = &row.status else { continue };
            if *not_before > self.view.now {
                self.wake_at(Some(*not_before));
                left = left.or(Some(WaitReason::Backoff));
                continue;
            }
            let avoid = (!row.avoid.is_empty()).then_some(&row.avoid);
            let candidate = Candidate { avoid, ..candidate };
            match self.place(&candidate, task, job) {
                Ok(()) => {}
                // Another task of the job may run where this one should not.
                Err(reason) if avoid.is_some() && reason.is_for_room() => left = Some(reason),
                Err(reason) => return Err(reason),
            }
        }
        Ok(left)
    }

    fn place_queued(&mut self, candidate: Candidate<'a>, job: &'a Job) -> Result<(), WaitReason> {
        let id = candidate.job;
        let mut waiting = job.queued.iter().map(|index| TaskId { job: id, index }).peekable();
        while let Some(task) = waiting.peek() {
            if let Err(reason) = self.place(&candidate, *task, job) {
                if reason.is_for_room() && self.classes[&candidate.class].first_blocked == Some(id)
                {
                    self.prefetch(id, job, waiting);
                }
                return Err(reason);
            }
            waiting.next();
        }
        Ok(())
    }

    fn place(
        &mut self,
        candidate: &Candidate<'a>,
        task: TaskId,
        job: &'a Job,
    ) -> Result<(), WaitReason> {
        if self.is_spent() {
            return Err(WaitReason::Starting);
        }
        if self.at_max_running(candidate.job, job) {
            return Err(WaitReason::MaxRunning);
        }
        let gpus = u64::from(job.spec.request.gpus.count) * candidate.class.nodes() as u64;
        if self.quotas.get(&job.spec.queue).is_some_and(|left| *left < gpus) {
            return Err(WaitReason::Quota);
        }
        let offers = match self.find(candidate) {
            Ok(offers) => offers,
            Err(reason) => return Err(self.note_block(candidate, reason)),
        };
        for (host, slice) in &offers {
            self.take(*host, slice, candidate.until);
        }
        let mut slices: Vec<Slice> = offers.into_iter().map(|(_, slice)| slice).collect();
        if let Some(left) = self.quotas.get_mut(&job.spec.queue) {
            *left -= gpus;
        }
        number_ranks(&mut slices, job);
        self.plan.placements.push(Placement { task, slices, prefetch: false });
        Ok(())
    }
}

// Finding a place.
impl<'a> Round<'a> {
    fn find(&mut self, candidate: &Candidate<'a>) -> Result<Vec<(usize, Slice)>, WaitReason> {
        if let Some(reason) = self.known_block(candidate) {
            return Err(reason);
        }
        let standing = self.standing(candidate.class);
        let (nodes, host) = (candidate.class.nodes(), standing.host);
        if standing.hosts.len() < nodes {
            return Err(self.why_no_hosts(&candidate.class));
        }
        if nodes == 1
            && candidate.avoid.is_none()
            && let Some(host) = host
            && self.rooms[host].fits(&candidate.class)
        {
            self.reserve_for_first_in_line();
            if let Some(slice) = self.offer(candidate, host) {
                return Ok(vec![(host, slice)]);
            }
        }
        let hosts = self.preferred_hosts(candidate);
        let mut offers: Vec<_> = hosts
            .iter()
            .filter(|host| self.rooms[**host].fits(&candidate.class))
            .map(|host| (self.rooms[*host].misfit(&candidate.class), *host))
            .collect();
        offers.sort_unstable();
        if !offers.is_empty() {
            self.reserve_for_first_in_line();
        }
        let mut found = Vec::new();
        for (_, host) in offers {
            let Some(slice) = self.offer(candidate, host) else { continue };
            found.push((host, slice));
            if found.len() == nodes {
                self.standing(candidate.class).host = Some(host);
                return Ok(found);
            }
        }
        Err(self.why_no_room(&candidate.class, &hosts))
    }

    /// The workers that could run it, without those where it failed through no fault of its own, unless these are the
    /// only ones.
    fn preferred_hosts(&mut self, candidate: &Candidate<'a>) -> Vec<usize> {
        let hosts = self.standing(candidate.class).hosts.clone();
        let Some(avoid) = candidate.avoid else { return hosts };
        let (avoided, preferred): (Vec<_>, Vec<_>) =
            hosts.iter().partition(|host| avoid.contains(&self.rooms[**host].id));
        match preferred.len() >= candidate.class.nodes() || avoided.is_empty() {
            true => preferred,
            false => hosts,
        }
    }

    /// What the worker can give to the candidate, if that delays nobody who waits for it.
    fn offer(&self, candidate: &Candidate<'a>, host: usize) -> Option<Slice> {
        let slice = self.rooms[host].slice(&candidate.class)?;
        let Some(reservation) = &self.reservation else { return Some(slice) };
        (reservation.outlasts(candidate.until) || reservation.permits(&slice)).then_some(slice)
    }

    fn take(&mut self, host: usize, slice: &Slice, until: Option<Timestamp>) {
        self.rooms[host].take(slice);
        if let Some(reservation) = &mut self.reservation
            && !reservation.outlasts(until)
        {
            reservation.take(slice);
        }
    }

    pub fn standing(&mut self, class: Class<'a>) -> &mut Standing {
        let emptied = &self.emptied;
        self.classes.entry(class).or_insert_with(|| Standing {
            hosts: (0..emptied.len()).filter(|host| emptied[*host].fits(&class)).collect(),
            host: None,
            first_blocked: None,
            blocked: None,
            brief_blocked: None,
        })
    }
}

// Not finding one.
impl<'a> Round<'a> {
    /// Why no task of this class gets a place in this round, if that is known already.
    fn known_block(&self, candidate: &Candidate<'a>) -> Option<WaitReason> {
        let standing = self.classes.get(&candidate.class)?;
        match self.is_brief(candidate) {
            true => standing.brief_blocked,
            false => standing.blocked,
        }
    }

    fn is_brief(&self, candidate: &Candidate<'a>) -> bool {
        self.reservation.as_ref().is_some_and(|it| it.outlasts(candidate.until))
    }

    /// Remembers for all of its class that there is no place, and keeps the first one from starving.
    fn note_block(&mut self, candidate: &Candidate<'a>, reason: WaitReason) -> WaitReason {
        if candidate.avoid.is_some() {
            self.put_first_in_line(candidate, reason);
            return reason;
        }
        let brief = self.is_brief(candidate);
        let standing = self.standing(candidate.class);
        standing.blocked = standing.blocked.or(Some(reason));
        if brief || reason != WaitReason::Reserved {
            standing.brief_blocked = Some(reason);
        }
        if standing.first_blocked.is_some() || !reason.is_for_room() {
            return reason;
        }
        standing.first_blocked = Some(candidate.job);
        self.blocked.push(candidate.class);
        self.put_first_in_line(candidate, reason);
        reason
    }

    /// The first one that waits for room, and for nothing else, has it kept free.
    fn put_first_in_line(&mut self, candidate: &Candidate<'a>, reason: WaitReason) {
        if self.reservation.is_none() && reason.is_for_room() {
            self.first_in_line.get_or_insert(*candidate);
        }
    }

    /// Nothing was placed since it found no room, so this is still what it would have found then.
    fn reserve_for_first_in_line(&mut self) {
        let Some(candidate) = self.first_in_line.take() else { return };
        let hosts = self.preferred_hosts(&candidate);
        let planned = self.planned_holdings();
        let (state, now) = (self.state, self.view.now);
        self.reservation = Reservation::make(
            candidate.job,
            candidate.class,
            hosts.iter().map(|host| &self.rooms[*host]),
            |worker| {
                let mut all = holdings(state, worker, now);
                all.extend(planned.get(&worker).into_iter().flatten().cloned());
                all
            },
        );
    }

    /// What the placements of this round will hold.
    fn planned_holdings(&self) -> BTreeMap<WorkerId, Vec<Holding>> {
        let mut planned: BTreeMap<WorkerId, Vec<Holding>> = BTreeMap::new();
        for placement in self.plan.placements.iter().filter(|it| !it.prefetch) {
            let until = latest_end(self.state, placement.task.job, None, None, self.view.now);
            for slice in &placement.slices {
                let holding = Holding { until, slice: slice.clone() };
                planned.entry(slice.worker).or_default().push(holding);
            }
        }
        planned
    }

    fn why_no_hosts(&self, class: &Class) -> WaitReason {
        let able = self.state.workers.values().filter(|it| class.could_run_on(it)).count();
        match (self.state.workers.is_empty(), able >= class.nodes()) {
            (true, _) => WaitReason::NoWorkers,
            (false, true) => WaitReason::NoWorkers,
            (false, false) => WaitReason::Infeasible,
        }
    }

    fn why_no_room(&self, class: &Class, hosts: &[usize]) -> WaitReason {
        let nodes = class.nodes();
        let fitting =
            |rooms: &[Room]| hosts.iter().filter(|host| rooms[**host].fits(class)).count();
        if fitting(&self.rooms) >= nodes {
            return WaitReason::Reserved;
        }
        match fitting(&self.untouched) >= nodes {
            true => WaitReason::Priority,
            false => WaitReason::Resources,
        }
    }

    fn at_max_running(&self, id: JobId, job: &Job) -> bool {
        max_running(job).is_some_and(|most| self.running(id) >= most)
    }

    /// Attempts of the job, with those of this round.
    pub fn running(&self, id: JobId) -> usize {
        let planned = self.plan.placements.iter().rev().take_while(|it| it.task.job == id);
        self.state.active_of(id) as usize + planned.count()
    }

    fn wake_at(&mut self, at: Option<Timestamp>) {
        self.plan.next_change = self.plan.next_change.into_iter().chain(at).min();
    }
}

/// What keeps all of the job's waiting tasks back, whatever room there is.
pub(super) fn gate(state: &State, id: JobId, job: &Job, now: Timestamp) -> Option<WaitReason> {
    if state.is_in_doubt(id) {
        return Some(WaitReason::Recovering);
    }
    if job.hold.is_some() {
        return Some(WaitReason::Held);
    }
    if !job.waits_for.is_empty() {
        return Some(WaitReason::Dependency);
    }
    job.spec.begin.filter(|begin| *begin > now).map(|_| WaitReason::BeginTime)
}

/// How many tasks of the job may run at one time.
pub(super) fn max_running(job: &Job) -> Option<usize> {
    Some(job.spec.array.as_ref()?.max_running? as usize)
}

/// What the limited queues may still take: their limit less what their tasks hold.
fn quotas(state: &State) -> BTreeMap<&QueueName, u64> {
    let mut left: BTreeMap<&QueueName, u64> = state
        .queues
        .iter()
        .filter_map(|(name, queue)| Some((name, u64::from(queue.max_gpus?))))
        .collect();
    if left.is_empty() {
        return left;
    }
    for (id, _, attempt) in state.active_tasks() {
        let job = state.jobs.get(&id.job);
        if let Some(left) = job.and_then(|job| left.get_mut(&job.spec.queue)) {
            let live = attempt.parts.iter().filter(|part| part.is_live());
            let held: usize = live.map(|part| part.slice.gpus.len()).sum();
            *left = left.saturating_sub(held as u64);
        }
    }
    left
}

/// Ranks are dealt out evenly, the first workers taking what is left over.
fn number_ranks(slices: &mut [Slice], job: &Job) {
    let workers = slices.len() as u32;
    let world = job.spec.distribution.as_ref().map_or(workers, |it| it.world_size.max(workers));
    let mut next = 0;
    for (place, slice) in (0..).zip(slices) {
        slice.first_rank = next;
        slice.ranks = world / workers + u32::from(place < world % workers);
        next += slice.ranks;
    }
}
