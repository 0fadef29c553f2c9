//! A small language for tests of the state and of what is decided from it: a line is a command, what it caused is printed,
//! and after every command everything that must always hold is checked.
//!
//! ```text
//! worker a cpus 8 mem 16G gpus 2xA100:80G label rack=1
//! job sweep array 0-9%2 gpus 1 prio 5 after ok 1
//! place 1.0 on a gpu 0
//! start 1.0.1
//! +10s
//! end 1.0.1 exit 3
//! show
//! ```

mod parse;
mod show;

use std::collections::BTreeMap;

use expect_test::Expect;

use self::parse::Line;
use self::show::show_state;
pub(crate) use self::show::{clock, show_slice};
use crate::{
    model::{MilliCpus, Timestamp, WorkerId},
    state::{Change, Changes, Command, Outcome, State, Table},
};

/// Noon, to begin with.
pub(crate) const NOON: Timestamp = Timestamp(12 * 3_600_000);

/// Runs the script and compares what it printed.
#[track_caller]
pub(crate) fn check(script: &str, expected: Expect) {
    let mut world = World::default();
    let mut printed = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        printed += &world.run(line);
    }
    expected.assert_eq(&printed);
}

/// Two replicas and a store that live through the same commands.
#[derive(Debug)]
pub(crate) struct World {
    pub state: State,
    replica: State,
    stored: Stored,
    pub now: Timestamp,
}

impl Default for World {
    fn default() -> Self {
        let mut world = World {
            state: State::default(),
            replica: State::default(),
            stored: Stored::default(),
            now: NOON,
        };
        world.advance(NOON);
        world
    }
}

impl World {
    /// Runs one line and says what came of it; nothing when a plain piece of scenery was accepted.
    pub fn run(&mut self, line: &str) -> String {
        match parse::line(line, self) {
            Line::Command { command, scenery } => match self.apply(command) {
                Ok(_) if scenery => String::new(),
                Ok(events) if events.is_empty() => format!("{line}: nothing\n"),
                Ok(events) => events.iter().map(|it| show::event(it, &self.state) + "\n").collect(),
                Err(rejection) => format!("{line}: NO, {rejection}\n"),
            },
            Line::Time(at) => {
                self.advance(at);
                String::new()
            }
            Line::Show => show_state(&self.state),
        }
    }

    pub fn advance(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
        self.state.advance(at);
        self.replica.advance(at);
        self.check();
    }

    /// Applies the command everywhere, and checks that all agree and nothing is amiss.
    pub fn apply(&mut self, command: Command) -> Outcome {
        let before = self.state.clone();
        let may_overload =
            matches!(command, Command::RegisterWorker(_) | Command::UpdateGpus { .. });
        let outcome = self.state.apply(command.clone());
        assert_eq!(outcome, self.replica.apply(command.clone()), "replicas answer differently");
        if outcome.is_err() {
            assert!(self.state == before, "rejected, and yet it changed something: {command:?}");
        }
        if !may_overload {
            check_nothing_is_overloaded(&before, &self.state);
        }
        self.check();
        outcome
    }

    fn check(&mut self) {
        self.state.check_invariants();
        assert!(self.state == self.replica, "the replicas differ");
        self.replica.take_changes();
        let changes = self.state.take_changes();
        self.stored.write(&self.state, changes);
        let mut loaded = self.stored.load();
        loaded.counters = self.state.counters.clone();
        loaded.rebuild();
        loaded.check_invariants();
        assert!(loaded == self.state, "a change was not written down");
    }
}

/// What only new facts from a worker may do: leave it with less than what its attempts hold.
fn check_nothing_is_overloaded(before: &State, after: &State) {
    for id in after.workers.keys() {
        let (was, is) = (overload(before, *id), overload(after, *id));
        assert!(is.0 <= was.0 && is.1 <= was.1, "{id} was given more than it has");
    }
}

/// CPUs, and bytes of memory and VRAM, that are held beyond what the worker has.
fn overload(state: &State, id: WorkerId) -> (MilliCpus, u64) {
    let Some(worker) = state.workers.get(&id) else { return Default::default() };
    let (cpus, memory) = state.held(id);
    let mut bytes = (memory - worker.memory).0;
    for gpu in &worker.gpus {
        let holders = state.holders_of(id, &gpu.uuid);
        let shared: u64 = holders.iter().filter_map(|(_, share)| *share).map(|it| it.0).sum();
        bytes += shared.saturating_sub(gpu.memory.0);
    }
    (cpus - worker.cpus, bytes)
}

/// The tables as a store would have them that knows nothing but the changes.
#[derive(Debug, Default)]
struct Stored {
    rows: Option<State>,
    history: usize,
}

impl Stored {
    fn write(&mut self, state: &State, changes: Changes) {
        let rows = self.rows.get_or_insert_with(State::empty);
        self.history += write(&mut rows.jobs, &state.jobs, changes.jobs);
        self.history += write(&mut rows.tasks, &state.tasks, changes.tasks);
        write(&mut rows.workers, &state.workers, changes.workers);
        write(&mut rows.queues, &state.queues, changes.queues);
        write(&mut rows.keys, &state.keys, changes.keys);
    }

    fn load(&self) -> State {
        self.rows.clone().unwrap_or_else(State::empty)
    }
}

fn write<K: Ord + Clone, V: Clone>(
    stored: &mut Table<K, V>,
    table: &Table<K, V>,
    changes: BTreeMap<K, Change<V>>,
) -> usize {
    let mut archived = 0;
    for (key, change) in changes {
        match change {
            Change::Put => {
                stored.load(key.clone(), table.get(&key).expect("put, so it is there").clone());
            }
            Change::Archive(_) | Change::Delete => {
                archived += usize::from(matches!(change, Change::Archive(_)));
                stored.delete(&key);
            }
        }
    }
    archived
}
