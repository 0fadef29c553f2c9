//! Bad luck: what breaks, and when it is mended.

use super::cluster::Controller;
use super::planted::Plant;
use super::world::{Cut, HOUR, Happening, MINUTE, SECOND, World};

impl World {
    pub fn trouble(&mut self) {
        if self.calm {
            return;
        }
        let pause = self.dice.between(SECOND, 40 * SECOND);
        self.after(pause, Happening::Trouble);
        let machine = self.dice.below(self.machines.len() as u64) as usize;
        match self.dice.below(16) {
            0..4 => self.trouble_the_leader(),
            4 => self.trouble_a_follower(),
            5..8 => {
                let cut = self.dice.pick(&[Cut::All, Cut::All, Cut::Up, Cut::Down]);
                self.cut_machine(machine, cut);
            }
            8..11 => self.crash_agent(machine),
            11..13 => self.restart_machine(machine),
            13 => self.lose_machine(machine),
            14 => self.turn_gpu(machine),
            _ => self.wrong_clocks(machine),
        }
    }

    /// A majority always stays.
    fn may_lose_one(&self) -> bool {
        let able = |it: &&Controller| it.up && !it.isolated;
        let alive = self.controllers.iter().filter(able).count();
        alive - 1 > self.controllers.len() / 2
    }

    fn trouble_the_leader(&mut self) {
        let settled = self.log.leader.is_some_and(|it| self.controllers[it].leads(self.log.term));
        if settled && self.may_lose_one() {
            self.depose();
        }
    }

    fn trouble_a_follower(&mut self) {
        let number = self.dice.below(self.controllers.len() as u64) as usize;
        let it = &self.controllers[number];
        if it.up && it.lead.is_none() && !it.isolated && self.may_lose_one() {
            self.crash_controller(number);
            let away = self.dice.between(SECOND, 60 * SECOND);
            self.after(away, Happening::ControllerBack(number));
        }
    }

    fn restart_machine(&mut self, number: usize) {
        if self.machines[number].up {
            self.met("reboot");
            self.crash_machine(number);
            let away = match self.dice.one_in(4) {
                true => self.dice.between(MINUTE, 5 * MINUTE),
                false => self.dice.between(SECOND, 40 * SECOND),
            };
            self.after(away, Happening::Boot(number));
        }
    }

    fn lose_machine(&mut self, number: usize) {
        let lost = self.machines.iter().filter(|machine| machine.lost).count();
        if lost == 0 && number >= 3 {
            self.met("machine lost");
            self.crash_machine(number);
            self.machines[number].lost = true;
        }
    }

    /// Only what is planted minds: a wall clock that is set, a worker that sleeps.
    fn wrong_clocks(&mut self, number: usize) {
        if self.has(Plant::LeaseByTheWallClock) {
            let controller = self.dice.below(self.controllers.len() as u64) as usize;
            self.controllers[controller].wall_steps += HOUR;
        }
        if self.has(Plant::WorkerClockStandsStill) {
            let slept = self.dice.between(SECOND, 3 * MINUTE);
            let it = &mut self.machines[number];
            it.slept += slept.min(it.time(self.now));
        }
    }

    /// Everything is mended that can be.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.note(|| String::from("the faults are over"));
        for number in 0..self.controllers.len() {
            let term = self.controllers[number].lead.as_ref().map(|lead| lead.term);
            match term {
                Some(term) if term != self.log.term => self.learn(number, term),
                _ => self.after(0, Happening::ControllerBack(number)),
            }
        }
        for number in 0..self.machines.len() {
            self.machines[number].cut = Cut::Nothing;
            self.turn_gpu(number);
            self.after(1, Happening::Boot(number));
            self.after(2, Happening::AgentStarts(number));
        }
        self.tidy_up();
    }
}
