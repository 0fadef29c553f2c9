use std::{
    path::Path,
    sync::{Arc, Mutex, mpsc},
};

use crate::store::{Done, Error, LogContents, LogDb, Position, Record, Vote};

fn open(path: &Path) -> Result<(LogDb, LogContents), Error> {
    LogDb::open(path, 1 << 20, Arc::new(|_| ()))
}

/// Waits for one request.
fn durably(request: impl FnOnce(Done)) -> std::io::Result<()> {
    let (sender, answer) = mpsc::channel();
    request(Box::new(move |result| sender.send(result).unwrap()));
    answer.recv().unwrap()
}

fn records(indices: std::ops::Range<u64>, term: u64) -> Vec<Record> {
    let record = |index| Record { index, term, body: format!("entry {index} of {term}").into() };
    indices.map(record).collect()
}

#[test]
fn what_was_durable_is_found_again() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("log.db");
    let vote = Vote { term: 3, node: 2, committed: true };
    let (log, contents) = open(&path).unwrap();
    assert_eq!(contents.last, None);
    durably(|done| log.append(records(0..10, 1), done)).unwrap();
    durably(|done| log.truncate_after(Some(6), done)).unwrap();
    durably(|done| log.append(records(7..20, 2), done)).unwrap();
    durably(|done| log.purge(Position { term: 1, index: 4 }, done)).unwrap();
    durably(|done| log.save_vote(vote, done)).unwrap();
    log.hint_committed(Some(Position { term: 2, index: 18 }));
    log.close();

    let (log, contents) = open(&path).unwrap();
    assert_eq!(contents.head.vote, Some(vote));
    assert_eq!(contents.head.purged, Some(Position { term: 1, index: 4 }));
    assert_eq!(contents.head.committed, Some(Position { term: 2, index: 18 }));
    assert_eq!(contents.last, Some(Position { term: 2, index: 19 }));
    let mut expected = records(5..7, 1);
    expected.extend(records(7..20, 2));
    assert_eq!(contents.tail, expected);
    assert_eq!(log.read(0, 100, usize::MAX).unwrap(), expected);
    assert_eq!(log.read(6, 9, usize::MAX).unwrap(), expected[1..4]);
    assert_eq!(log.read(6, 9, 1).unwrap(), expected[1..2], "at least one, then no more");

    // Purging may reach beyond the end.
    durably(|done| log.purge(Position { term: 5, index: 50 }, done)).unwrap();
    log.close();
    let (_, contents) = open(&path).unwrap();
    assert_eq!(contents.last, Some(Position { term: 5, index: 50 }));
    assert!(contents.tail.is_empty());
}

#[test]
fn many_requests_are_answered_in_order() {
    let temporary = tempfile::tempdir().unwrap();
    let (log, _) = open(&temporary.path().join("log.db")).unwrap();
    let answered = Arc::new(Mutex::new(Vec::new()));
    for index in 0..2000 {
        let answered = answered.clone();
        log.append(
            records(index..index + 1, 1),
            Box::new(move |result| {
                result.unwrap();
                answered.lock().unwrap().push(index);
            }),
        );
    }
    log.close();
    assert_eq!(*answered.lock().unwrap(), (0..2000).collect::<Vec<u64>>());
    assert!(durably(|done| log.append(Vec::new(), done)).is_err(), "it is closed");
}

#[test]
fn a_changed_or_missing_entry_is_named() {
    let damage = [
        ("UPDATE entries SET body = 'other' WHERE idx = 7", "entry 7 does not match its checksum"),
        ("UPDATE entries SET term = 9 WHERE idx = 3", "entry 3 does not match its checksum"),
        ("DELETE FROM entries WHERE idx = 5", "entry 5 is missing"),
        ("DELETE FROM entries WHERE idx = 0", "entry 0 is missing"),
        ("UPDATE head SET vote_node = 3", "the vote does not match its checksum"),
        ("PRAGMA application_id = 5", "not one of DRIGS"),
        ("PRAGMA user_version = 99", "newer DRIGS"),
    ];
    for (statement, expected) in damage {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("log.db");
        let (log, _) = open(&path).unwrap();
        durably(|done| log.append(records(0..10, 1), done)).unwrap();
        durably(|done| log.save_vote(Vote { term: 1, node: 1, committed: false }, done)).unwrap();
        log.close();
        rusqlite::Connection::open(&path).unwrap().execute_batch(statement).unwrap();
        let fault = open(&path).unwrap_err().to_string();
        assert!(fault.contains(expected), "{statement}: {fault}");
        assert!(fault.contains("log.db"), "{fault}");
    }
}

#[test]
fn after_a_failure_nothing_is_written_any_more() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("log.db");
    let (sender, failures) = mpsc::channel();
    let sender = Mutex::new(sender);
    let failed = move |error: &Error| sender.lock().unwrap().send(error.to_string()).unwrap();
    let (log, _) = LogDb::open(&path, 1 << 20, Arc::new(failed)).unwrap();
    durably(|done| log.append(records(0..5, 1), done)).unwrap();
    // SQLite refuses: such as a full disk does.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'full'); END",
        )
        .unwrap();
    assert!(durably(|done| log.append(records(5..6, 1), done)).is_err());
    assert!(failures.recv().unwrap().contains("cannot write"));
    assert!(durably(|done| log.append(records(6..7, 1), done)).is_err());
    log.close();
    let (_, contents) = open(&path).unwrap();
    assert_eq!(contents.last, Some(Position { term: 1, index: 4 }));
}
