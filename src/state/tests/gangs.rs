//! Attempts with parts on several workers: they start whole or not at all, and end whole.

use expect_test::expect;

use crate::state::testing::check;

const THREE: &str = "worker a cpus 4 gpus 4xA100:80G
    worker b cpus 4 gpus 4xA100:80G
    worker c cpus 4 gpus 4xA100:80G
    job gang nodes 3 gpus 4 retry 1
    job small gpus 1
    place 1.0 on a gpu 0,1,2,3 on b gpu 0,1,2,3 on c gpu 0,1,2,3
    start 1.0.1 on b
    start 1.0.1 on a
    start 1.0.1 on c
";

fn check_three(then: &str, expected: expect_test::Expect) {
    check(&format!("{THREE}{then}"), expected);
}

#[test]
fn a_gang_is_placed_whole_or_not_at_all() {
    check(
        "worker a cpus 4
         worker b cpus 4
         job gang nodes 2 cpus 4
         job small
         place 2.0 on b
         place 1.0 on a on b
         show
         end 2.0.1 ok
         place 1.0 on a on b
         place 1.0 on a on b
         show",
        expect![[r#"
            2.0.1 placed
            place 1.0 on a on b: NO, the room planned for task 1.0 on worker w2 is taken
            job 1 gang: QUEUED, queued 0
            job 2 small: SCHEDULED
            task 2.0: SCHEDULED as 1 on b
            worker a w1 e1: 4/4 CPUs, 16G/16G memory
            worker b w2 e1: 3/4 CPUs, 16G/16G memory
            2.0.1 ended: SUCCESS
            task 2.0 is over: SUCCESS
            job 2 is over: COMPLETED
            1.0.1 placed
            place 1.0 on a on b: NO, task 1.0 is not waiting for a placement
            job 1 gang: SCHEDULED
            job 2 small: COMPLETED, completed 0
            task 1.0: SCHEDULED as 1 on a on b ranks 1..2
            worker a w1 e1: 0/4 CPUs, 16G/16G memory
            worker b w2 e1: 0/4 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_gang_ends_when_all_of_it_has_ended() {
    check_three(
        "end 1.0.1 on a ok
         place 2.0 on a gpu 0
         end 1.0.1 on a ok
         end 1.0.1 on b ok
         show
         end 1.0.1 on c ok
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            start 1.0.1 on a: nothing
            start 1.0.1 on c: nothing
            end 1.0.1 on a ok: nothing
            2.0.1 placed
            end 1.0.1 on a ok: NO, attempt 1.0.1 is over or was replaced
            end 1.0.1 on b ok: nothing
            job 1 gang: RUNNING
            job 2 small: SCHEDULED
            task 1.0: RUNNING as 1 on a gpu 0 gpu 1 gpu 2 gpu 3 ended SUCCESS on b gpu 0 gpu 1 gpu 2 gpu 3 ranks 1..2 ended SUCCESS on c gpu 0 gpu 1 gpu 2 gpu 3 ranks 2..3 running
            task 2.0: SCHEDULED as 1 on a gpu 0
            worker a w1 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 0B/80G, gpu 2 0B/80G, gpu 3 0B/80G
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            job 1 gang: COMPLETED, completed 0
            job 2 small: SCHEDULED
            task 2.0: SCHEDULED as 1 on a gpu 0
            worker a w1 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
        "#]],
    );
}

#[test]
fn a_part_that_fails_takes_the_others_with_it() {
    check_three(
        "end 1.0.1 on b exit 7
         show
         end 1.0.1 on a GANG_FAILED
         end 1.0.1 on c signal 9
         show
         +1m
         place 1.0 on a gpu 0 on b gpu 0 on c gpu 0
         end 1.0.2 on c OUT_OF_MEMORY_GPU
         end 1.0.2 on a ok
         end 1.0.2 on b GANG_FAILED
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            start 1.0.1 on a: nothing
            start 1.0.1 on c: nothing
            1.0.1 must stop
            job 1 gang: RUNNING
            job 2 small: QUEUED, queued 0
            task 1.0: RUNNING as 1 on a gpu 0 gpu 1 gpu 2 gpu 3 running on b gpu 0 gpu 1 gpu 2 gpu 3 ranks 1..2 ended EXIT 7 on c gpu 0 gpu 1 gpu 2 gpu 3 ranks 2..3 running, stopping (GangFailed)
            worker a w1 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 0B/80G, gpu 2 0B/80G, gpu 3 0B/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 0B/80G, gpu 2 0B/80G, gpu 3 0B/80G
            end 1.0.1 on a GANG_FAILED: nothing
            1.0.1 ended: EXIT 7
            task 1.0 waits again
            job 1 gang: QUEUED
            job 2 small: QUEUED, queued 0
            task 1.0: QUEUED not before 12:00:00.500, 1 own failures, 0 others
            worker a w1 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            1.0.2 placed
            1.0.2 must stop
            end 1.0.2 on a ok: nothing
            1.0.2 ended: OUT_OF_MEMORY_GPU
            task 1.0 is over: OUT_OF_MEMORY_GPU
            job 1 is over: FAILED
            job 1 gang: FAILED, failed 0, first failure 0 OUT_OF_MEMORY_GPU
            job 2 small: QUEUED, queued 0
            worker a w1 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
        "#]],
    );
}

#[test]
fn a_lost_part_is_the_clusters_fault() {
    check_three(
        "silence b
         +1h
         giveup 1.0.1 on b
         show
         end 1.0.1 on a GANG_FAILED
         end 1.0.1 on c GANG_FAILED
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            start 1.0.1 on a: nothing
            start 1.0.1 on c: nothing
            worker b is silent
            1.0.1 must stop
            job 1 gang: RUNNING
            job 2 small: QUEUED, queued 0
            task 1.0: RUNNING as 1 on a gpu 0 gpu 1 gpu 2 gpu 3 running on b gpu 0 gpu 1 gpu 2 gpu 3 ranks 1..2 ended NODE_LOST (its worker was out of touch for too long) on c gpu 0 gpu 1 gpu 2 gpu 3 ranks 2..3 running, stopping (GangFailed)
            worker a w1 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 0B/80G, gpu 2 0B/80G, gpu 3 0B/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G silent since 12:00:00
            worker c w3 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 0B/80G, gpu 2 0B/80G, gpu 3 0B/80G
            end 1.0.1 on a GANG_FAILED: nothing
            1.0.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 1.0 waits again
            job 1 gang: RECOVERING
            job 2 small: QUEUED, queued 0
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids b
            worker a w1 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G silent since 12:00:00
            worker c w3 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
        "#]],
    );
}

#[test]
fn what_a_person_said_stands_above_what_follows_from_it() {
    check_three(
        "requeue 1
         end 1.0.1 on a signal 15
         show
         end 1.0.1 on b signal 15
         end 1.0.1 on c signal 15
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            start 1.0.1 on a: nothing
            start 1.0.1 on c: nothing
            1.0.1 must stop
            end 1.0.1 on a signal 15: nothing
            job 1 gang: RUNNING
            job 2 small: QUEUED, queued 0
            task 1.0: RUNNING as 1 on a gpu 0 gpu 1 gpu 2 gpu 3 ended SIGNAL 15 on b gpu 0 gpu 1 gpu 2 gpu 3 ranks 1..2 running on c gpu 0 gpu 1 gpu 2 gpu 3 ranks 2..3 running, stopping (Requeue)
            worker a w1 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 0B/80G, gpu 2 0B/80G, gpu 3 0B/80G
            worker c w3 e1: 3/4 CPUs, 16G/16G memory, gpu 0 0B/80G, gpu 1 0B/80G, gpu 2 0B/80G, gpu 3 0B/80G
            end 1.0.1 on b signal 15: nothing
            1.0.1 ended: SIGNAL 15
            task 1.0 waits again
            job 1 gang: QUEUED
            job 2 small: QUEUED, queued 0
            task 1.0: QUEUED
            worker a w1 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
        "#]],
    );
    check_three(
        "cancel 1
         end 1.0.1 on a signal 15
         end 1.0.1 on b signal 15
         end 1.0.1 on c ok
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            start 1.0.1 on a: nothing
            start 1.0.1 on c: nothing
            1.0.1 must stop
            end 1.0.1 on a signal 15: nothing
            end 1.0.1 on b signal 15: nothing
            1.0.1 ended: SIGNAL 15
            task 1.0 is over: USER 15
            job 1 is over: CANCELLED
            job 1 gang: CANCELLED, cancelled 0
            job 2 small: QUEUED, queued 0
            worker a w1 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
        "#]],
    );
}

#[test]
fn two_lost_workers_are_given_up_one_by_one() {
    check_three(
        "silence a
         silence c
         +1h
         giveup 1.0.1 on a
         giveup 1.0.1 on b
         giveup 1.0.1 on a
         giveup 1.0.1 on c
         forget a
         end 1.0.1 on b GANG_FAILED
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            start 1.0.1 on a: nothing
            start 1.0.1 on c: nothing
            worker a is silent
            worker c is silent
            1.0.1 must stop
            worker w1 forgotten
            1.0.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 1.0 waits again
            job 1 gang: RECOVERING
            job 2 small: QUEUED, queued 0
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids w1, avoids c
            worker b w2 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G
            worker c w3 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G, gpu 2 80G/80G, gpu 3 80G/80G silent since 12:00:00
        "#]],
    );
}
