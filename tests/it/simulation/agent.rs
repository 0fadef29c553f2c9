//! The worker's agent as it must behave around `worker::reconcile`: whole reports, obedience to the latest leader only, and
//! nothing forgotten before the orders have dropped it.

use std::collections::{BTreeMap, BTreeSet};

use drigs::model::{
    AttemptId, AttemptReport, EndReason, Ending, GpuHealth, Millis, Order, Orders, Phase,
    StopReason, Timestamp,
};
use drigs::worker::reconcile::{Action, Capacity, Local, StopCause, reconcile};

use super::machine::Process;
use super::planted::Plant;
use super::words::{Down, Up};
use super::world::{Happening, MINUTE, SECOND, Time, World};

pub struct Agent {
    pub incarnation: u64,
    pub session: Option<usize>,
    /// All that it ever opened.
    sessions: BTreeSet<usize>,
    welcomed: bool,
    /// When a controller last said anything, by the true time.
    heard: Time,
    hint: Option<usize>,
    reports: u64,
    /// When each report was sent, by the machine's clock.
    sent: BTreeMap<(usize, u64), u64>,
    /// The latest that counted. Before the first ones there is nothing to compare with: no orders are not empty orders.
    orders: Option<Vec<Order>>,
}

impl World {
    pub fn start_agent(&mut self, number: usize) {
        let forgets_stamp = self.has(Plant::StampForgottenAtAgentRestart);
        let loses_results = self.has(Plant::ResultLostWithTheAgent);
        let touches_contact = self.has(Plant::ContactForgottenByShims);
        let no_orders_are_empty = self.has(Plant::NoOrdersTakenForEmptyOnes);
        let adopts = !self.has(Plant::RunningAttemptsAreNotAdopted);
        let now = self.now;
        let flips = !self.calm && self.dice.one_in(8);
        let it = &mut self.machines[number];
        if !it.up || it.agent.is_some() {
            return;
        }
        it.agents += 1;
        it.ephemeral ^= flips && it.agents > 1;
        if forgets_stamp {
            it.disk.stamp = Default::default();
        }
        if loses_results {
            it.disk.results.retain(|_, report| report.epoch != it.epoch);
        }
        if touches_contact && it.disk.contact.is_some() {
            it.disk.contact = Some(it.time(now));
        }
        if !adopts {
            it.overlooked = it.processes.keys().copied().collect();
        }
        if !it.processes.is_empty() {
            *self.met.entry("re-adoption").or_default() += 1;
        }
        let incarnation = it.agents;
        it.agent = Some(Agent {
            incarnation,
            session: None,
            sessions: BTreeSet::new(),
            welcomed: false,
            heard: now,
            hint: None,
            reports: 0,
            sent: BTreeMap::new(),
            orders: no_orders_are_empty.then(Vec::new),
        });
        self.note(|| format!("machine {number}: the agent starts"));
        self.after(1, Happening::Dial(number, incarnation));
        self.after(2, Happening::ReportDue(number, incarnation));
    }

    pub fn crash_agent(&mut self, number: usize) {
        if self.machines[number].agent.take().is_some() {
            self.met("agent crash");
            self.note(|| format!("machine {number}: the agent crashes"));
            let away = match self.dice.below(4) {
                0 => self.dice.between(1, 4 * MINUTE),
                _ => self.dice.between(100, 20 * SECOND),
            };
            self.after(away, Happening::AgentStarts(number));
        }
    }

    fn agent(&mut self, number: usize) -> Option<&mut Agent> {
        self.machines[number].agent.as_mut()
    }

    pub fn dial(&mut self, number: usize, incarnation: u64) {
        let controllers = self.controllers.len() as u64;
        let anyone = self.dice.below(controllers) as usize;
        let Some(agent) = self.agent(number).filter(|agent| agent.incarnation == incarnation)
        else {
            return;
        };
        let controller = agent.hint.take().unwrap_or(anyone);
        let old = agent.session;
        if let Some(old) = old
            && self.dice.one_in(2)
        {
            let before = self.sessions[old].controller;
            self.controllers[before].sessions.remove(&old);
        }
        let session = self.open_session(number, controller);
        let now = self.now;
        let agent = self.agent(number).expect("seen above");
        agent.session = Some(session);
        agent.sessions.insert(session);
        agent.welcomed = false;
        agent.heard = now;
        let it = &self.machines[number];
        let owed = it.disk.results.values().filter(|it| it.epoch < self.machines[number].epoch);
        let owed = owed.cloned().collect();
        let registration = Box::new(it.registration());
        self.send_up(session, Up::Hello { registration, owed });
    }

    pub fn report_due(&mut self, number: usize, incarnation: u64) {
        let interval = self.lease.length.0 / 4;
        let patience = self.lease.length.0 / 2;
        let now = self.now;
        let Some(agent) = self.agent(number).filter(|agent| agent.incarnation == incarnation)
        else {
            return;
        };
        if agent.session.is_none() || agent.heard + patience < now {
            agent.session = None;
            self.dial(number, incarnation);
        } else {
            self.report(number);
        }
        let wobble = self.dice.below(interval / 4 + 1);
        self.after(interval + wobble, Happening::ReportDue(number, incarnation));
    }

    /// Says the whole set.
    pub fn report(&mut self, number: usize) {
        let now = self.now;
        let early = self.has(Plant::EndToldBeforeDeath);
        let it = &mut self.machines[number];
        let time = it.time(now);
        let Some(agent) = it.agent.as_mut().filter(|agent| agent.welcomed) else { return };
        let Some(session) = agent.session else { return };
        agent.reports += 1;
        let report = agent.reports;
        agent.sent.insert((session, report), time);
        if agent.sent.len() > 500 {
            agent.sent.pop_first();
        }
        let phase_of = |process: &Process| match process.stopping {
            Some(stopping) if early => {
                let mut ending = Ending::new(stopping.reason, Timestamp(0));
                ending.signal = Some(9);
                Phase::Ended(ending)
            }
            _ => Phase::Running,
        };
        let running = it.processes.iter().map(|(attempt, process)| AttemptReport {
            attempt: *attempt,
            epoch: process.epoch,
            phase: phase_of(process),
        });
        let ended = it.disk.results.values().filter(|report| report.epoch == it.epoch).cloned();
        let attempts = running.chain(ended).collect();
        let gpus = it.gpus.clone();
        if self.has(Plant::ResultForgottenOnceReported) {
            let it = &mut self.machines[number];
            it.disk.results.retain(|_, report| report.epoch < it.epoch);
        }
        let gpus = (!gpus.is_empty() && self.dice.one_in(10)).then_some(gpus);
        self.send_up(session, Up::Report { number: report, attempts, gpus });
    }

    pub fn hear_controller(&mut self, session: usize, word: Down) {
        let number = self.sessions[session].machine;
        let controller = self.sessions[session].controller;
        let now = self.now;
        let Some(agent) = self.agent(number) else { return };
        let is_present = agent.session == Some(session);
        if is_present {
            agent.heard = now;
        }
        match word {
            Down::Welcome if is_present => {
                agent.welcomed = true;
                let incarnation_epoch = self.machines[number].epoch;
                let disk = &mut self.machines[number].disk;
                disk.results.retain(|_, report| report.epoch == incarnation_epoch);
                self.report(number);
            }
            Down::Redirect { .. } | Down::Refused if is_present => {
                let hint = match word {
                    Down::Redirect { leader } => leader,
                    _ => Some(controller),
                };
                agent.session = None;
                agent.welcomed = false;
                agent.hint = hint;
                let incarnation = agent.incarnation;
                let pause = self.dice.between(10, 1000);
                self.after(pause, Happening::Dial(number, incarnation));
            }
            Down::Orders { answers, orders } => self.obey(number, session, answers, orders),
            Down::Welcome | Down::Redirect { .. } | Down::Refused => {}
        }
    }

    /// Orders of an earlier session count like others: the stamp says which are the latest, and the report that they
    /// answer how old they are.
    fn obey(&mut self, number: usize, session: usize, answers: u64, orders: Orders) {
        let now = self.now;
        let trusts_all = self.has(Plant::WorkerIgnoresStamps);
        let from_receipt = self.has(Plant::ContactCountedFromReceipt);
        let unanswered = self.has(Plant::ContactRenewedWithoutAnswer);
        let no_turns = self.has(Plant::PrefetchedStartAtOnce);
        let it = &mut self.machines[number];
        let time = it.time(now);
        let Some(agent) = &mut it.agent else { return };
        // A connection does not outlive its agent.
        if !agent.sessions.contains(&session) {
            return;
        }
        if orders.stamp < it.disk.stamp && !trusts_all {
            *self.met.entry("stale orders refused").or_default() += 1;
            return;
        }
        let sent = match (from_receipt, unanswered) {
            (true, _) => Some(time),
            (_, true) => agent.sent.values().max().copied(),
            _ => agent.sent.get(&(session, answers)).copied(),
        };
        it.disk.contact = it.disk.contact.max(sent);
        it.disk.stamp = orders.stamp;
        let mut orders = orders.orders;
        if no_turns {
            orders.iter_mut().for_each(|order| order.prefetched = false);
        }
        for order in &orders {
            if let Some(process) = it.processes.get_mut(&order.attempt) {
                process.lost_after = order.lost_after;
            }
        }
        agent.orders = Some(orders);
        if self.act(number) {
            self.report(number);
        }
        self.look_at_processes(number);
    }

    /// Makes what is into what should be, by the latest orders. Says whether anything changed.
    pub fn act(&mut self, number: usize) -> bool {
        let restarts = self.has(Plant::FinishedAttemptsAreRestarted);
        let it = &self.machines[number];
        let orders = it.agent.as_ref().and_then(|agent| agent.orders.clone());
        let Some(orders) = orders else { return false };
        let mut local: BTreeMap<AttemptId, Local> = BTreeMap::new();
        for report in it.disk.results.values().filter(|it| it.epoch == self.machines[number].epoch)
        {
            local.insert(report.attempt, Local::Ended);
        }
        if restarts {
            local.clear();
        }
        for (attempt, process) in it.processes.iter() {
            if !it.overlooked.contains(attempt) {
                local.insert(*attempt, live(process));
            }
        }
        let capacity = Capacity { cpus: it.cpus, memory: it.memory };
        let actions = reconcile(&orders, &local, capacity);
        let mut changed = false;
        for action in actions {
            changed |= self.take(number, &orders, action);
        }
        changed
    }

    fn take(&mut self, number: usize, orders: &[Order], action: Action) -> bool {
        let order_of = |attempt| orders.iter().find(|order| order.attempt == attempt);
        match action {
            Action::Start(attempt) => {
                let order = order_of(attempt).expect("only what is ordered starts");
                self.start(number, order)
            }
            Action::Stop(attempt, StopCause::Ordered(reason)) => {
                self.met("stop");
                self.stop(number, attempt, end_reason(reason), Millis(u64::MAX));
                true
            }
            Action::Stop(attempt, StopCause::NotOurs) => {
                self.met("stopped as not ours");
                self.witness_unwanted(number, attempt);
                self.stop(number, attempt, EndReason::NodeLost, Millis(u64::MAX));
                true
            }
            Action::Account(attempt) => unreachable!("{attempt}: nothing is recovered here"),
            Action::Decline(attempt, reason) => {
                self.met("decline");
                let epoch = self.machines[number].epoch;
                self.record(number, attempt, epoch, end_reason(reason));
                true
            }
            Action::Forget(attempt) => {
                self.machines[number].disk.results.remove(&attempt);
                false
            }
        }
    }

    /// Not when it would have to end at once: orders may have been long under way.
    fn start(&mut self, number: usize, order: &Order) -> bool {
        let it = &self.machines[number];
        let late = it.runs_until(order.lost_after).is_some_and(|end| end <= it.time(self.now));
        if (late && !self.has(Plant::LateStartCountsFromItsStart)) || order.slice.epoch != it.epoch
        {
            self.met("start refused as too late");
            return false;
        }
        if order.prefetched {
            self.met("prefetched start");
        }
        if order.nodes > 1 {
            self.met("gang start");
        }
        let (plan, length) = self.plan_of(order);
        let process = Process {
            epoch: self.machines[number].epoch,
            slice: order.slice.clone(),
            lost_after: order.lost_after,
            started: 0,
            time_limit: order.spec.time_limit,
            grace: order.spec.stop.grace,
            plan,
            ends_at: self.now + length,
            stopping: None,
        };
        self.launch(number, order.attempt, process);
        true
    }

    /// What the processes will do by themselves: the job's environment says what it is like.
    fn plan_of(&mut self, order: &Order) -> (Ending, Time) {
        let say = |key: &str| order.spec.env.get(key).and_then(|value| value.parse::<u64>().ok());
        let usual = say("USUAL_MS").unwrap_or(1000);
        let length = self.dice.between(1, usual);
        let fails = self.dice.percent(say("FAILS_PERCENT").unwrap_or(0));
        let mut ending = Ending::new(EndReason::Success, Timestamp(0));
        ending.exit_code = Some(0);
        if fails && self.dice.one_in(3) {
            ending = Ending::new(EndReason::Signal, Timestamp(0));
            ending.signal = Some(11);
        } else if fails {
            ending = Ending::new(EndReason::Exit, Timestamp(0));
            ending.exit_code = Some(self.dice.pick(&[1, 2, 75]));
        }
        (ending, length)
    }

    /// A GPU falls sick or gets well; the next reports say so.
    pub fn turn_gpu(&mut self, number: usize) {
        let sick = !self.calm && self.dice.one_in(2);
        if let Some(gpu) = self.machines[number].gpus.first_mut() {
            gpu.health = match sick {
                true => GpuHealth::Quarantined { reason: String::from("Xid 79") },
                false => GpuHealth::Healthy,
            };
        }
    }
}

fn live(process: &Process) -> Local {
    Local::Live {
        cpus: process.slice.cpus,
        memory: process.slice.memory,
        stopping: process.stopping.is_some(),
    }
}

fn end_reason(reason: StopReason) -> EndReason {
    match reason {
        StopReason::User => EndReason::User,
        StopReason::Preempted | StopReason::Requeue => EndReason::Preempted,
        StopReason::GangFailed => EndReason::GangFailed,
    }
}
