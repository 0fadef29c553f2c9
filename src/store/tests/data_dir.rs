use crate::store::{DataDir, Error};

#[test]
fn a_directory_keeps_to_its_controller_and_cluster() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temporary.path(), 1).unwrap();
    assert_eq!(dir.cluster_id(), None);
    let locked = DataDir::open(temporary.path(), 1).unwrap_err().to_string();
    assert!(locked.contains(&format!("in use by process {}", std::process::id())), "{locked}");
    dir.join("red").unwrap();
    dir.join("red").unwrap();
    assert!(matches!(dir.join("blue"), Err(Error::OtherCluster { .. })));
    std::fs::write(dir.log(), "").unwrap();
    std::fs::write(dir.state(), "").unwrap();
    dir.close(true).unwrap();

    let dir = DataDir::open(temporary.path(), 1).unwrap();
    assert_eq!(dir.cluster_id().as_deref(), Some("red"));
    assert!(dir.was_closed());
    drop(dir);
    let dir = DataDir::open(temporary.path(), 1).unwrap();
    assert!(!dir.was_closed(), "nobody closed it in order");
    drop(dir);
    let foreign = DataDir::open(temporary.path(), 2);
    assert!(matches!(foreign, Err(Error::OtherNode { found: 1, expected: 2, .. })));
}

#[test]
fn what_is_missing_is_named() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temporary.path(), 1).unwrap();
    dir.join("red").unwrap();
    drop(dir);
    let fault = DataDir::open(temporary.path(), 1).unwrap_err().to_string();
    assert!(fault.contains("log.db is damaged (it is gone)"), "{fault}");
    let identity = temporary.path().join("node.json");
    std::fs::write(&identity, "{ half").unwrap();
    let fault = DataDir::open(temporary.path(), 1).unwrap_err().to_string();
    assert!(fault.contains("node.json is damaged"), "{fault}");
    std::fs::remove_file(&identity).unwrap();
    std::fs::write(temporary.path().join("log.db"), "").unwrap();
    let fault = DataDir::open(temporary.path(), 1).unwrap_err().to_string();
    assert!(fault.contains("there is a log.db, but no node.json"), "{fault}");
    std::fs::write(&identity, r#"{"format": 9, "node_id": 1, "cluster_id": null}"#).unwrap();
    let fault = DataDir::open(temporary.path(), 1).unwrap_err().to_string();
    assert!(fault.contains("newer DRIGS"), "{fault}");
}
