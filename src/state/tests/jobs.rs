//! What people do to jobs.

use expect_test::expect;

use crate::state::testing::check;

#[test]
fn a_submission_is_taken_once() {
    check(
        "job one key k
         job one key k
         job other key k
         job one key k user bob
         job two key l
         +24h
         job one key k
         +1ms
         job one key k
         show",
        expect![[r#"
            job other key k: NO, the idempotency key `k` was already used, for another submission (job 1)
            job one key k user bob: NO, the idempotency key `k` was already used, for another submission (job 1)
            job 1 one: QUEUED, queued 0
            job 2 two: QUEUED, queued 0
            job 3 one: QUEUED, queued 0
        "#]],
    );
}

#[test]
fn a_submission_must_name_what_there_is() {
    check(
        "queue night closed
         job one queue night
         job one queue day
         job one after ok 1
         job one after any 0
         job one",
        expect![[r#"
            job one queue night: NO, queue `night` is closed to new jobs
            job one queue day: NO, no queue `day`; `drigs queues` lists them
            job one after ok 1: NO, no job 1 to depend on
            job one after any 0: NO, no job 0 to depend on
        "#]],
    );
}

#[test]
fn a_held_job_waits_for_its_release() {
    check(
        "worker a
         job one held
         job two
         place 1.0 on a
         release 1
         place 1.0 on a
         hold 2
         place 2.0 on a
         hold 9
         release 9
         end 1.0.1 ok
         hold 1
         release 1
         prio 1 5
         prio 9 5
         prio 2 5
         show",
        expect![[r#"
            place 1.0 on a: NO, task 1.0 is not waiting for a placement
            job 1 released
            1.0.1 placed
            job 2 held
            place 2.0 on a: NO, task 2.0 is not waiting for a placement
            hold 9: NO, no job 9; `drigs jobs -a` lists them
            release 9: NO, no job 9; `drigs jobs -a` lists them
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            hold 1: NO, job 1 is already finished
            release 1: NO, job 1 is already finished
            prio 1 5: NO, job 1 is already finished
            prio 9 5: NO, no job 9; `drigs jobs -a` lists them
            job 2 has another priority
            job 1 one: COMPLETED, completed 0
            job 2 two: PENDING, queued 0, held by ann
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn cancelling_ends_what_waits_and_stops_what_runs() {
    check(
        "worker a
         job sweep array 0-9 retry 3
         place 1.0 on a
         place 1.1 on a
         place 1.2 on a
         start 1.0.1
         end 1.2.1 exit 1
         cancel 1.9
         cancel 1.9
         cancel 1.77
         cancel 9
         cancel 1
         show
         cancel 1
         end 1.0.1 signal 15
         end 1.1.1 ok
         show
         cancel 1",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            1.2.1 placed
            1.0.1 started
            1.2.1 ended: EXIT 1
            task 1.2 waits again
            cancel 1.9: nothing
            cancel 1.9: nothing
            cancel 1.77: NO, job 1 has no task 77
            cancel 9: NO, no job 9; `drigs jobs -a` lists them
            1.0.1 must stop
            1.1.1 must stop
            task 1.2 is over: USER
            job 1 sweep: RUNNING, cancelled 2-9
            task 1.0: RUNNING as 1 on a running, stopping (User)
            task 1.1: SCHEDULED as 1 on a, stopping (User)
            worker a w1 e1: 6/8 CPUs, 16G/16G memory
            cancel 1: nothing
            1.0.1 ended: SIGNAL 15
            task 1.0 is over: USER 15
            1.1.1 ended: SUCCESS
            task 1.1 is over: SUCCESS
            job 1 is over: CANCELLED
            job 1 sweep: CANCELLED, completed 1, cancelled 0,2-9
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            cancel 1: NO, job 1 is already finished
        "#]],
    );
}

#[test]
fn a_cancelled_attempt_is_over_even_when_its_worker_is_lost() {
    check(
        "worker a
         job one
         place 1.0 on a
         start 1.0.1
         cancel 1
         requeue 1
         silence a
         +1h
         giveup 1.0.1
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            1.0.1 must stop
            requeue 1: nothing
            worker a is silent
            1.0.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 1.0 is over: USER (its worker was out of touch for too long)
            job 1 is over: CANCELLED
            job 1 one: CANCELLED, cancelled 0
            worker a w1 e1: 8/8 CPUs, 16G/16G memory silent since 12:00:00
        "#]],
    );
}

#[test]
fn tasks_that_are_run_again_never_use_a_number_twice() {
    check(
        "worker a
         job sweep array 0-3 retry 1
         requeue 1
         requeue 9
         requeue 1.9
         place 1.0 on a
         end 1.0.1 exit 1
         place 1.0 on a
         end 1.0.2 exit 1
         place 1.1 on a
         end 1.1.1 ok
         cancel 1.2
         show
         requeue 1
         place 1.0 on a
         place 1.1 on a
         place 1.3 on a
         show
         start 1.0.3
         requeue 1.0
         end 1.0.3 ok
         place 1.0 on a
         show",
        expect![[r#"
            requeue 1: NO, 1 is not over and not running: there is nothing to run again
            requeue 9: NO, no job 9; `drigs jobs -a` lists them
            requeue 1.9: NO, job 1 has no task 9
            1.0.1 placed
            1.0.1 ended: EXIT 1
            task 1.0 waits again
            1.0.2 placed
            1.0.2 ended: EXIT 1
            task 1.0 is over: EXIT 1
            1.1.1 placed
            1.1.1 ended: SUCCESS
            task 1.1 is over: SUCCESS
            cancel 1.2: nothing
            job 1 sweep: QUEUED, queued 3, completed 1, failed 0, cancelled 2, first failure 0 EXIT 1
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            tasks 1.0-2 are queued again
            1.0.3 placed
            1.1.3 placed
            1.3.3 placed
            job 1 sweep: SCHEDULED, queued 2
            task 1.0: SCHEDULED as 3 on a
            task 1.1: SCHEDULED as 3 on a
            task 1.3: SCHEDULED as 3 on a
            worker a w1 e1: 5/8 CPUs, 16G/16G memory
            1.0.3 started
            1.0.3 must stop
            1.0.3 ended: SUCCESS
            task 1.0 waits again
            1.0.4 placed
            job 1 sweep: SCHEDULED, queued 2
            task 1.0: SCHEDULED as 4 on a
            task 1.1: SCHEDULED as 3 on a
            task 1.3: SCHEDULED as 3 on a
            worker a w1 e1: 5/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_job_that_is_over_can_run_again_and_leave() {
    check(
        "worker a
         job one
         retire 1 7
         place 1.0 on a
         end 1.0.1 exit 3
         requeue 1
         show
         place 1.0 on a
         end 1.0.2 ok
         retire 1
         retire 1
         requeue 1
         cancel 1
         show",
        expect![[r#"
            retire 1 7: nothing
            1.0.1 placed
            1.0.1 ended: EXIT 3
            task 1.0 is over: EXIT 3
            job 1 is over: FAILED
            tasks 1.0 are queued again
            job 1 one: QUEUED, queued 0
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            1.0.2 placed
            1.0.2 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            job 1 retired
            retire 1: nothing
            requeue 1: NO, no job 1; `drigs jobs -a` lists them
            cancel 1: NO, no job 1; `drigs jobs -a` lists them
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn queues_are_served_by_their_priority() {
    check(
        "queue fast prio 9 max-gpus 4
         job one
         job two queue fast
         job three queue fast prio 3
         queue fast prio 0
         show",
        expect![[r#"
            job 1 one: QUEUED, queued 0
            job 2 two: QUEUED, queued 0
            job 3 three: QUEUED, queued 0
        "#]],
    );
}

#[test]
fn the_feature_level_only_rises() {
    check(
        "level 1
         level 2
         level 2",
        expect![[r#"
            level 1: NO, feature level 1 is not above the present one
            feature level 2
            level 2: NO, feature level 2 is not above the present one
        "#]],
    );
}

#[test]
fn an_array_without_tasks_is_over_at_once() {
    use crate::{
        model::{Array, IndexSet, JobSpec},
        state::{Command, SubmitJob, testing::World},
    };
    let array = Some(Array { indices: IndexSet::new(), max_running: None });
    let spec = JobSpec { array, ..JobSpec::default() };
    let submission = SubmitJob { spec, user: "ann".into(), key: "key".into() };
    let events = World::default().apply(Command::SubmitJob(Box::new(submission))).unwrap();
    expect!["[JobSubmitted(JobId(1)), JobFinished(JobId(1), Completed)]"]
        .assert_eq(&format!("{events:?}"));
}
