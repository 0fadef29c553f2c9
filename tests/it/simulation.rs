//! A whole cluster in one thread: the real state machine, scheduler and both reconcilers, in a made-up world of networks,
//! clocks, disks and processes. One seed, one run.
//!
//! `DRIGS_SEEDS=1..1000` runs more of them; `DRIGS_SEED=17` runs one and tells its story (with `--nocapture`).

mod agent;
mod clock;
mod cluster;
mod dice;
mod hub;
mod machine;
mod oracle;
mod people;
mod planted;
mod store;
mod trouble;
mod words;
mod world;

use std::{collections::BTreeMap, env, ops::Range, panic::catch_unwind};

use self::planted::Plant;
use self::world::{HOUR, MINUTE, SECOND, World};

/// What any set of runs must have met to be worth something.
const MUST_BE_MET: &[&str] = &[
    "agent crash",
    "another try",
    "answer lost",
    "big array",
    "cancel",
    "committed untold",
    "decline",
    "deposed orders",
    "doubled orders",
    "doubled report",
    "end without an agent",
    "ended for loss of contact",
    "failed start",
    "forget",
    "gang",
    "gang start",
    "give-up",
    "leader change",
    "lost to a reboot",
    "machine lost",
    "owed end",
    "partition",
    "prefetch",
    "prefetched start",
    "promotion",
    "proposal lost",
    "proposal of a deposed leader",
    "proposals lost with their leader",
    "re-adoption",
    "reboot",
    "rejection",
    "repeated submission",
    "report to a leader without a quorum",
    "requeue",
    "retire",
    "return",
    "silence",
    "snapshot reload",
    "stale orders refused",
    "start refused as too late",
    "stop",
    "stopped as not ours",
    "time limit",
];

const SEEDS: Range<u64> = 1..101;
/// Within how many seeds each planted fault must be found.
const SEEDS_FOR_A_PLANT: Range<u64> = 1..201;

#[test]
fn nothing_is_lost_or_run_twice_and_all_comes_to_an_end() {
    if let Some(seed) = number("DRIGS_SEED") {
        let met = run(seed, None, true);
        return println!("{met:#?}");
    }
    let seeds = seeds().unwrap_or(SEEDS);
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds.clone() {
        match outcome(seed, None) {
            Ok(once) => {
                once.into_iter().for_each(|(what, many)| *met.entry(what).or_default() += many);
            }
            Err(why) => failed.push(format!("{}\n    {why}", story(seed))),
        }
    }
    assert!(failed.is_empty(), "{} of {seeds:?} fail\n{}", failed.len(), failed.join("\n"));
    println!("{met:#?}");
    let missing: Vec<_> = MUST_BE_MET.iter().filter(|what| !met.contains_key(**what)).collect();
    assert!(seeds.end - seeds.start < 100 || missing.is_empty(), "never met: {missing:?}");
}

#[test]
fn planted_faults_are_found() {
    let mut missed = Vec::new();
    let more = seeds();
    let rare = if more.is_some() { Plant::RARE } else { &[] };
    for plant in Plant::ALL.iter().chain(rare) {
        let fails = |seed| outcome(seed, Some(*plant)).err().map(|why| (seed, why));
        match more.clone().unwrap_or(SEEDS_FOR_A_PLANT).find_map(fails) {
            Some((seed, why)) => println!("{plant:?}: found at seed {seed}: {why}"),
            None => missed.push(plant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// What the run has met, or why it failed.
fn outcome(seed: u64, plant: Option<Plant>) -> Result<BTreeMap<&'static str, u64>, String> {
    catch_unwind(|| run(seed, plant, false)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    })
}

/// One run from the first boot to the end of the last job. Says what it met.
fn run(seed: u64, plant: Option<Plant>, trace: bool) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(seed, plant, trace);
    let troubled = world.dice.between(3, 15) * MINUTE;
    world.run_until(troubled);
    world.calm_down();
    let latest = world.now + 4 * HOUR;
    let mut next_tidying = world.now + 10 * MINUTE;
    while !world.is_all_over() && world.now < latest {
        world.run_until(world.now + 10 * SECOND);
        if world.now > next_tidying {
            next_tidying += 10 * MINUTE;
            world.tidy_up();
        }
        if world.now > troubled + 75 * MINUTE {
            world.forget_lost_machines();
        }
    }
    // Time for the last reports to be acknowledged.
    world.run_until(world.now + 10 * MINUTE);
    world.check_the_end();
    world.met
}

fn story(seed: u64) -> String {
    format!("DRIGS_SEED={seed} cargo test --test it simulation::nothing -- --nocapture")
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().expect("a number of a seed"))
}

fn seeds() -> Option<Range<u64>> {
    let text = env::var("DRIGS_SEEDS").ok()?;
    let (first, end) = text.split_once("..").expect("seeds as in 1..1000");
    Some(first.parse().expect("a number")..end.parse().expect("a number"))
}
