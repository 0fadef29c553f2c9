//! The first job that finds no room is not passed by those that would take it.

use expect_test::expect;

use super::check;

#[test]
fn small_jobs_do_not_eat_the_room_that_a_big_one_waits_for() {
    check(
        "worker a cpus 8
         job running cpus 4
         follow
         job big cpus 8
         job small cpus 2
         job other-small cpus 1
         follow
         reasons
         end 1.0.1 ok
         follow",
        expect![[r#"
            1.0 -> a
            1 wait: RESOURCES
            2 wait: RESERVED
            a kept for 2 until some time
            1 running: STARTING
            2 big: RESOURCES
            3 small: RESERVED
            4 other-small: RESERVED
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            2.0 -> a
            2 wait: PRIORITY
        "#]],
    );
}

#[test]
fn they_may_use_what_it_does_not_need() {
    check(
        "worker a cpus 8 gpus 2xA100:80G
         job running gpus 2
         follow
         job big cpus 4 gpus 2
         job small array 0-9 cpus 1
         follow
         end 1.0.1 ok
         follow",
        expect![[r#"
            1.0 -> a gpu 0 gpu 1
            3.0 -> a
            3.1 -> a
            3.2 -> a
            3.3 -> a
            1 wait: RESOURCES
            1 wait: RESERVED
            a kept for 2 until some time
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            2.0 -> a gpu 0 gpu 1
            1 wait: PRIORITY
        "#]],
    );
}

#[test]
fn they_may_pass_where_their_time_limit_ends_before() {
    check(
        "worker a cpus 8
         job running cpus 4 limit 1h
         follow
         start 1.0.1
         job big cpus 8
         job long cpus 2 limit 2h
         job brief cpus 2 limit 30m
         job exact cpus 2 limit 1h
         job unknown cpus 2
         follow
         reasons
         +30m
         end 4.0.1 ok
         job late cpus 2 limit 45m
         follow",
        expect![[r#"
            1.0 -> a
            1.0.1 started
            4.0 -> a
            5.0 -> a
            1 wait: RESOURCES
            2 wait: RESERVED
            a kept for 2 until 13:00:00
            1 running: -
            2 big: RESOURCES
            3 long: RESOURCES
            4 brief: STARTING
            5 exact: STARTING
            6 unknown: RESOURCES
            4.0.1 ended: SUCCESS
            task 4.0 is over: SUCCESS
            job 4 is over: COMPLETED
            7.0 -> a
            1 wait: RESOURCES
            2 wait: RESERVED
            a kept for 2 until 13:30:00
        "#]],
    );
}

#[test]
fn it_waits_for_the_worker_that_is_free_soonest() {
    check(
        "worker a cpus 4
         worker b cpus 4
         worker c cpus 6
         job one cpus 4 limit 2h
         job two cpus 4 limit 1h
         job three cpus 2
         job four cpus 2
         follow
         job big cpus 4
         job small array 0-9 cpus 1
         follow",
        expect![[r#"
            1.0 -> a
            2.0 -> b
            3.0 -> c
            4.0 -> c
            6.0 -> c
            6.1 -> c
            1 wait: RESOURCES
            1 wait: PRIORITY
            b kept for 5 until 13:00:00
        "#]],
    );
}

#[test]
fn a_gang_is_not_starved_by_single_jobs() {
    check(
        "worker a cpus 4
         worker b cpus 4
         worker c cpus 4
         job one cpus 4 limit 1h
         job two cpus 4 limit 2h
         follow
         job gang nodes 2 cpus 3
         job small array 0-9 cpus 1
         follow
         end 1.0.1 ok
         follow",
        expect![[r#"
            1.0 -> a
            2.0 -> b
            4.0 -> c
            1 wait: RESOURCES
            1 wait: RESERVED
            a c kept for 3 until 13:00:00
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            3.0 -> c + a ranks 1..2
            4.1 -> a
            1 wait: PRIORITY
        "#]],
    );
}

#[test]
fn what_is_placed_in_the_same_round_counts_as_well() {
    check(
        "worker a cpus 8
         job first cpus 4
         job big cpus 8
         job small cpus 4
         plan",
        expect![[r#"
            1.0 -> a
            1 wait: PRIORITY
            1 wait: RESERVED
            a kept for 2 until some time
        "#]],
    );
}

#[test]
fn who_cannot_run_at_all_keeps_nothing() {
    check(
        "worker a cpus 8 gpus 1xT4:16G
         gpus a sick 0
         queue night max-gpus 0
         job sick cpus 8 gpus 1
         job huge cpus 64
         job quota cpus 8 gpus 1 queue night
         job held cpus 8 held
         job small array 0-9%1
         job rest cpus 7
         plan
         reasons",
        expect![[r#"
            GPUs of a updated
            5.0 -> a
            6.0 -> a
            1 wait: HELD
            1 wait: MAX_RUNNING
            1 wait: INFEASIBLE
            2 wait: NO_WORKERS
            1 sick: NO_WORKERS
            2 huge: INFEASIBLE
            3 quota: NO_WORKERS
            4 held: HELD
            5 small: MAX_RUNNING
            6 rest: STARTING
        "#]],
    );
}

#[test]
fn equal_requests_wait_for_the_same_reason() {
    check(
        "worker a cpus 2
         job array array 0-9999
         job one
         job two
         job lesser cpus 0.5
         plan
         reasons",
        expect![[r#"
            1.0 -> a
            1.1 -> a
            4 wait: PRIORITY
            1 array: PRIORITY
            2 one: PRIORITY
            3 two: PRIORITY
            4 lesser: PRIORITY
        "#]],
    );
}
