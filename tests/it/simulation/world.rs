//! The made-up world: one thread, one line of happenings in virtual time.

use std::collections::BTreeMap;

use drigs::controller::lease::Lease;
use drigs::model::Millis;

use super::cluster::{Controller, Log};
use super::dice::Dice;
use super::machine::Machine;
use super::oracle::Oracle;
use super::people::People;
use super::planted::Plant;
use super::words::{Down, Up};

/// Milliseconds of true time since the world began.
pub type Time = u64;

pub const SECOND: Time = 1000;
pub const MINUTE: Time = 60 * SECOND;
pub const HOUR: Time = 60 * MINUTE;

pub struct World {
    pub now: Time,
    line: BTreeMap<(Time, u64), Happening>,
    happened: u64,
    pub dice: Dice,
    pub plant: Option<Plant>,
    pub trace: bool,
    /// The faults are over.
    pub calm: bool,
    pub lease: Lease,
    pub log: Log,
    pub controllers: Vec<Controller>,
    pub machines: Vec<Machine>,
    /// Sessions that were ever opened, and who dialled them.
    pub sessions: Vec<Dialled>,
    pub people: People,
    pub oracle: Oracle,
    /// What this run has met, and how often.
    pub met: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug)]
pub struct Dialled {
    pub machine: usize,
    pub controller: usize,
    /// The latest arrival in each direction: words of one session do not overtake each other.
    up_at: Time,
    down_at: Time,
}

#[derive(Debug)]
pub enum Happening {
    // Replication.
    Commit(u64),
    CatchUp(usize),
    Elect,
    /// A deposed leader hears that it is one.
    Learn(usize, u64),
    ControllerBack(usize),
    /// The leader of that term looks what to do next; the flag says that it also comes again by itself.
    Decide(usize, u64, bool),

    // The network.
    ToController(usize, Up),
    ToWorker(usize, Down),

    // Machines.
    Boot(usize),
    AgentStarts(usize),
    Dial(usize, u64),
    ReportDue(usize, u64),
    ProcessDue(usize),

    // People and bad luck.
    Ask(usize),
    Knock(usize, usize),
    Work,
    Trouble,
    Heal(usize),
}

impl World {
    pub fn new(seed: u64, plant: Option<Plant>, trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let lease = Lease { length: Millis(dice.pick(&[4, 10, 20]) * SECOND) };
        let controllers = dice.pick(&[3, 3, 5]);
        let machines = dice.between(3, 6) as usize;
        let mut world = World {
            now: 0,
            line: BTreeMap::new(),
            happened: 0,
            plant,
            trace,
            calm: false,
            lease,
            log: Log::default(),
            controllers: (0..controllers).map(|_| Controller::new(&mut dice)).collect(),
            machines: (0..machines).map(|number| Machine::new(number, &mut dice)).collect(),
            sessions: Vec::new(),
            people: People::default(),
            oracle: Oracle::default(),
            met: BTreeMap::new(),
            dice,
        };
        world.after(1, Happening::Elect);
        for machine in 0..machines {
            let delay = world.dice.between(1, 3 * SECOND);
            world.after(delay, Happening::Boot(machine));
        }
        world.after(SECOND, Happening::Work);
        world.after(10 * SECOND, Happening::Trouble);
        world
    }

    pub fn after(&mut self, delay: Time, happening: Happening) {
        self.happened += 1;
        self.line.insert((self.now + delay, self.happened), happening);
    }

    pub fn met(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    pub fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    pub fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>10.3}  {}", self.now as f64 / 1000.0, what());
        }
    }

    /// Lets everything happen that happens until `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some(entry) = self.line.first_entry().filter(|entry| entry.key().0 <= end) {
            self.now = entry.key().0;
            let happening = entry.remove();
            self.happen(happening);
        }
        self.now = end;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Commit(proposal) => self.commit(proposal),
            Happening::CatchUp(controller) => self.catch_up(controller),
            Happening::Elect => self.elect(),
            Happening::Learn(controller, term) => self.learn(controller, term),
            Happening::ControllerBack(controller) => self.controller_back(controller),
            Happening::Decide(controller, term, again) => self.decide(controller, term, again),
            Happening::ToController(session, word) => self.hear_worker(session, word),
            Happening::ToWorker(session, word) => self.hear_controller(session, word),
            Happening::Boot(machine) => self.boot(machine),
            Happening::AgentStarts(machine) => self.start_agent(machine),
            Happening::Dial(machine, incarnation) => self.dial(machine, incarnation),
            Happening::ReportDue(machine, incarnation) => self.report_due(machine, incarnation),
            Happening::ProcessDue(machine) => self.tend_processes(machine),
            Happening::Ask(wish) => self.ask(wish),
            Happening::Knock(wish, controller) => self.knock(wish, controller),
            Happening::Work => self.work(),
            Happening::Trouble => self.trouble(),
            Happening::Heal(machine) => self.heal(machine),
        }
    }

    pub fn open_session(&mut self, machine: usize, controller: usize) -> usize {
        self.sessions.push(Dialled { machine, controller, up_at: 0, down_at: 0 });
        self.sessions.len() - 1
    }

    pub fn send_up(&mut self, session: usize, word: Up) {
        let Dialled { machine, controller, .. } = self.sessions[session];
        let reaches = self.machines[machine].cut.up(controller) && self.controllers[controller].up;
        if !reaches || self.is_lost() {
            return;
        }
        let at = (self.now + self.delay()).max(self.sessions[session].up_at);
        self.sessions[session].up_at = at;
        if self.is_doubled() {
            // The copy comes from a connection that was thought dead, so it may overtake and be overtaken.
            let late = self.dice.between(1, 20 * SECOND);
            self.met("doubled report");
            self.after(at - self.now + late, Happening::ToController(session, word.clone()));
        }
        self.after(at - self.now, Happening::ToController(session, word));
    }

    pub fn send_down(&mut self, session: usize, word: Down) {
        let Dialled { machine, controller, .. } = self.sessions[session];
        if !self.machines[machine].cut.down(controller) || self.is_lost() {
            return;
        }
        let at = (self.now + self.delay()).max(self.sessions[session].down_at);
        self.sessions[session].down_at = at;
        if self.is_doubled() {
            let late = self.dice.between(1, 20 * SECOND);
            self.met("doubled orders");
            self.after(at - self.now + late, Happening::ToWorker(session, word.clone()));
        }
        self.after(at - self.now, Happening::ToWorker(session, word));
    }

    pub fn delay(&mut self) -> Time {
        match self.calm {
            true => self.dice.between(1, 5),
            false if self.dice.one_in(300) => self.dice.between(SECOND, 30 * SECOND),
            false => self.dice.delay(4, 300),
        }
    }

    fn is_lost(&mut self) -> bool {
        !self.calm && self.dice.one_in(100)
    }

    fn is_doubled(&mut self) -> bool {
        !self.calm && self.dice.one_in(100)
    }
}

/// Which controllers a machine cannot talk with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Nothing,
    All,
    /// What it says is lost; what it is told arrives.
    Up,
    Down,
    /// It reaches this controller only.
    AllBut(usize),
}

impl Cut {
    pub fn up(self, controller: usize) -> bool {
        match self {
            Cut::Nothing | Cut::Down => true,
            Cut::All | Cut::Up => false,
            Cut::AllBut(only) => only == controller,
        }
    }

    pub fn down(self, controller: usize) -> bool {
        match self {
            Cut::Nothing | Cut::Up => true,
            Cut::All | Cut::Down => false,
            Cut::AllBut(only) => only == controller,
        }
    }
}
