//! Jobs that wait for others.

use expect_test::expect;

use crate::state::testing::check;

#[test]
fn each_kind_of_dependency_waits_for_its_end() {
    check(
        "worker a
         job good
         job bad
         job a after ok 1 after ok 2
         job b after any 1 after any 2
         job c after notok 2
         job d after ok 1
         job e after notok 1
         place 3.0 on a
         place 1.0 on a
         end 1.0.1 ok
         show
         place 2.0 on a
         end 2.0.1 exit 1
         show",
        expect![[r#"
            place 3.0 on a: NO, task 3.0 is not waiting for a placement
            1.0.1 placed
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            job 6 unblocked
            job 7 is over: FAILED
            job 1 good: COMPLETED, completed 0
            job 2 bad: QUEUED, queued 0
            job 3 a: PENDING, queued 0, waits afterok:2
            job 4 b: PENDING, queued 0, waits afterany:2
            job 5 c: PENDING, queued 0, waits afternotok:2
            job 6 d: QUEUED, queued 0
            job 7 e: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            2.0.1 placed
            2.0.1 ended: EXIT 1
            task 2.0 is over: EXIT 1
            job 2 is over: FAILED
            job 3 is over: FAILED
            job 4 unblocked
            job 5 unblocked
            job 1 good: COMPLETED, completed 0
            job 2 bad: FAILED, failed 0, first failure 0 EXIT 1
            job 3 a: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
            job 4 b: QUEUED, queued 0
            job 5 c: QUEUED, queued 0
            job 6 d: QUEUED, queued 0
            job 7 e: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_failure_runs_down_the_chain() {
    check(
        "job one
         job two after ok 1
         job three after ok 2
         job four after any 3
         job five after notok 3 after ok 2
         cancel 1
         show",
        expect![[r#"
            job 1 is over: CANCELLED
            job 2 is over: FAILED
            job 3 is over: FAILED
            job 5 is over: FAILED
            job 4 unblocked
            job 1 one: CANCELLED, cancelled 0
            job 2 two: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
            job 3 three: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
            job 4 four: QUEUED, queued 0
            job 5 five: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
        "#]],
    );
}

#[test]
fn one_failed_task_of_an_array_is_enough() {
    check(
        "worker a
         job sweep array 0-1
         job ok after ok 1
         job notok after notok 1
         place 1.0 on a
         end 1.0.1 exit 1
         place 1.1 on a
         end 1.1.1 ok",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: EXIT 1
            task 1.0 is over: EXIT 1
            1.1.1 placed
            1.1.1 ended: SUCCESS
            task 1.1 is over: SUCCESS
            job 1 is over: FAILED
            job 2 is over: FAILED
            job 3 unblocked
        "#]],
    );
}

#[test]
fn a_job_that_left_memory_is_remembered_for_those_that_name_it() {
    check(
        "worker a
         job good
         job bad
         place 1.0 on a
         end 1.0.1 ok
         cancel 2
         retire 1 2
         job after-good after ok 1
         job after-bad after ok 2
         job despite-bad after notok 2
         job whatever after any 1 after any 2
         job not-good after notok 1
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            job 2 is over: CANCELLED
            job 1 retired
            job 2 retired
            job 3 after-good: QUEUED, queued 0
            job 4 after-bad: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
            job 5 despite-bad: QUEUED, queued 0
            job 6 whatever: QUEUED, queued 0
            job 7 not-good: FAILED, failed 0, first failure 0 DEPENDENCY_FAILED
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_dependent_may_be_cancelled_or_held_meanwhile() {
    check(
        "worker a
         job one
         job two after ok 1
         job three after ok 1
         cancel 2
         hold 3
         place 1.0 on a
         end 1.0.1 ok
         place 3.0 on a
         release 3
         place 3.0 on a
         requeue 2
         place 2.0 on a
         show",
        expect![[r#"
            job 2 is over: CANCELLED
            job 3 held
            1.0.1 placed
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            job 3 unblocked
            place 3.0 on a: NO, task 3.0 is not waiting for a placement
            job 3 released
            3.0.1 placed
            tasks 2.0 are queued again
            2.0.1 placed
            job 1 one: COMPLETED, completed 0
            job 2 two: SCHEDULED
            job 3 three: SCHEDULED
            task 2.0: SCHEDULED as 1 on a
            task 3.0: SCHEDULED as 1 on a
            worker a w1 e1: 6/8 CPUs, 16G/16G memory
        "#]],
    );
}
