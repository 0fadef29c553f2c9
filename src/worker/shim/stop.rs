//! The ladder from a polite signal to "it cannot be killed". Pure: it is told the time and says what to do.

use crate::{model::Millis, worker::clock::BootTime};

/// What is left when the main process has ended by itself gets no more than this.
const LEFTOVERS_GRACE: Millis = Millis::from_secs(2);
const KILL_AGAIN_AFTER: Millis = Millis::from_secs(1);
const GIVE_UP_AFTER: Millis = Millis::from_secs(60);

#[derive(Debug)]
pub struct Ladder {
    /// The main process group was, or need not be, signalled.
    asked_main: bool,
    /// When the whole tree is asked; `None` once it was.
    ask_tree_at: Option<BootTime>,
    kill_at: BootTime,
    next_kill: BootTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// The stop signal for the main process and its group.
    AskMain,
    /// The stop signal for all that the job has started.
    AskTree,
    KillTree,
    GiveUp,
}

impl Ladder {
    pub fn new(now: BootTime, grace: Millis) -> Ladder {
        let kill_at = now + grace;
        Ladder {
            asked_main: false,
            ask_tree_at: Some(now + Millis(grace.0 / 2)),
            kill_at,
            next_kill: kill_at,
        }
    }

    /// For what outlives the main process.
    pub fn for_leftovers(now: BootTime) -> Ladder {
        let kill_at = now + LEFTOVERS_GRACE;
        Ladder { asked_main: true, ask_tree_at: Some(now), kill_at, next_kill: kill_at }
    }

    /// There is less time than thought. More time is never given.
    pub fn hurry(&mut self, now: BootTime, grace: Millis) {
        self.ask_tree_at = self.ask_tree_at.map(|at| at.min(now + Millis(grace.0 / 2)));
        self.kill_at = self.kill_at.min(now + grace);
        self.next_kill = self.next_kill.min(self.kill_at.max(now));
    }

    /// The main process ended on the way: the rest is asked at once.
    pub fn main_ended(&mut self, now: BootTime) {
        self.hurry(now, LEFTOVERS_GRACE);
        self.asked_main = true;
        self.ask_tree_at = Some(now);
    }

    /// The next thing to do, if it is time for one. A rung that was overslept is left out.
    pub fn climb(&mut self, now: BootTime) -> Option<Rung> {
        if now >= self.kill_at + GIVE_UP_AFTER {
            return Some(Rung::GiveUp);
        }
        if now >= self.next_kill {
            self.next_kill = now + KILL_AGAIN_AFTER;
            self.asked_main = true;
            self.ask_tree_at = None;
            return Some(Rung::KillTree);
        }
        if self.ask_tree_at.is_some_and(|at| now >= at) {
            self.asked_main = true;
            self.ask_tree_at = None;
            return Some(Rung::AskTree);
        }
        let ask_main = !self.asked_main;
        self.asked_main = true;
        ask_main.then_some(Rung::AskMain)
    }

    /// When to climb on.
    pub fn due(&self) -> BootTime {
        let next = self.next_kill.min(self.kill_at + GIVE_UP_AFTER);
        self.ask_tree_at.map_or(next, |at| at.min(next))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Climbs whenever it is due, for ten seconds unless it gives up; `events` are `TIME hurry GRACE` or `TIME main-ended`.
    fn check(grace: u64, events: &str, expected: Expect) {
        let mut ladder = Ladder::new(BootTime(0), Millis(grace));
        let mut events = events.lines().map(Event::parse).peekable();
        let mut log = String::new();
        let mut now = BootTime(0);
        while now.0 <= 10_000 {
            while let Some(event) = events.next_if(|event| event.at <= now) {
                match event.hurry {
                    Some(grace) => ladder.hurry(now, grace),
                    None => ladder.main_ended(now),
                }
            }
            while let Some(rung) = ladder.climb(now) {
                log.push_str(&format!("{} {rung:?}\n", now.0));
            }
            now = events.peek().map_or(ladder.due(), |event| event.at.min(ladder.due()));
        }
        expected.assert_eq(&log);
    }

    struct Event {
        at: BootTime,
        hurry: Option<Millis>,
    }

    impl Event {
        fn parse(line: &str) -> Event {
            let words: Vec<&str> = line.split(' ').collect();
            let hurry = (words[1] == "hurry").then(|| Millis(words[2].parse().unwrap()));
            Event { at: BootTime(words[0].parse().unwrap()), hurry }
        }
    }

    #[test]
    fn asks_the_main_process_then_the_tree_then_kills() {
        check(
            8000,
            "",
            expect![[r#"
            0 AskMain
            4000 AskTree
            8000 KillTree
            9000 KillTree
            10000 KillTree
        "#]],
        );
    }

    #[test]
    fn no_grace_kills_at_once() {
        check(
            0,
            "",
            expect![[r#"
            0 KillTree
            1000 KillTree
            2000 KillTree
            3000 KillTree
            4000 KillTree
            5000 KillTree
            6000 KillTree
            7000 KillTree
            8000 KillTree
            9000 KillTree
            10000 KillTree
        "#]],
        );
    }

    #[test]
    fn a_more_urgent_stop_shortens_the_way_and_a_lazier_one_does_not_lengthen_it() {
        check(
            60_000,
            "1000 hurry 4000\n2000 hurry 50000",
            expect![[r#"
            0 AskMain
            3000 AskTree
            5000 KillTree
            6000 KillTree
            7000 KillTree
            8000 KillTree
            9000 KillTree
            10000 KillTree
        "#]],
        );
    }

    #[test]
    fn what_outlives_the_main_process_is_asked_at_once_and_killed_soon() {
        check(
            60_000,
            "3000 main-ended",
            expect![[r#"
            0 AskMain
            3000 AskTree
            5000 KillTree
            6000 KillTree
            7000 KillTree
            8000 KillTree
            9000 KillTree
            10000 KillTree
        "#]],
        );
    }

    #[test]
    fn gives_up_a_minute_after_the_first_kill() {
        let mut ladder = Ladder::new(BootTime(0), Millis(1000));
        assert_eq!(ladder.climb(BootTime(60_999)), Some(Rung::KillTree));
        assert_eq!(ladder.climb(BootTime(61_000)), Some(Rung::GiveUp));
    }
}
