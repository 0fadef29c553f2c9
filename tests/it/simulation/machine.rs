//! Machines: what is physically there. Processes run under shims that outlive the agent; results, the order stamp and the
//! time of the last contact are on disk.

use std::collections::{BTreeMap, BTreeSet};

use drigs::model::{
    AttemptId, AttemptReport, Backend, Bytes, EndReason, Ending, Epoch, Gpu, GpuHealth, LostAfter,
    MilliCpus, Millis, OrderStamp, Phase, Slice, Timestamp,
};
use drigs::state::RegisterWorker;
use uuid::Uuid;

use super::agent::Agent;
use super::clock::Clock;
use super::dice::Dice;
use super::planted::Plant;
use super::world::{Cut, Happening, MINUTE, SECOND, Time, World};

pub struct Machine {
    pub number: usize,
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: Vec<Gpu>,
    pub cut: Cut,
    pub up: bool,
    /// Never comes back.
    pub lost: bool,
    pub epoch: Epoch,
    pub ephemeral: bool,
    pub disk: Disk,
    pub processes: BTreeMap<AttemptId, Process>,
    pub agent: Option<Agent>,
    pub agents: u64,
    /// Their shims live, but a careless agent does not know of them.
    pub overlooked: BTreeSet<AttemptId>,
    clock: Clock,
    /// For how long a careless clock stood still.
    pub slept: u64,
    next_look: Option<Time>,
}

#[derive(Default)]
pub struct Disk {
    pub stamp: OrderStamp,
    pub results: BTreeMap<AttemptId, AttemptReport>,
    /// By this machine's clock, in its present life: when the latest answered report was sent.
    pub contact: Option<u64>,
}

/// One attempt's processes under their shim.
#[derive(Clone, Debug)]
pub struct Process {
    pub epoch: Epoch,
    pub slice: Slice,
    /// Kept from the latest order.
    pub lost_after: LostAfter,
    /// By the machine's clock.
    pub started: u64,
    pub time_limit: Option<Millis>,
    pub grace: Millis,
    /// What it would do by itself, and when.
    pub plan: Ending,
    pub ends_at: Time,
    pub stopping: Option<Stopping>,
}

#[derive(Clone, Copy, Debug)]
pub struct Stopping {
    pub reason: EndReason,
    pub dies_at: Time,
}

/// How a part of an attempt came to its end on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    ByItself,
    Stopped,
    NeverStarted,
    PowerCut,
}

impl Machine {
    pub fn new(number: usize, dice: &mut Dice) -> Self {
        let gpus = dice.pick(&[0, 0, 1, 2, 4]);
        let gpu = |index: u32| Gpu {
            uuid: format!("GPU-{number}-{index}").as_str().into(),
            index,
            model: String::from("Simulated"),
            memory: Bytes::from_gib(16),
            compute_capability: None,
            health: GpuHealth::Healthy,
        };
        Machine {
            number,
            cpus: MilliCpus::from_cores(dice.between(2, 8)),
            memory: Bytes::from_gib(dice.between(8, 32)),
            gpus: (0..gpus).map(gpu).collect(),
            cut: Cut::Nothing,
            up: false,
            lost: false,
            epoch: Epoch(0),
            ephemeral: dice.one_in(2),
            disk: Disk::default(),
            processes: BTreeMap::new(),
            agent: None,
            agents: 0,
            overlooked: BTreeSet::new(),
            clock: Clock::new(dice.between(9_900, 10_100), 0),
            slept: 0,
            next_look: None,
        }
    }

    pub fn uuid(&self) -> Uuid {
        Uuid::from_u128(0xD1_0000 + self.number as u128)
    }

    pub fn time(&self, now: Time) -> u64 {
        self.clock.read(now) - self.slept
    }

    /// The true time at which this machine's clock shows `reading`.
    pub fn when(&self, reading: u64) -> Time {
        self.clock.when(reading + self.slept)
    }

    pub fn registration(&self) -> RegisterWorker {
        RegisterWorker {
            uuid: self.uuid(),
            name: format!("machine-{}", self.number).as_str().into(),
            epoch: self.epoch,
            address: format!("10.0.0.{}", self.number),
            version: String::from("simulated"),
            cpus: self.cpus,
            memory: self.memory,
            gpus: self.gpus.clone(),
            labels: BTreeMap::new(),
            backends: BTreeSet::from([Backend::Native]),
            ephemeral: self.ephemeral,
        }
    }

    /// Until when, by this machine's clock, an attempt may run or begin.
    pub fn runs_until(&self, lost_after: LostAfter) -> Option<u64> {
        match lost_after {
            LostAfter::Keep => None,
            LostAfter::After(length) => Some(self.disk.contact.unwrap_or(0) + length.0),
        }
    }
}

impl World {
    pub fn boot(&mut self, number: usize) {
        let keeps_epoch = self.has(Plant::EpochKeptOverReboot);
        let it = &mut self.machines[number];
        if it.up || it.lost {
            return;
        }
        it.up = true;
        it.disk.contact = None;
        if it.epoch == Epoch(0) || !keeps_epoch {
            it.epoch = Epoch(it.epoch.0 + 1);
        }
        self.note(|| format!("machine {number} boots"));
        self.start_agent(number);
    }

    /// Power is cut: whatever ran is gone, what is on disk stays.
    pub fn crash_machine(&mut self, number: usize) {
        self.note(|| format!("machine {number} goes down"));
        let it = &mut self.machines[number];
        it.up = false;
        it.agent = None;
        it.overlooked.clear();
        for attempt in std::mem::take(&mut it.processes).into_keys() {
            self.oracle.ended(attempt, number, None, How::PowerCut);
        }
    }

    pub fn cut_machine(&mut self, number: usize, cut: Cut) {
        self.note(|| format!("machine {number} is cut: {cut:?}"));
        self.met("partition");
        self.machines[number].cut = cut;
        let length = match self.dice.below(4) {
            0 => self.dice.between(1, 5 * MINUTE),
            1 => self.dice.between(1, 2 * self.lease.length.0),
            _ => self.dice.between(1, 60 * SECOND),
        };
        self.after(length, Happening::Heal(number));
    }

    pub fn heal(&mut self, number: usize) {
        // One that followed a deposed leader may be out of everybody's reach for a while before it finds the next.
        if let Cut::AllBut(_) = self.machines[number].cut
            && !self.calm
            && self.dice.one_in(2)
        {
            return self.cut_machine(number, Cut::All);
        }
        self.machines[number].cut = Cut::Nothing;
    }

    /// Starts the processes of an attempt, or finds that it cannot.
    pub fn launch(&mut self, number: usize, attempt: AttemptId, mut process: Process) {
        if self.dice.one_in(60) {
            self.met("failed start");
            return self.record(number, attempt, process.epoch, EndReason::StartFailed);
        }
        let it = &self.machines[number];
        process.started = it.time(self.now);
        self.note(|| format!("machine {number} starts {attempt}"));
        self.witness_start(number, attempt, &process);
        self.machines[number].processes.insert(attempt, process);
        self.look_at_processes(number);
    }

    /// Writes down the end of an attempt that never had processes here.
    pub fn record(&mut self, number: usize, attempt: AttemptId, epoch: Epoch, reason: EndReason) {
        let ending = Ending::new(reason, Timestamp(0));
        self.oracle.ended(attempt, number, Some(ending.clone()), How::NeverStarted);
        let report = AttemptReport { attempt, epoch, phase: Phase::Ended(ending) };
        self.machines[number].disk.results.insert(attempt, report);
    }

    /// Asks the processes of an attempt to end: a signal, then the kill after the grace.
    pub fn stop(&mut self, number: usize, attempt: AttemptId, reason: EndReason, most: Millis) {
        let now = self.now;
        let patience = self.dice.percent(40);
        let quick = self.dice.between(1, 500);
        let Some(process) = self.machines[number].processes.get_mut(&attempt) else { return };
        let grace = process.grace.min(most).0;
        let dies_at = now + if patience { grace } else { quick.min(grace) };
        let stopping = process.stopping.get_or_insert(Stopping { reason, dies_at });
        stopping.dies_at = stopping.dies_at.min(dies_at);
        self.look_at_processes(number);
    }

    /// Does what is due, and looks again when the next thing is.
    pub fn tend_processes(&mut self, number: usize) {
        self.machines[number].next_look = None;
        if !self.machines[number].up {
            return;
        }
        for attempt in self.machines[number].processes.keys().copied().collect::<Vec<_>>() {
            self.tend(number, attempt);
        }
        self.look_at_processes(number);
    }

    fn tend(&mut self, number: usize, attempt: AttemptId) {
        let now = self.now;
        let process = self.machines[number].processes[&attempt].clone();
        if process.ends_at <= now {
            return self.process_ends(number, attempt, process.plan, How::ByItself);
        }
        if let Some(stopping) = process.stopping
            && stopping.dies_at <= now
        {
            let mut ending = Ending::new(stopping.reason, Timestamp(0));
            ending.signal = Some(9);
            return self.process_ends(number, attempt, ending, How::Stopped);
        }
        let lost_grace = LostAfter::GRACE;
        let dies_soon = |it: Stopping| it.dies_at <= now + lost_grace.0;
        let lost = self.lost_at(number, &process).is_some_and(|at| at <= now);
        if lost && !process.stopping.is_some_and(dies_soon) {
            self.met("ended for loss of contact");
            self.stop(number, attempt, EndReason::NodeLost, lost_grace);
        } else if self.times_out_at(number, &process).is_some_and(|at| at <= now) {
            self.met("time limit");
            self.stop(number, attempt, EndReason::Timeout, Millis(u64::MAX));
        }
    }

    fn lost_at(&self, number: usize, process: &Process) -> Option<Time> {
        let it = &self.machines[number];
        if it.agent.is_none() && self.has(Plant::ShimsNeedTheAgent) {
            return None;
        }
        let ends = it.runs_until(process.lost_after)?;
        let ends = match (self.has(Plant::LateStartCountsFromItsStart), process.lost_after) {
            (true, LostAfter::After(length)) => ends.max(process.started + length.0),
            _ => ends,
        };
        Some(it.when(ends))
    }

    fn times_out_at(&self, number: usize, process: &Process) -> Option<Time> {
        let limit = process.time_limit.filter(|_| process.stopping.is_none())?;
        Some(self.machines[number].when(process.started + limit.0))
    }

    fn process_ends(&mut self, number: usize, attempt: AttemptId, ending: Ending, how: How) {
        self.note(|| format!("machine {number}: {attempt} ends, {}", ending.reason));
        let it = &mut self.machines[number];
        let process = it.processes.remove(&attempt).expect("it was looked at");
        it.overlooked.remove(&attempt);
        let report =
            AttemptReport { attempt, epoch: process.epoch, phase: Phase::Ended(ending.clone()) };
        it.disk.results.insert(attempt, report);
        self.oracle.ended(attempt, number, Some(ending), how);
        if self.machines[number].agent.is_some() {
            self.act(number);
            self.report(number);
        } else {
            self.met("end without an agent");
        }
    }

    pub fn look_at_processes(&mut self, number: usize) {
        let dues = self.machines[number].processes.values().filter_map(|process| {
            let stop = process.stopping.map(|stopping| stopping.dies_at);
            // Once it is stopping, the loss of contact can only have shortened that.
            let lost = self.lost_at(number, process).filter(|at| *at > self.now || stop.is_none());
            let limit = self.times_out_at(number, process);
            [Some(process.ends_at), stop, lost, limit].into_iter().flatten().min()
        });
        let Some(due) = dues.min().map(|due| due.max(self.now + 1)) else { return };
        if self.machines[number].next_look.is_none_or(|next| due < next) {
            self.machines[number].next_look = Some(due);
            self.after(due - self.now, Happening::ProcessDue(number));
        }
    }
}
