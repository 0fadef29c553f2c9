//! Plans and explanations for clusters described in text: the language of `state::testing`, and beside it
//! `plan [N]` (what would be placed), `follow` (place it), `explain 1`, `reasons`, `infeasible 1`, `mute a` (out of touch
//! with this leader).

mod explaining;
mod liveness;
mod placing;
mod starving;
mod streams;

use std::fmt::Write as _;

use expect_test::Expect;

use crate::{
    model::{Millis, Placement, WorkerId},
    scheduler::{Plan, Reasons, View, explain, infeasible, plan},
    state::{
        Command,
        testing::{World, clock, show_slice},
    },
};

#[track_caller]
fn check(script: &str, expected: Expect) {
    let mut stage = Stage::default();
    let printed: String = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| stage.run(line))
        .collect();
    expected.assert_eq(&printed);
}

#[derive(Default)]
struct Stage {
    world: World,
    muted: Vec<WorkerId>,
}

impl Stage {
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["plan"] => self.show(&self.plan(1000)),
            ["plan", budget] => self.show(&self.plan(budget.parse().unwrap())),
            ["follow"] => self.follow(),
            ["explain", target] => self.explain(target),
            ["reasons"] => self.reasons(),
            ["infeasible", job] => {
                let job = self.world.state.jobs.get(&job.parse().unwrap()).unwrap();
                let why = infeasible(&self.world.state, &job.spec);
                why.unwrap_or_else(|| String::from("feasible")) + "\n"
            }
            ["mute", name] => {
                self.muted.push(self.world.state.worker_named(name).unwrap().0);
                String::new()
            }
            _ => self.world.run(line),
        }
    }

    fn view(&self) -> View {
        let workers = self.world.state.workers.keys().copied();
        View {
            now: self.world.now,
            in_touch: workers.filter(|id| !self.muted.contains(id)).collect(),
            leading_since: crate::state::testing::NOON,
            lease: Millis::from_secs(20),
        }
    }

    fn plan(&self, budget: usize) -> Plan {
        plan(&self.world.state, &self.view(), budget)
    }

    /// The plan is carried out; whatever of it were refused would be a bug.
    fn follow(&mut self) -> String {
        let plan = self.plan(1000);
        let text = self.show(&plan);
        for attempt in plan.recalls {
            self.world.apply(Command::RecallAttempt { attempt }).expect("it waits");
        }
        for placement in plan.placements {
            self.world.apply(Command::PlaceTask(placement)).expect("it was planned for this state");
        }
        text
    }

    fn show(&self, plan: &Plan) -> String {
        let mut text = String::new();
        for recall in &plan.recalls {
            let _ = writeln!(text, "recall {recall}");
        }
        for placement in &plan.placements {
            let _ = writeln!(text, "{}", self.show_placement(placement));
        }
        for (reason, count) in &plan.waiting {
            let _ = writeln!(text, "{count} wait: {reason}");
        }
        if let Some(reserved) = &plan.reserved {
            let name = |id: &WorkerId| self.world.state.workers.get(id).unwrap().name.to_string();
            let names: Vec<String> = reserved.workers.iter().map(name).collect();
            let at = reserved.at.map_or(String::from("some time"), clock);
            let _ = writeln!(text, "{} kept for {} until {at}", names.join(" "), reserved.job);
        }
        if let Some(at) = plan.next_change {
            let _ = writeln!(text, "again at {}", clock(at));
        }
        match text.is_empty() {
            true => String::from("nothing to do\n"),
            false => text,
        }
    }

    fn show_placement(&self, placement: &Placement) -> String {
        let slices: Vec<String> =
            placement.slices.iter().map(|slice| show_slice(&self.world.state, slice)).collect();
        let prefetch = if placement.prefetch { " in its turn" } else { "" };
        format!("{} -> {}{prefetch}", placement.task, slices.join(" + "))
    }

    fn explain(&self, target: &str) -> String {
        let (job, index) = match target.split_once('.') {
            Some((job, index)) => (job, Some(index.parse().unwrap())),
            None => (target, None),
        };
        match explain(&self.world.state, &self.view(), job.parse().unwrap(), index) {
            Err(rejection) => format!("NO, {rejection}\n"),
            Ok(told) => {
                let mut text = format!("{}: {}", told.target, told.state);
                if let Some(reason) = told.reason {
                    let _ = write!(text, " {reason}");
                }
                if let Some(ended) = told.ended {
                    let _ = write!(text, " {ended}");
                }
                if let Some(ahead) = told.ahead.filter(|ahead| *ahead > 0) {
                    let _ = write!(text, ", {ahead} ahead");
                }
                if let Some(start) = told.earliest_start {
                    let _ = write!(text, ", not before {}", clock(start));
                }
                text.push('\n');
                for line in told.lines {
                    let _ = writeln!(text, "  {line}");
                }
                text
            }
        }
    }

    fn reasons(&self) -> String {
        let view = self.view();
        let reasons = Reasons::new(&self.world.state, &view);
        let mut text = String::new();
        for (id, job) in self.world.state.jobs.iter() {
            let reason = reasons.of(*id).map_or("-", |reason| reason.as_str());
            let _ = writeln!(text, "{id} {}: {reason}", job.spec.name);
        }
        text
    }
}
