//! Users and operators: they ask, ask again when no answer comes, and change their minds.

use std::collections::{BTreeMap, BTreeSet};

use drigs::model::{
    Array, Bytes, Dependency, DependencyKind, GpuRequest, IndexSet, JobId, JobSpec, Layout,
    LostAfter, MilliCpus, Millis, Queue, QueueName, Request, Retry, RetryCause, Stop, TaskId,
    Timestamp,
};
use drigs::state::{Command, Event, Outcome, SubmitJob, Target};

use super::cluster::Origin;
use super::world::{Happening, MINUTE, SECOND, World};

#[derive(Default)]
pub struct People {
    wishes: Vec<Wish>,
    submitted: u64,
}

struct Wish {
    command: Command,
    answered: bool,
    tries: u32,
    most_tries: u32,
}

impl World {
    pub fn work(&mut self) {
        if self.calm {
            return;
        }
        let pause = self.dice.between(500, 20 * SECOND);
        self.after(pause, Happening::Work);
        let command = self.some_wish();
        self.wish(command);
    }

    fn wish(&mut self, command: Command) {
        let most_tries = match command {
            Command::SubmitJob(_) => u32::MAX,
            _ if self.calm => u32::MAX,
            _ => 3,
        };
        self.people.wishes.push(Wish { command, answered: false, tries: 0, most_tries });
        self.ask(self.people.wishes.len() - 1);
    }

    /// Asks some controller, and again later as long as no answer came.
    pub fn ask(&mut self, number: usize) {
        let wish = &mut self.people.wishes[number];
        if wish.answered || wish.tries >= wish.most_tries {
            return;
        }
        wish.tries += 1;
        let anyone = self.dice.below(self.controllers.len() as u64) as usize;
        let controller = match self.dice.percent(80) {
            true => self.log.leader.unwrap_or(anyone),
            false => anyone,
        };
        let delay = self.delay();
        self.after(delay, Happening::Knock(number, controller));
        let patience = self.dice.between(SECOND, 10 * SECOND);
        self.after(patience, Happening::Ask(number));
    }

    pub fn knock(&mut self, number: usize, controller: usize) {
        let it = &self.controllers[controller];
        if it.up && it.lead.as_ref().is_some_and(|lead| lead.ready) {
            let command = self.people.wishes[number].command.clone();
            self.propose(controller, vec![command], Origin::Wish(number));
        }
    }

    pub fn answer(&mut self, number: usize, outcome: Outcome) {
        let wish = &mut self.people.wishes[number];
        wish.answered = true;
        let Ok(events) = outcome else { return };
        match &wish.command {
            Command::SubmitJob(submission) => {
                if let Some(Event::JobSubmitted(job)) = events.first() {
                    self.oracle.acknowledge_submission(&submission.spec.name, *job);
                }
            }
            Command::CancelTasks { target, .. } => self.oracle.acknowledge_cancel(*target),
            _ => {}
        }
    }

    pub fn people_are_done(&self) -> bool {
        let waits = |wish: &Wish| !wish.answered && wish.tries < wish.most_tries;
        !self.people.wishes.iter().any(waits)
    }

    fn some_wish(&mut self) -> Command {
        let newest = self.oracle.truth.counters.jobs_submitted;
        if newest == 0 || self.dice.percent(50) {
            return self.submission();
        }
        let job = JobId(self.dice.between(newest.saturating_sub(15).max(1), newest));
        let workers: Vec<_> = self.oracle.truth.workers.keys().copied().collect();
        let by = "somebody".into();
        if workers.is_empty() {
            return Command::HoldJob { job, by };
        }
        let worker = self.dice.pick(&workers);
        match self.dice.below(20) {
            0..3 => Command::CancelTasks { target: self.target(job), by },
            3..7 => Command::RequeueTasks { target: self.target(job) },
            7 => Command::HoldJob { job, by },
            8..10 => Command::ReleaseJob { job },
            10..12 => Command::SetPriority { job, priority: self.dice.below(5) as u32 },
            12..14 => Command::DrainWorker { worker, reason: String::from("maintenance") },
            14..17 => Command::ResumeWorker { worker },
            17..19 => self.forget(),
            _ => self.queue(),
        }
    }

    fn target(&mut self, job: JobId) -> Target {
        match self.dice.one_in(3) {
            true => Target::Task(TaskId { job, index: self.dice.below(8) as u32 }),
            false => Target::Job(job),
        }
    }

    /// Mostly of a worker that nobody hears of.
    fn forget(&mut self) -> Command {
        let silent = |(_, worker): &(_, &drigs::model::Worker)| !worker.is_connected();
        let silent: Vec<_> =
            self.oracle.truth.workers.iter().filter(silent).map(|(id, _)| *id).collect();
        match silent.is_empty() {
            true => self.queue(),
            false => Command::ForgetWorker { worker: self.dice.pick(&silent) },
        }
    }

    fn queue(&mut self) -> Command {
        let name = QueueName::from(self.dice.pick(&["default", "night"]));
        let queue = Queue { priority: self.dice.below(3) as u32, ..Queue::default() };
        Command::PutQueue { name, queue }
    }

    fn submission(&mut self) -> Command {
        self.people.submitted += 1;
        let name = format!("submission-{}", self.people.submitted);
        let key = name.as_str().into();
        let spec = self.spec(name);
        Command::SubmitJob(Box::new(SubmitJob { spec, user: "ada".into(), key }))
    }

    fn spec(&mut self, name: String) -> JobSpec {
        let mut env = BTreeMap::new();
        let usual =
            self.dice.pick(&[100, SECOND, 20 * SECOND, 20 * SECOND, 2 * MINUTE, 10 * MINUTE]);
        let fails = self.dice.pick(&[0, 0, 10, 60]);
        let array = self.array();
        let usual = if array.is_some() { usual.min(10 * SECOND) } else { usual };
        env.insert(String::from("USUAL_MS"), usual.to_string());
        env.insert(String::from("FAILS_PERCENT"), fails.to_string());
        let gpus = self.gpus();
        let request = Request {
            cpus: MilliCpus(self.dice.pick(&[500, 1000, 1000, 2000])),
            memory: Bytes::from_gib(self.dice.below(5)),
            gpus,
        };
        let layout = match array.is_none() && self.dice.one_in(5) {
            true => Layout::Nodes(self.dice.between(2, 3).min(self.machines.len() as u64) as u32),
            false => Layout::Single,
        };
        let now = self.oracle.truth.counters.now;
        JobSpec {
            name,
            priority: self.dice.below(4) as u32,
            request,
            layout,
            env,
            time_limit: self.dice.one_in(6).then_some(Millis(usual / 2 + 1)),
            retry: self.retry(),
            stop: Stop { grace: Millis(self.dice.pick(&[0, 1000, 30_000])), ..Stop::default() },
            array,
            dependencies: self.dependencies(),
            begin: self.dice.one_in(12).then(|| Timestamp(now.0 + 20 * SECOND)),
            lost_after: self.lost_after_wish(),
            held: self.dice.one_in(20),
            ..JobSpec::default()
        }
    }

    fn array(&mut self) -> Option<Array> {
        if !self.dice.one_in(3) {
            return None;
        }
        let last = self.dice.pick(&[1, 3, 7, 30, 120]);
        let big = self.dice.one_in(25);
        let indices = IndexSet::from_range(0, if big { 999_999 } else { last });
        if big {
            self.met("big array");
        }
        Some(Array { indices, max_running: self.dice.one_in(3).then_some(3) })
    }

    fn gpus(&mut self) -> GpuRequest {
        let most = self.machines.iter().map(|it| it.gpus.len() as u64).max().unwrap_or(0);
        if most == 0 || self.dice.percent(60) {
            return GpuRequest::default();
        }
        let sharing = self.dice.one_in(2);
        let count = if sharing { 1 } else { self.dice.between(1, most.min(2)) as u32 };
        let memory = sharing.then(|| Bytes::from_gib(self.dice.between(3, 9)));
        GpuRequest { count, memory, sharing, ..GpuRequest::default() }
    }

    fn retry(&mut self) -> Retry {
        let causes = [
            RetryCause::Failure,
            RetryCause::ExitCode(75),
            RetryCause::Signal,
            RetryCause::Timeout,
            RetryCause::StartFailed,
        ];
        let mut on = BTreeSet::new();
        if self.dice.one_in(2) {
            on.insert(self.dice.pick(&causes));
        }
        Retry { max: self.dice.below(4) as u32, on }
    }

    fn dependencies(&mut self) -> Vec<Dependency> {
        let newest = self.oracle.truth.counters.jobs_submitted;
        if newest == 0 || !self.dice.one_in(5) {
            return Vec::new();
        }
        let kinds = [DependencyKind::AfterOk, DependencyKind::AfterAny, DependencyKind::AfterNotOk];
        let job = JobId(self.dice.between(newest.saturating_sub(6).max(1), newest));
        vec![Dependency { kind: self.dice.pick(&kinds), job }]
    }

    fn lost_after_wish(&mut self) -> Option<LostAfter> {
        match self.dice.below(10) {
            0..3 => None,
            3..5 => Some(LostAfter::After(Millis(0))),
            5..8 => Some(LostAfter::After(Millis(self.dice.between(1, 90) * SECOND))),
            8 => Some(LostAfter::After(Millis(30 * MINUTE))),
            _ => Some(LostAfter::Keep),
        }
    }

    /// The faults are over: whoever holds something up lets it go.
    pub fn tidy_up(&mut self) {
        let truth = &self.oracle.truth;
        let mut commands: Vec<Command> =
            truth.workers.keys().map(|worker| Command::ResumeWorker { worker: *worker }).collect();
        for (job, row) in truth.jobs.iter().filter(|(_, row)| !row.is_finished()) {
            commands.push(match row.spec.tasks() > 1000 || !self.is_feasible(&row.spec) {
                true => Command::CancelTasks { target: Target::Job(*job), by: "ada".into() },
                false => Command::ReleaseJob { job: *job },
            });
        }
        commands.into_iter().for_each(|command| self.wish(command));
    }

    /// Whether enough of the machines that are left could run it.
    fn is_feasible(&self, spec: &JobSpec) -> bool {
        let Request { cpus, memory, gpus } = &spec.request;
        let able = self.machines.iter().filter(|machine| {
            !machine.lost
                && machine.cpus >= *cpus
                && machine.memory >= *memory
                && machine.gpus.len() >= gpus.count as usize
        });
        able.count() >= spec.nodes() as usize
    }

    /// Machines that never come back must be forgotten by somebody, or what runs there with `keep` waits for ever.
    pub fn forget_lost_machines(&mut self) {
        let lost = self.machines.iter().filter(|machine| machine.lost);
        let uuids: Vec<_> = lost.map(|machine| machine.uuid()).collect();
        let rows = self.oracle.truth.workers.iter();
        let gone: Vec<_> =
            rows.filter(|(_, row)| uuids.contains(&row.uuid)).map(|(id, _)| *id).collect();
        for worker in gone {
            self.wish(Command::ForgetWorker { worker });
        }
    }
}
