//! Rows and back, snapshots, history.

use std::path::Path;

use proptest::prelude::*;

use super::commands;
use crate::model::{JobId, TaskState};
use crate::state::{Batch, State};
use crate::store::{
    Applied, DataDir, Error, History, JobQuery, Position, Progress, Rows, StateDb, TaskQuery,
};

/// A store, and the memory beside it.
struct Replica {
    dir: DataDir,
    db: StateDb,
    state: State,
    applied: Applied,
}

impl Replica {
    fn open(path: &Path) -> Self {
        let dir = DataDir::open(path, 1).unwrap();
        let (db, loaded) = StateDb::open(&dir).unwrap();
        Replica { dir, db, state: loaded.state, applied: loaded.applied }
    }

    /// Several batches as one transaction, as the replica does when it is behind.
    fn apply(&mut self, batches: &[Batch]) {
        let mut rows = Rows::default();
        for batch in batches {
            self.state.apply_batch(batch.clone());
            let changes = self.state.take_changes();
            rows.extend(Rows::of(&self.state, changes));
        }
        let index = self.applied.position.map_or(0, |position| position.index + 1);
        self.applied.position = Some(Position { term: 1, index });
        self.applied.membership = vec![1, 2, 3];
        self.db.write(&rows, &self.state.counters, &self.applied).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_is_loaded_is_what_was_in_memory(
        batches in commands::batches(40),
        together in 1usize..5,
        reopen_after in 1usize..6,
    ) {
        let temporary = tempfile::tempdir().unwrap();
        let mut replica = Replica::open(temporary.path());
        for (step, chunk) in batches.chunks(together).enumerate() {
            replica.apply(chunk);
            replica.state.check_invariants();
            if step % reopen_after == 0 {
                let Replica { dir, db, state, applied } = replica;
                drop((db, dir));
                replica = Replica::open(temporary.path());
                prop_assert!(replica.state == state, "loaded another state than was written");
                prop_assert_eq!(&replica.applied, &applied);
                replica.state.check_invariants();
            }
        }
    }

    #[test]
    fn a_snapshot_is_the_state_it_was_taken_of(batches in commands::batches(30)) {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut sender = Replica::open(from.path());
        let (first, second) = batches.split_at(batches.len() / 2);
        sender.apply(first);
        let snapshot = sender.db.snapshots().take().unwrap();
        let (then, applied) = (sender.state.clone(), sender.applied.clone());
        // What comes after does not show in it, although it is written out only now.
        sender.apply(second);

        let mut receiver = Replica::open(to.path());
        receiver.apply(&batches[..1]);
        let file = to.path().join("incoming-1.db");
        snapshot.write_to(&file).unwrap();
        let loaded = receiver.db.install(&file, None).unwrap();
        prop_assert!(loaded.state == then);
        prop_assert_eq!(&loaded.applied, &applied);
        let Replica { dir, mut db, .. } = receiver;
        db.write(&Rows::default(), &loaded.state.counters, &loaded.applied).unwrap();
        drop((db, dir));
        let receiver = Replica::open(to.path());
        prop_assert!(receiver.state == then);
    }
}

#[test]
fn a_foreign_or_damaged_snapshot_is_not_installed() {
    let temporary = tempfile::tempdir().unwrap();
    let mut replica = Replica::open(temporary.path());
    replica.applied.cluster_id = Some("theirs".to_owned());
    replica.apply(&[]);
    let file = temporary.path().join("incoming-1.db");
    replica.db.snapshots().take().unwrap().write_to(&file).unwrap();
    let foreign = replica.db.install(&file, Some("ours")).unwrap_err();
    assert!(matches!(foreign, Error::OtherCluster { .. }), "{foreign}");

    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3000].fill(0xA5);
    bytes[4096..5000].fill(0xA5);
    std::fs::write(&file, &bytes).unwrap();
    assert!(replica.db.install(&file, Some("theirs")).is_err());
    // What was there is still there.
    replica.apply(&[]);
}

#[tokio::test]
async fn history_answers_what_left_memory() {
    use crate::state::{Command, SubmitJob, Target};
    let temporary = tempfile::tempdir().unwrap();
    let mut replica = Replica::open(temporary.path());
    let progress = Progress::new(0);
    let history = History::new(&replica.db, progress.clone());
    let submit = |number: u64| {
        let mut spec =
            crate::model::JobSpec { name: format!("job {number}"), ..Default::default() };
        spec.array = Some(crate::model::Array {
            indices: crate::model::IndexSet::from_range(0, 1),
            max_running: None,
        });
        let user =
            crate::model::UserName::from(if number.is_multiple_of(2) { "ada" } else { "ben" });
        let key = crate::model::IdempotencyKey::new(number.to_string());
        Command::SubmitJob(Box::new(SubmitJob { spec, user, key }))
    };
    let by = crate::model::UserName::from("ada");
    let mut all: Vec<Command> = (1..=6).map(submit).collect();
    all.extend(
        (1..=5).map(|id| Command::CancelTasks { target: Target::Job(JobId(id)), by: by.clone() }),
    );
    all.push(Command::RetireJobs { jobs: (1..=4).map(JobId).collect() });
    let at = crate::model::Timestamp(1_700_000_000_000);
    replica.apply(&[Batch { at, commands: all }]);

    let ids = |found: Vec<(JobId, _)>| found.iter().map(|(id, _)| id.0).collect::<Vec<u64>>();
    let query = || JobQuery { limit: 10, ..JobQuery::default() };
    assert_eq!(ids(history.jobs(query()).await.unwrap()), [4, 3, 2, 1], "only what left memory");
    let of_ada = JobQuery { user: Some("ada".to_owned()), ..query() };
    assert_eq!(ids(history.jobs(of_ada).await.unwrap()), [4, 2]);
    let page = JobQuery { before: Some(JobId(4)), limit: 2, ..query() };
    assert_eq!(ids(history.jobs(page).await.unwrap()), [3, 2]);
    let named = JobQuery { name: Some("b 3".to_owned()), ..query() };
    assert_eq!(ids(history.jobs(named).await.unwrap()), [3]);
    let chosen = JobQuery { ids: vec![JobId(1), JobId(5)], ..query() };
    assert_eq!(ids(history.jobs(chosen).await.unwrap()), [1]);
    let failed = JobQuery { states: vec![TaskState::Failed], ..query() };
    assert_eq!(ids(history.jobs(failed).await.unwrap()), [0u64; 0]);
    let cancelled = JobQuery { states: vec![TaskState::Cancelled], ..query() };
    assert_eq!(ids(history.jobs(cancelled).await.unwrap()), [4, 3, 2, 1]);
    assert_eq!(history.job(JobId(2)).await.unwrap().unwrap().cancelled.len(), 2);
    assert!(history.job(JobId(99)).await.unwrap().is_none());
    let tasks = TaskQuery { job: JobId(2), index: None, states: vec![], after: None, limit: 9 };
    assert_eq!(history.tasks(tasks).await.unwrap().len(), 0, "they were never started");

    // Memory is ahead: the answer waits for the store.
    progress.in_memory(5);
    let asked = history.clone();
    let answer = tokio::spawn(async move { asked.job(JobId(1)).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!answer.is_finished());
    progress.stored(5);
    assert!(answer.await.unwrap().unwrap().is_some());
    drop(replica.dir);
}
