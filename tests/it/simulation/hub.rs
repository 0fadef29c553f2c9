//! The controllers' end of workers' sessions.

use drigs::controller::reconcile;
use drigs::model::{AttemptReport, OrderStamp, Orders, Phase};
use drigs::state::{Command, Event, Outcome};

use super::cluster::{Origin, Session};
use super::planted::Plant;
use super::words::{Down, Up};
use super::world::World;

impl World {
    pub fn hear_worker(&mut self, session: usize, word: Up) {
        let number = self.sessions[session].controller;
        if !self.controllers[number].up {
            return;
        }
        let leads = self.controllers[number].lead.as_ref().is_some_and(|lead| lead.ready);
        if !leads {
            let leader = self.log.leader.filter(|leader| *leader != number);
            return self.send_down(session, Down::Redirect { leader });
        }
        match word {
            Up::Hello { registration, owed } => {
                let mut commands = self.owed(number, &registration.uuid, owed, registration.epoch);
                let register = Command::RegisterWorker(*registration);
                let late = self.has(Plant::OwedEndsComeAfterTheRegistration);
                commands.insert(if late { 0 } else { commands.len() }, register);
                self.propose(number, commands, Origin::Hello(session));
            }
            Up::Report { number: report, attempts, gpus } => {
                self.take_report(number, session, report, attempts, gpus);
            }
        }
    }

    fn owed(
        &mut self,
        number: usize,
        uuid: &uuid::Uuid,
        mut owed: Vec<AttemptReport>,
        epoch: drigs::model::Epoch,
    ) -> Vec<Command> {
        if self.has(Plant::OwedEndsAreDropped) {
            owed.clear();
        }
        if self.has(Plant::ReportsUnderThePresentEpoch) {
            owed.iter_mut().for_each(|report| report.epoch = epoch);
        }
        let state = &self.controllers[number].state;
        let known = state.workers.iter().find(|(_, worker)| worker.uuid == *uuid);
        let commands =
            known.map_or_else(Vec::new, |(id, _)| reconcile::commands_for(state, *id, &owed));
        if !commands.is_empty() {
            self.met("owed end");
        }
        commands
    }

    /// The registration is applied. The last outcome of its batch is the registration's own.
    pub fn admitted(&mut self, number: usize, session: usize, outcome: Outcome) {
        let Ok(events) = outcome else {
            return self.send_down(session, Down::Refused);
        };
        let registered = events.iter().find_map(|event| match event {
            Event::WorkerRegistered(worker) => Some(*worker),
            _ => None,
        });
        let Some(worker) = registered else { return };
        let it = &mut self.controllers[number];
        let Some(term) = it.lead.as_ref().map(|lead| lead.term) else { return };
        if !it.state.workers.contains(&worker) {
            return;
        }
        let entry = Session { worker, term, answers: 0, version: None };
        it.sessions.insert(session, entry);
        self.send_down(session, Down::Welcome);
    }

    fn take_report(
        &mut self,
        number: usize,
        session: usize,
        report: u64,
        mut attempts: Vec<AttemptReport>,
        gpus: Option<Vec<drigs::model::Gpu>>,
    ) {
        let Some(entry) = self.controllers[number].sessions.get(&session) else { return };
        let worker = entry.worker;
        let Some(row) = self.controllers[number].state.workers.get(&worker) else {
            // It was forgotten: only a new registration brings it back.
            self.controllers[number].sessions.remove(&session);
            return self.send_down(session, Down::Redirect { leader: Some(number) });
        };
        let epoch = row.epoch;
        if !self.may_act(number) {
            self.met("report to a leader without a quorum");
            return;
        }
        self.renew(number, worker);
        let answers =
            &mut self.controllers[number].sessions.get_mut(&session).expect("seen").answers;
        *answers = report.max(*answers);
        self.corrupt_reports(number, epoch, &mut attempts);
        let state = &self.controllers[number].state;
        let mut commands = reconcile::commands_for(state, worker, &attempts);
        if let Some(gpus) = gpus {
            commands.push(Command::UpdateGpus { worker, epoch, gpus });
        }
        if self.has(Plant::ResultAckedBeforeCommit) {
            let ended = attempts.iter().filter(|it| matches!(it.phase, Phase::Ended(_)));
            let ended: Vec<_> = ended.map(|report| report.attempt).collect();
            self.ends_under_way(number).into_iter().for_each(|set| set.extend(ended.clone()));
            self.send_orders(number, session);
        }
        if commands.is_empty() {
            self.send_orders(number, session);
        } else {
            self.propose(number, commands, Origin::Report(session));
        }
    }

    fn corrupt_reports(
        &mut self,
        number: usize,
        epoch: drigs::model::Epoch,
        attempts: &mut [AttemptReport],
    ) {
        if self.has(Plant::ReportsUnderThePresentEpoch) {
            attempts.iter_mut().for_each(|report| report.epoch = epoch);
        }
        if self.has(Plant::EndsOfOtherAttemptsTaken) {
            let state = &self.controllers[number].state;
            for report in attempts {
                let task = state.tasks.get(&report.attempt.task);
                if let Some(present) = task.and_then(|task| task.attempt()) {
                    report.attempt.number = present.number;
                }
            }
        }
    }

    pub fn send_orders(&mut self, number: usize, session: usize) {
        if !self.may_act(number) {
            return;
        }
        let lease = self.lease;
        let silent_on_stops = self.has(Plant::StopsAreNotPassedOn);
        let it = &mut self.controllers[number];
        let Some(lead) = &it.lead else { return };
        let Some(entry) = it.sessions.get_mut(&session).filter(|it| it.term == lead.term) else {
            return;
        };
        let Some(mut orders) = reconcile::orders(&it.state, entry.worker, lease) else { return };
        entry.version = Some(it.state.orders_version(entry.worker));
        orders.retain(|order| !lead_has_end(lead, order.attempt));
        if silent_on_stops {
            orders.iter_mut().for_each(|order| order.stop = None);
        }
        let stamp = OrderStamp { term: lead.term, index: it.applied as u64 };
        let orders = Orders { stamp, orders, lease: lease.worker_part() };
        let answers = entry.answers;
        if lead.acknowledged_until.is_some() {
            self.met("deposed orders");
        }
        self.send_down(session, Down::Orders { answers, orders });
    }

    /// Whatever was applied: sessions whose orders it changed hear of it at once.
    pub fn orders_changed(&mut self, number: usize) {
        let it = &self.controllers[number];
        let changed =
            |entry: &Session| Some(it.state.orders_version(entry.worker)) != entry.version;
        let changed = it.sessions.iter().filter(|(_, entry)| changed(entry)).map(|(id, _)| *id);
        for session in changed.collect::<Vec<_>>() {
            self.send_orders(number, session);
        }
    }
}

fn lead_has_end(lead: &super::cluster::Lead, attempt: drigs::model::AttemptId) -> bool {
    lead.ends_under_way.contains(&attempt)
}
