//! How many attempts of `true` one worker starts and finishes per second, records on the disk included.
//!
//! `cargo bench --bench launch [-- ATTEMPTS [AT_A_TIME]]`

use std::{collections::BTreeMap, path::Path, time::Instant};

use drigs::{
    model::{AttemptId, JobId, Millis, TaskId},
    worker::{
        attempt_dir::{Ended, Held, Launch},
        supervisor::{Event, Supervisor},
    },
};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let attempts = numbers.next().unwrap_or(200);
    let at_a_time = numbers.next().unwrap_or(8);
    let root = tempfile::TempDir::new().expect("a temporary directory can be made");
    let program = Path::new(env!("CARGO_BIN_EXE_drigs-worker"));
    let opened = Supervisor::open_with(root.path(), program).await;
    let (supervisor, mut events, _) = opened.expect("the directory is free");

    let began = Instant::now();
    let (mut asked, mut ended, mut running) = (0, 0, 0);
    while ended < attempts {
        let batch = (at_a_time - running).min(attempts - asked);
        let launches = (asked + 1..=asked + batch).map(launch).collect();
        supervisor.start(launches).await.expect("the supervisor runs");
        (asked, running) = (asked + batch, running + batch);
        loop {
            let event = events.next().await.expect("the supervisor runs");
            let Event::Ended { attempt, exit } = event else { continue };
            assert_eq!(exit.ended, Ended::Exit(0));
            supervisor.forget(vec![attempt]).await.expect("it is there");
            (ended, running) = (ended + 1, running - 1);
            break;
        }
    }
    let took = began.elapsed();
    let rate = attempts as f64 / took.as_secs_f64();
    println!("{attempts} attempts, {at_a_time} at a time: {took:.2?}, {rate:.0} per second");
}

fn launch(job: u64) -> Launch {
    Launch {
        attempt: AttemptId { task: TaskId { job: JobId(job), index: 0 }, number: 1 },
        nonce: format!("bench-{job}"),
        argv: vec!["true".to_owned()],
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        working_dir: "/".to_owned(),
        preferred_dir: None,
        umask: 0o022,
        time_limit: Some(Millis::from_secs(60)),
        lost_after: Some(Millis::from_hours(1)),
        stop_signal: 15,
        grace: Millis::from_secs(30),
        lost_grace: Millis::from_secs(5),
        held: Held::default(),
        log_limit: 64 << 20,
    }
}
