//! Judges what happened: how one state may follow another, and whether it matches what physically ran. It keeps its own
//! account and shares no code with what it judges.

use std::collections::{BTreeMap, BTreeSet};

use drigs::model::{
    AttemptId, Bytes, DependencyKind, Ending, Epoch, IndexSet, JobId, LostAfter, MilliCpus, Phase,
    StopReason, TaskId, TaskState, WorkerId,
};
use drigs::state::{Batch, Change, Changes, Command, Event, Outcome, State, SubmitJob, Target};

use super::machine::{How, Process};
use super::world::World;

#[derive(Default)]
pub struct Oracle {
    /// The state after all that was committed.
    pub truth: State,
    /// What physically happened to each attempt on each machine.
    ran: BTreeMap<(AttemptId, usize), Ran>,
    /// Attempts on machines that an operator declared gone while they were not: all bets are off there.
    forgotten: BTreeSet<(AttemptId, usize)>,
    machine_of: BTreeMap<WorkerId, usize>,
    jobs: BTreeMap<JobId, JobAccount>,
    job_named: BTreeMap<String, JobId>,
    highest_number: BTreeMap<TaskId, u32>,
    over: BTreeMap<JobId, IndexSet>,
    cancelled: BTreeMap<JobId, IndexSet>,
    /// Since which log entry each attempt is to be stopped.
    stops: BTreeMap<AttemptId, u64>,
    /// Attempts that a person wants run again, and whose tasks must not end with them.
    must_return: BTreeSet<AttemptId>,
    /// Submissions by name: what the client was told.
    acknowledged: BTreeMap<String, JobId>,
    /// Cancellations that are in the log.
    cancels: BTreeSet<Target>,
}

struct Ran {
    started: bool,
    live: bool,
    how: Option<How>,
    ending: Option<Ending>,
    closed: Option<Closed>,
}

/// By which kind of command the log recorded the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    ByItsWorker,
    GivenUp,
    ByReboot,
    Forgotten,
}

#[derive(Default)]
struct JobAccount {
    unmet: BTreeMap<JobId, DependencyKind>,
    dependency_failed: bool,
    /// How it ended, while it is over.
    outcome: Option<TaskState>,
    most_running: Option<u32>,
}

impl Oracle {
    pub fn ended(&mut self, attempt: AttemptId, machine: usize, ending: Option<Ending>, how: How) {
        let ran = self.ran.entry((attempt, machine)).or_insert(Ran {
            started: false,
            live: false,
            how: None,
            ending: None,
            closed: None,
        });
        assert!(ran.how.is_none(), "{attempt} ended twice on machine {machine}");
        ran.live = false;
        ran.how = Some(how);
        ran.ending = ending;
    }

    fn is_forgotten(&self, attempt: AttemptId, machine: usize) -> bool {
        self.forgotten.contains(&(attempt, machine))
    }

    /// The machine on which each live part of the attempt is, by the log.
    fn live_on(&self, attempt: AttemptId, machine: usize) -> bool {
        let Some(row) = self.truth.live_attempt(attempt) else { return false };
        let mut parts = row.parts.iter().filter(|part| part.is_live());
        parts.any(|part| self.machine_of.get(&part.slice.worker) == Some(&machine))
    }

    pub fn acknowledge_submission(&mut self, name: &str, job: JobId) {
        let before = self.acknowledged.insert(name.to_owned(), job);
        assert!(before.is_none_or(|before| before == job), "{name} was acknowledged twice");
    }

    pub fn acknowledge_cancel(&self, target: Target) {
        assert!(self.cancels.contains(&target), "the cancel of {target:?} is not in the log");
    }
}

impl World {
    // What is committed.

    /// Applies an entry to the oracle's own state, command by command, and judges each.
    pub fn witness(&mut self, batch: Batch) -> Vec<Outcome> {
        let time = self.oracle.truth.counters.now;
        self.oracle.truth.advance(batch.at);
        assert!(self.oracle.truth.counters.now >= time, "time went backwards");
        self.oracle.truth.take_changes();
        batch.commands.into_iter().map(|command| self.witness_command(command)).collect()
    }

    fn witness_command(&mut self, command: Command) -> Outcome {
        let at_stake = self.at_stake(&command);
        let to_return = self.to_return(&command);
        let counters = self.oracle.truth.counters.clone();
        let outcome = self.oracle.truth.apply(command.clone());
        let changes = self.oracle.truth.take_changes();
        self.oracle.truth.check_invariants();
        match &outcome {
            Ok(events) => {
                check_rows_leave_once(&changes);
                self.oracle.must_return.extend(to_return);
                self.judge(&command, &at_stake, events);
            }
            Err(rejection) => {
                self.met("rejection");
                assert!(is_empty(&changes), "{command:?} was rejected and changed something");
                assert_eq!(counters, self.oracle.truth.counters, "{command:?} was rejected");
                self.note(|| format!("rejected: {rejection}"));
            }
        }
        outcome
    }

    /// The live parts that this command may close, by attempt and machine.
    fn at_stake(&self, command: &Command) -> Vec<(AttemptId, usize)> {
        let truth = &self.oracle.truth;
        let on = |worker: &WorkerId| {
            let machine = self.oracle.machine_of[worker];
            truth.attempts_on(*worker).map(move |attempt| (attempt, machine)).collect()
        };
        match command {
            Command::EndPart { attempt, worker, .. }
            | Command::GiveUpAttempt { attempt, worker } => {
                let machine = self.oracle.machine_of.get(worker);
                machine.map(|machine| (*attempt, *machine)).into_iter().collect()
            }
            Command::RegisterWorker(it) => {
                let known = truth.workers.iter().find(|(_, worker)| worker.uuid == it.uuid);
                known.map_or_else(Vec::new, |(id, _)| on(id))
            }
            Command::ForgetWorker { worker } if truth.workers.contains(worker) => on(worker),
            _ => Vec::new(),
        }
    }

    /// The attempts that this command, if it is accepted, wants run again.
    fn to_return(&self, command: &Command) -> Vec<AttemptId> {
        let Command::RequeueTasks { target } = command else { return Vec::new() };
        let is_meant = |task: &TaskId| match target {
            Target::Job(job) => task.job == *job,
            Target::Task(only) => task == only,
        };
        let active = self.oracle.truth.active_tasks().filter(|(task, ..)| is_meant(task));
        active
            .filter(|(.., attempt)| attempt.stop != Some(StopReason::User))
            .map(|(task, _, attempt)| AttemptId { task, number: attempt.number })
            .collect()
    }

    fn judge(&mut self, command: &Command, at_stake: &[(AttemptId, usize)], events: &[Event]) {
        if let Command::RegisterWorker(registration) = command {
            self.judge_registration(registration.uuid, events);
        }
        let closed: Vec<_> = at_stake
            .iter()
            .copied()
            .filter(|(attempt, machine)| !self.oracle.live_on(*attempt, *machine))
            .collect();
        match command {
            Command::EndPart { attempt, worker, ending, .. } => {
                self.judge_end(*attempt, self.oracle.machine_of[worker], ending);
            }
            Command::GiveUpAttempt { .. } => {
                for (attempt, machine) in closed {
                    self.judge_giving_up(attempt, machine);
                }
            }
            Command::RegisterWorker(registration) => {
                for (attempt, machine) in closed {
                    self.judge_reboot(attempt, machine, registration.epoch);
                }
            }
            Command::ForgetWorker { .. } => {
                self.met("forget");
                for (attempt, machine) in closed {
                    self.oracle.forgotten.insert((attempt, machine));
                    self.close(attempt, machine, Closed::Forgotten);
                }
            }
            Command::StartPart { attempt, worker, .. } => {
                let machine = self.oracle.machine_of[worker];
                let ran = self.oracle.ran.get(&(*attempt, machine));
                assert!(ran.is_some_and(|ran| ran.started), "{attempt} never started there");
            }
            Command::SubmitJob(submission) => self.judge_submission(submission, events),
            Command::CancelTasks { target, .. } => self.judge_cancel(*target),
            Command::RequeueTasks { target } => {
                self.met("requeue");
                let account = self.oracle.jobs.entry(target.job()).or_default();
                account.unmet.clear();
                account.dependency_failed = false;
            }
            Command::RetireJobs { .. } => self.met("retire"),
            _ => {}
        }
        for event in events {
            self.judge_event(event);
        }
    }

    fn judge_event(&mut self, event: &Event) {
        match event {
            Event::AttemptPlaced(attempt) => self.judge_placement(*attempt),
            Event::AttemptPromoted(_) => self.met("promotion"),
            Event::AttemptStopping(attempt) => {
                let index = self.log.entries.len() as u64;
                self.oracle.stops.entry(*attempt).or_insert(index);
            }
            Event::TaskEnded(task, ending) => {
                let over = self.oracle.over.entry(task.job).or_default();
                assert!(!over.contains(task.index), "{task} ended twice");
                over.insert(task.index);
                let number = self.oracle.highest_number.get(task).copied().unwrap_or(0);
                let attempt = AttemptId { task: *task, number };
                assert!(
                    !self.oracle.must_return.contains(&attempt),
                    "{task} ended by {} although it was to run again",
                    ending.reason
                );
            }
            Event::TaskRequeued(_) => self.met("another try"),
            Event::TasksQueuedAgain(job, indices) => {
                for set in [&mut self.oracle.over, &mut self.oracle.cancelled] {
                    let set = set.entry(*job).or_default();
                    indices.ranges().for_each(|(first, last)| set.remove_range(first, last));
                }
                self.oracle.jobs.entry(*job).or_default().outcome = None;
            }
            Event::JobFinished(job, state) => {
                self.oracle.jobs.entry(*job).or_default().outcome = Some(*state);
                for account in self.oracle.jobs.values_mut() {
                    account.settle(*job, *state);
                }
            }
            Event::WorkerSilent(_) => self.met("silence"),
            Event::WorkerBack(_) => self.met("return"),
            _ => {}
        }
    }

    fn judge_registration(&mut self, uuid: uuid::Uuid, events: &[Event]) {
        let machine = self.machines.iter().position(|machine| machine.uuid() == uuid);
        let machine = machine.expect("only machines register");
        for event in events {
            if let Event::WorkerRegistered(worker) = event {
                self.oracle.machine_of.insert(*worker, machine);
            }
        }
    }

    fn judge_submission(&mut self, submission: &SubmitJob, events: &[Event]) {
        let Some(Event::JobSubmitted(job)) = events.first() else {
            panic!("a submission without a job")
        };
        let name = submission.spec.name.clone();
        if let Some(before) = self.oracle.job_named.insert(name.clone(), *job) {
            assert_eq!(before, *job, "one submission, {name}, made two jobs");
            return self.met("repeated submission");
        }
        let mut account = JobAccount {
            unmet: submission.spec.dependencies.iter().map(|it| (it.job, it.kind)).collect(),
            most_running: submission.spec.array.as_ref().and_then(|array| array.max_running),
            ..JobAccount::default()
        };
        for on in account.unmet.keys().copied().collect::<Vec<_>>() {
            if let Some(outcome) = self.oracle.jobs.get(&on).and_then(|job| job.outcome) {
                account.settle(on, outcome);
            }
        }
        self.oracle.jobs.insert(*job, account);
    }

    fn judge_cancel(&mut self, target: Target) {
        self.met("cancel");
        let spec = self.oracle.truth.jobs.get(&target.job()).expect("it was accepted").spec.clone();
        let indices = match target {
            Target::Job(_) => spec.indices(),
            Target::Task(task) => IndexSet::from_range(task.index, task.index),
        };
        self.oracle.must_return.retain(|attempt| {
            attempt.task.job != target.job() || !indices.contains(attempt.task.index)
        });
        self.oracle.cancelled.entry(target.job()).or_default().extend(&indices);
        self.oracle.cancels.insert(target);
    }

    fn judge_placement(&mut self, attempt: AttemptId) {
        let AttemptId { task, number } = attempt;
        let highest = self.oracle.highest_number.insert(task, number).unwrap_or(0);
        assert!(number > highest, "{attempt} follows attempt {highest}");
        let contains = |sets: &BTreeMap<JobId, IndexSet>| {
            sets.get(&task.job).is_some_and(|set| set.contains(task.index))
        };
        assert!(!contains(&self.oracle.over), "{attempt} is placed after the end of its task");
        assert!(!contains(&self.oracle.cancelled), "{attempt} is placed after its cancel");
        let account = &self.oracle.jobs[&task.job];
        assert!(account.unmet.is_empty(), "{attempt} waits for {:?}", account.unmet);
        assert!(!account.dependency_failed, "{attempt}: its dependency failed");
        let job = self.oracle.truth.jobs.get(&task.job).expect("its attempt was placed");
        assert!(job.hold.is_none(), "{attempt} is held");
        let active = self.oracle.truth.active_of(task.job);
        assert!(account.most_running.is_none_or(|most| active <= most), "too many of {}", task.job);
        let row = self.oracle.truth.live_attempt(attempt).expect("it was placed");
        let (gang, prefetched) = (row.parts.len() > 1, row.prefetched);
        for part in &row.parts {
            let worker = self.oracle.truth.workers.get(&part.slice.worker).expect("it was placed");
            assert!(worker.is_ready(), "{attempt} is placed where nothing may start");
        }
        if gang {
            self.met("gang");
        }
        if prefetched {
            self.met("prefetch");
        }
    }

    fn close(&mut self, attempt: AttemptId, machine: usize, closed: Closed) {
        if let Some(ran) = self.oracle.ran.get_mut(&(attempt, machine)) {
            assert!(ran.closed.is_none(), "{attempt} was closed twice");
            ran.closed = Some(closed);
        }
    }

    /// The log says what the worker said: it must be what happened, and be over.
    fn judge_end(&mut self, attempt: AttemptId, machine: usize, told: &Ending) {
        let ran = self.oracle.ran.get(&(attempt, machine));
        let ran = ran.unwrap_or_else(|| panic!("{attempt} ended where it never was"));
        assert!(!ran.live, "{attempt} is recorded as ended and lives");
        let Some(ending) = &ran.ending else { panic!("{attempt} has no end to be told") };
        let same = (ending.reason, ending.exit_code, ending.signal)
            == (told.reason, told.exit_code, told.signal);
        assert!(same, "{attempt} ended by {}, recorded as {}", ending.reason, told.reason);
        self.close(attempt, machine, Closed::ByItsWorker);
    }

    /// Its processes must be gone, not by luck but for certain.
    fn judge_giving_up(&mut self, attempt: AttemptId, machine: usize) {
        self.met("give-up");
        let it = &self.machines[machine];
        assert!(
            !it.processes.contains_key(&attempt) || self.oracle.is_forgotten(attempt, machine),
            "{attempt} is given up and lives on machine {machine}"
        );
        if it.up {
            let order = self.lost_after(attempt);
            if let Some(end) = it.runs_until(order) {
                let gone = it.when(end + LostAfter::GRACE.0);
                assert!(
                    it.disk.contact.is_none() || self.now > gone,
                    "{attempt} is given up {} ms too soon",
                    gone - self.now
                );
            }
        }
        self.close(attempt, machine, Closed::GivenUp);
    }

    /// How long the attempt may run on, by its job; what its worker says if the job does not.
    fn lost_after(&self, attempt: AttemptId) -> LostAfter {
        let spec = self.oracle.truth.jobs.get(&attempt.task.job).map(|job| job.spec.lost_after);
        match spec.flatten() {
            Some(asked) => self.lease.effective(asked),
            None => self.lease.effective(LostAfter::After(drigs::model::Millis(0))),
        }
    }

    /// A new life begins: nothing of the old one may live, and no end that is on disk may be lost.
    fn judge_reboot(&mut self, attempt: AttemptId, machine: usize, epoch: Epoch) {
        self.met("lost to a reboot");
        let it = &self.machines[machine];
        assert!(it.epoch >= epoch, "machine {machine} is not that far");
        assert!(!it.processes.contains_key(&attempt), "{attempt} lives over a reboot");
        let owed = it.disk.results.get(&attempt).filter(|it| matches!(it.phase, Phase::Ended(_)));
        let ran = self.oracle.ran.get(&(attempt, machine));
        let how = ran.and_then(|ran| ran.how);
        assert!(
            owed.is_none() && matches!(how, None | Some(How::PowerCut)),
            "the end of {attempt} was lost in a reboot"
        );
        self.close(attempt, machine, Closed::ByReboot);
    }

    // What happens on machines.

    pub fn witness_start(&mut self, number: usize, attempt: AttemptId, process: &Process) {
        let machine = &self.machines[number];
        if !self.oracle.is_forgotten(attempt, number) {
            assert!(
                self.oracle.live_on(attempt, number),
                "{attempt} starts on machine {number} and is not to run there"
            );
            if let Some(stop) = self.oracle.stops.get(&attempt) {
                assert!(
                    machine.disk.stamp.index < *stop,
                    "{attempt} starts by orders that follow its cancel"
                );
            }
            for (other, elsewhere) in self.live_processes() {
                assert!(
                    other.task != attempt.task
                        || other.number == attempt.number
                        || self.oracle.is_forgotten(other, elsewhere),
                    "{other} on machine {elsewhere} and {attempt} live at one time"
                );
            }
        }
        assert!(
            !machine.processes.contains_key(&attempt),
            "{attempt} starts beside itself on machine {number}"
        );
        let fresh = Ran { started: true, live: true, how: None, ending: None, closed: None };
        let before = self.oracle.ran.insert((attempt, number), fresh);
        assert!(before.is_none(), "{attempt} is run again on machine {number}");
        self.check_capacity(number, process);
    }

    fn live_processes(&self) -> impl Iterator<Item = (AttemptId, usize)> + '_ {
        self.machines
            .iter()
            .flat_map(|machine| machine.processes.keys().map(|attempt| (*attempt, machine.number)))
    }

    /// What lives on a machine never holds more than it has.
    fn check_capacity(&self, number: usize, fresh: &Process) {
        let machine = &self.machines[number];
        let live = || machine.processes.values().chain([fresh]);
        let cpus = live().fold(MilliCpus(0), |sum, it| sum + it.slice.cpus);
        let memory = live().fold(Bytes(0), |sum, it| sum + it.slice.memory);
        assert!(cpus <= machine.cpus, "the CPUs of machine {number} are over-committed");
        assert!(memory <= machine.memory, "the memory of machine {number} is over-committed");
        for gpu in &machine.gpus {
            let grants = live().flat_map(|it| &it.slice.gpus).filter(|it| it.gpu == gpu.uuid);
            let shares: Vec<Option<Bytes>> = grants.map(|grant| grant.share).collect();
            let whole = shares.iter().filter(|share| share.is_none()).count();
            assert!(whole == 0 || shares.len() == 1, "{} has two owners", gpu.uuid);
            let shared = shares.into_iter().flatten().fold(Bytes(0), |sum, share| sum + share);
            assert!(shared <= gpu.memory, "{} is shared out twice", gpu.uuid);
        }
    }

    /// A process is about to be killed because no order names it.
    pub fn witness_unwanted(&mut self, number: usize, attempt: AttemptId) {
        assert!(
            !self.oracle.live_on(attempt, number),
            "{attempt} is killed on machine {number} and nobody wanted that"
        );
    }

    // The end.

    pub fn is_all_over(&self) -> bool {
        let truth = &self.oracle.truth;
        truth.jobs.values().all(|job| job.is_finished())
            && self.machines.iter().all(|it| it.processes.is_empty())
            && self.people_are_done()
    }

    pub fn check_the_end(&mut self) {
        for controller in 0..self.controllers.len() {
            self.catch_up(controller);
        }
        let truth = &self.oracle.truth;
        for (id, job) in truth.jobs.iter() {
            let tasks: Vec<_> = truth.tasks_of(*id).collect();
            assert!(job.is_finished(), "job {id} never ended: {job:?}\n{tasks:?}");
        }
        assert!(truth.tasks.is_empty(), "tasks are left");
        for (name, job) in &self.oracle.acknowledged {
            assert_eq!(self.oracle.job_named.get(name), Some(job), "{name} was lost");
        }
        for (id, worker) in truth.workers.iter() {
            let free = truth.free(*id).expect("it is there");
            assert_eq!(free.cpus, worker.cpus, "{id} still holds CPUs");
            let machine = &self.machines[self.oracle.machine_of[id]];
            assert!(worker.is_connected() || machine.lost, "{id} never came back");
        }
        for machine in self.machines.iter().filter(|machine| !machine.lost) {
            let left: Vec<_> = machine.disk.results.keys().collect();
            assert!(left.is_empty(), "machine {} still tells of {left:?}", machine.number);
        }
        for ((attempt, machine), ran) in &self.oracle.ran {
            let closed = ran.closed;
            assert!(closed.is_some(), "{attempt} on machine {machine} was never recorded");
        }
        for (number, controller) in self.controllers.iter().enumerate() {
            assert!(controller.state == *truth, "replica {number} differs at the end");
        }
    }
}

impl JobAccount {
    fn settle(&mut self, on: JobId, outcome: TaskState) {
        let Some(kind) = self.unmet.remove(&on) else { return };
        let ok = outcome == TaskState::Completed;
        let met = match kind {
            DependencyKind::AfterOk => ok,
            DependencyKind::AfterAny => true,
            DependencyKind::AfterNotOk => !ok,
        };
        self.dependency_failed |= !met;
    }
}

fn is_empty(changes: &Changes) -> bool {
    changes.jobs.is_empty()
        && changes.tasks.is_empty()
        && changes.workers.is_empty()
        && changes.queues.is_empty()
        && changes.keys.is_empty()
}

/// A finished row goes to the store in its last form, and that form says so.
fn check_rows_leave_once(changes: &Changes) {
    for (id, change) in &changes.tasks {
        if let Change::Archive(task) = change {
            assert!(task.attempt().is_none(), "{id} left memory while it ran");
        }
    }
}
