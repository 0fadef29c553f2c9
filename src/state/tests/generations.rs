//! What a recovered or restored cluster does with what it can not know.

use expect_test::expect;

use crate::state::testing::check;

#[test]
fn nothing_that_may_still_run_is_run_twice() {
    check(
        "worker a
         worker b
         job runs
         job waits
         place 1.0 on a
         start 1.0.1 on a
         anew
         show
         +10h
         giveup 1.0.1
         worker c
         place 2.0 on c
         job later
         place 1000001.0 on c
         worker a
         place 2.0 on c
         settle a
         place 2.0 on c
         forget b
         place 2.0 on c
         show
         end 1.0.1 on a ok
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            a new generation
            job 1 runs: RECOVERING
            job 2 waits: QUEUED, queued 0
            task 1.0: RECOVERING as 1 on a running
            worker a w1 e1: 7/8 CPUs, 16G/16G memory estranged silent since 12:00:00
            worker b w2 e1: 8/8 CPUs, 16G/16G memory estranged silent since 12:00:00
            giveup 1.0.1: NO, worker w1 was not heard since the cluster was recovered or restored: nothing of it is given up by itself
            place 2.0 on c: NO, job 2 may run already, on a worker that was not heard since the cluster was recovered or restored
            1000001.0.1002 placed
            place 2.0 on c: NO, job 2 may run already, on a worker that was not heard since the cluster was recovered or restored
            a settled
            place 2.0 on c: NO, job 2 may run already, on a worker that was not heard since the cluster was recovered or restored
            worker w2 forgotten
            2.0.1002 placed
            job 1 runs: RUNNING
            job 2 waits: SCHEDULED
            job 1000001 later: SCHEDULED
            task 1.0: RUNNING as 1 on a running
            task 2.0: SCHEDULED as 1002 on c
            task 1000001.0: SCHEDULED as 1002 on c
            worker a w1 e1: 7/8 CPUs, 16G/16G memory
            worker c w3 e1: 6/8 CPUs, 16G/16G memory
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            job 1 runs: COMPLETED, completed 0
            job 2 waits: SCHEDULED
            job 1000001 later: SCHEDULED
            task 2.0: SCHEDULED as 1002 on c
            task 1000001.0: SCHEDULED as 1002 on c
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            worker c w3 e1: 6/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_worker_whose_machine_started_anew_runs_nothing_of_before() {
    check(
        "worker a
         job one
         place 1.0 on a
         anew
         worker a epoch 2
         settle a
         show
         anew
         forget a
         anew
         show",
        expect![[r#"
            1.0.1 placed
            a new generation
            settle a: nothing
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids a
            worker a w1 e2: 8/8 CPUs, 16G/16G memory
            a new generation
            worker w1 forgotten
            a new generation
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids w1
        "#]],
    );
}
