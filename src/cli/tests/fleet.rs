//! Machines, the cluster, and readers that go away.

use super::*;

#[test]
fn machines() {
    shows(
        "workers",
        expect![[r#"
        ID  NAME       STATUS      CPUS    MEMORY  GPUS  RUNNING  REASON
        w1  gpu-box-1  READY     1.5/64  64G/512G   1/8        1  -
        w2  gpu-box-2  DRAINING  1.5/64  64G/512G   1/8        1  new driver
    "#]],
    );
    shows(
        "workers -o wide",
        expect![[r#"
            ID  NAME       STATUS      CPUS    MEMORY  GPUS  RUNNING  REASON      ADDRESS    HEARD  VERSION  LABELS
            w1  gpu-box-1  READY     1.5/64  64G/512G   1/8        1  -           10.0.0.5  1s ago  0.2.0    zone=a
            w2  gpu-box-2  DRAINING  1.5/64  64G/512G   1/8        1  new driver  10.0.0.5  1s ago  0.2.0    zone=a
        "#]],
    );
    shows(
        "workers -o json",
        expect![[r#"
        [
          {
            "address": "10.0.0.5",
            "cpus": 64,
            "cpus_used": 1.5,
            "ephemeral": false,
            "gpus": 8,
            "gpus_used": 1,
            "heard_ms_ago": 1200,
            "labels": {
              "zone": "a"
            },
            "memory": 549755813888,
            "memory_used": 68719476736,
            "name": "gpu-box-1",
            "reason": null,
            "registered_at": "2026-01-30T08:13:20.000Z",
            "running": 1,
            "status": "READY",
            "version": "0.2.0",
            "worker_id": "w1"
          },
          {
            "address": "10.0.0.5",
            "cpus": 64,
            "cpus_used": 1.5,
            "ephemeral": false,
            "gpus": 8,
            "gpus_used": 1,
            "heard_ms_ago": 1200,
            "labels": {
              "zone": "a"
            },
            "memory": 549755813888,
            "memory_used": 68719476736,
            "name": "gpu-box-2",
            "reason": "new driver\non monday",
            "registered_at": "2026-01-30T08:13:20.000Z",
            "running": 1,
            "status": "DRAINING",
            "version": "0.2.0",
            "worker_id": "w2"
          }
        ]
    "#]],
    );
    asks(
        "worker drain gpu-box-1 --reason 'new driver'",
        expect![[r#"
        ! draining gpu-box-1
        ? worker gpu-box-1 Drain { reason: "new driver" }
    "#]],
    );
    asks(
        "worker resume w1",
        expect![[r#"
        ! takes jobs again: w1
        ? worker w1 Resume
    "#]],
    );
    asks(
        "worker forget w1 --yes",
        expect![[r#"
        ! forgotten: w1
        ? worker w1 Forget
    "#]],
    );
    shows(
        "gpus",
        expect![[r#"
        WORKER     GPU    MODEL                  FREE  MEMORY  STATE    HELD BY
        gpu-box-1  gpu-0  NVIDIA A100-SXM4-80GB    0B     80G  HEALTHY  14.3.1
        gpu-box-1  gpu-1  NVIDIA A100-SXM4-80GB   80G     80G  HEALTHY  -
    "#]],
    );
    shows(
        "gpus --free -o wide",
        expect![[r#"
            WORKER     GPU    MODEL                  FREE  MEMORY  STATE    HELD BY   CC  UUID        REASON
            gpu-box-1  gpu-1  NVIDIA A100-SXM4-80GB   80G     80G  HEALTHY  -        8.0  GPU-0000-1  -
        "#]],
    );
}

#[test]
fn the_cluster() {
    shows(
        "status",
        expect![[r#"
        Cluster      c-1, version 0.2.0
        Controllers  2 of 3 reachable, 2 leads
        Workers      2 of 3 ready
        CPUs         1.5 of 64 in use
        Memory       0B of 0B in use
        GPUs         1 of 8 in use
        Waiting      0 tasks, and 0 held or blocked
        Running      0 tasks, 0 starting, 0 recovering
        Over         0 completed, 0 failed, 0 cancelled
        Submitted    16 jobs so far
    "#]],
    );
    shows(
        "status -o json",
        expect![[r#"
        {
          "cluster_id": "c-1",
          "controllers": 3,
          "controllers_reachable": 2,
          "cpus": 64,
          "cpus_used": 1.5,
          "gpus": 8,
          "gpus_used": 1,
          "jobs_submitted": 16,
          "leader": 2,
          "memory": 0,
          "memory_used": 0,
          "tasks": {
            "cancelled": 0,
            "completed": 0,
            "failed": 0,
            "pending": 0,
            "queued": 0,
            "recovering": 0,
            "running": 0,
            "scheduled": 0
          },
          "version": "0.2.0",
          "workers": 3,
          "workers_ready": 2
        }
    "#]],
    );
    shows(
        "cluster status",
        expect![[r#"
        Cluster c-1: controller 2 leads in term 7 (says controller 1)

        ID  ADDRESS        ROLE    REACHABLE  APPLIED  LAG  STATE HASH  VERSION
         1  10.0.0.1:7070  VOTER   yes            100    0  5f3759df00  0.2.0
         2  10.0.0.2:7070  LEADER  yes            100    0  5f3759df00  0.2.0
         3  10.0.0.3:7070  VOTER   -              100    -  5f3759df00  0.2.0
    "#]],
    );
    asks(
        "cluster add 4 10.0.0.4:7070",
        expect![[r#"
        ! added controller 4 at 10.0.0.4:7070: it votes
        ? member Add { id: 4, address: "10.0.0.4:7070" }
        ? cluster
        ? member Promote { id: 4 }
    "#]],
    );
    asks(
        "cluster replace 3 4=10.0.0.4:7070",
        expect![[r#"
        ! added controller 4 at 10.0.0.4:7070: it votes
        ! removed controller 3
        ? cluster
        ? member Add { id: 4, address: "10.0.0.4:7070" }
        ? cluster
        ? member Promote { id: 4 }
        ? member Remove { id: 3 }
    "#]],
    );
    asks(
        "cluster replace 9 8=10.0.0.8:7070",
        expect![[r#"
        ! drigs: there is no controller 9
        exit 3
        ? cluster
    "#]],
    );
    asks(
        "cluster replace 3 3=10.0.0.4:7070",
        expect![[r#"
        ! drigs: the new controller needs a number of its own, other than 3; for the same controller at another address there is `drigs cluster move`
        exit 2
        ? cluster
    "#]],
    );
    asks(
        "cluster replace 3 10.0.0.4",
        expect![[r#"
            usage: NEW: `10.0.0.4` is not NUMBER=HOST:PORT, such as 4=ctl4:7070
        "#]],
    );
    asks(
        "cluster move 3 10.0.0.9:7070",
        expect![[r#"
        ! controller 3 is at 10.0.0.9:7070 from now on
        ? member Move { id: 3, address: "10.0.0.9:7070" }
    "#]],
    );
    asks(
        "cluster remove 1",
        expect![[r#"
        ! removed controller 1
        ? member Remove { id: 1 }
    "#]],
    );
    asks(
        "cluster transfer-leader",
        expect![[r#"
        ! leadership was handed over
        ? member TransferLeader { to: None }
    "#]],
    );
    asks(
        "cluster transfer-leader 3",
        expect![[r#"
        ! controller 3 leads
        ? member TransferLeader { to: Some(3) }
    "#]],
    );
    shows(
        "queues",
        expect![[r#"
        NAME     STATE  PRIORITY  WEIGHT  MAX GPUS  WAITING  ACTIVE
        default  OPEN          0       1         -        2       4
        night    OPEN          0       1         4        2       4
    "#]],
    );
    asks(
        "queue-set night --weight 5 --max-gpus none --close",
        expect![[r#"
        ! changed queue night
        ? queues
        ? queue night Queue { priority: 0, weight: 5, max_gpus: None, open: false }
    "#]],
    );
    asks(
        "queue-set new",
        expect![[r#"
        ! created queue new
        ? queues
        ? queue new Queue { priority: 0, weight: 1, max_gpus: None, open: true }
    "#]],
    );
}

/// stdout whose reader went away.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let failure = crate::cli::Failure::from(Gone.write(b"x").unwrap_err());
    assert_eq!((failure.code, failure.message.as_str()), (0, ""));
}

#[test]
fn backups_and_the_lost_majority() {
    shows(
        "cluster inspect-backup b.drigs",
        expect![[r#"
            Backup       b.drigs, 4096 bytes, sound
            Cluster      c-1
            Taken        11:00:00 (1h ago) by controller 2, version 0.2.0
            State        entry 100 of term 7, hash 5f3759df00, feature level 1
            Jobs         16 submitted; 3 tasks had a place on 2 workers
        "#]],
    );
    shows(
        "cluster backup --data-dir /d b.drigs",
        expect![[r#"
            Backup       b.drigs, 4096 bytes, sound
            Cluster      c-1
            Taken        11:00:00 (1h ago) by controller 2, version 0.2.0
            State        entry 100 of term 7, hash 5f3759df00, feature level 1
            Jobs         16 submitted; 3 tasks had a place on 2 workers
            Not in it    5 entries of the log that this controller had not applied: start it and back it up again to have them
        "#]],
    );
    shows(
        "cluster backup --data-dir /d -",
        expect![[r#"
            ! drigs: with --data-dir the backup goes to a file, so that it can be read back: name one
            exit 2
        "#]],
    );
    asks(
        "cluster backup -",
        expect![[r#"
            a backup! the backup is complete; `drigs cluster inspect-backup FILE` checks it where it lies
            ? backup
        "#]],
    );
    shows(
        "cluster restore b.drigs --data-dir /d --id 1 --peers 1=a:7070,2=b:7070",
        expect![[r#"
            Restored cluster c-2 (a new one) in /d, from b.drigs of 11:00:00.

            It can not know what happened since:
            - 3 tasks had a place on a worker. They are RECOVERING until their worker connects and says how they stand,
              or `drigs worker forget NAME` says that it is gone. None of them is given up by time.
            - Jobs that waited then may have run since. None of them starts before each of the 2 workers of that time has
              connected or was forgotten; what is over by then runs again all the same.
            - Jobs submitted since are not in it. What workers still run of them is stopped when they connect.
            - Workers of cluster c-1 are refused: it may live. If it is gone for good, restore with --adopt-workers.

            Next:
              drigs-controller --id 1 --peers 1=a:7070 --data-dir /d …
              drigs cluster add NUMBER HOST:7070      for each further controller, started with an empty directory
        "#]],
    );
    shows(
        "cluster restore b.drigs --data-dir /d --id 3 --peers 1=a:7070",
        expect![[r#"
            ! drigs: --peers 1=a:7070 does not say where controller 3 listens: write 3=HOST:PORT
            exit 2
        "#]],
    );
    shows(
        "cluster recover --data-dir /d --confirm c-9",
        expect![[r#"
            ! Controller 1 (10.0.0.1:7070) of cluster c-1 is to become its only one. Left behind: 2 at 10.0.0.2:7070.
            ! Its log ends with entry 100 of term 7, written 11:59:00 (1m ago).
            ! 
            ! It can not know:
            ! - What the others acknowledged after that entry. It is lost: jobs, cancellations, ends of tasks.
            ! - Whether its last 2 entries were ever acknowledged. They are kept, as if they had been.
            ! - Whether the others really are gone. While they live and reach each other, they go on without this one;
            !   recover only when they never come back with what they know.
            ! drigs: nothing was done: `c-9` is not the id of this cluster, c-1
            exit 2
        "#]],
    );
    shows(
        "cluster recover --data-dir /d --yes",
        expect![[r#"
            Controller 1 is the only one of cluster c-1-g2, generation 2.
            The others are refused from now on, and end as soon as they hear of it.
            What runs on workers goes on. What a worker had is not given up by time until it has connected, and jobs of before
            start only once every worker of before has connected, or `drigs worker forget NAME` says that it is gone.

            Next:
              drigs-controller --id 1 --peers 1=10.0.0.1:7070 --data-dir /d …
              drigs cluster add NUMBER HOST:7070      for each further one: an empty directory, a number never used
            ! Controller 1 (10.0.0.1:7070) of cluster c-1 is to become its only one. Left behind: 2 at 10.0.0.2:7070.
            ! Its log ends with entry 100 of term 7, written 11:59:00 (1m ago).
            ! 
            ! It can not know:
            ! - What the others acknowledged after that entry. It is lost: jobs, cancellations, ends of tasks.
            ! - Whether its last 2 entries were ever acknowledged. They are kept, as if they had been.
            ! - Whether the others really are gone. While they live and reach each other, they go on without this one;
            !   recover only when they never come back with what they know.
        "#]],
    );
}
