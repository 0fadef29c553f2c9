//! Who goes first, and where.

use expect_test::expect;

use super::check;

#[test]
fn queues_then_priorities_then_the_order_of_submission() {
    check(
        "worker a cpus 4
         queue fast prio 5
         job first
         job second prio 9
         job third queue fast
         job fourth prio 9
         job fifth
         plan
         plan 2",
        expect![[r#"
            3.0 -> a
            2.0 -> a
            4.0 -> a
            1.0 -> a
            1 wait: PRIORITY
            3.0 -> a
            2.0 -> a
        "#]],
    );
}

#[test]
fn the_worker_that_fits_best_is_chosen() {
    check(
        "worker big cpus 64 mem 256G
         worker small cpus 4 mem 8G
         worker gpus cpus 4 mem 8G gpus 2xT4:16G
         job one cpus 2 mem 4G
         job two cpus 2 mem 4G
         job three cpus 2 mem 4G
         job four cpus 2 mem 4G gpus 1
         plan",
        expect![[r#"
            1.0 -> small
            2.0 -> small
            3.0 -> big
            4.0 -> gpus gpu 0
        "#]],
    );
}

#[test]
fn gpus_are_chosen_by_what_is_asked_of_them() {
    check(
        "worker a cpus 32 gpus 2xA100:80G
         worker b cpus 32 gpus 2xT4:16G
         worker c cpus 32 gpus 1xH100:80G
         job any gpus 1
         job vram gpus 1 vram 40G
         job model gpus 1 model h100
         job capability gpus 1 cc 8.0
         job too-new gpus 1 cc 9.1
         job two gpus 2
         plan",
        expect![[r#"
            1.0 -> b gpu 0
            2.0 -> c gpu 0
            4.0 -> a gpu 0
            2 wait: PRIORITY
            1 wait: INFEASIBLE
            c kept for 3 until some time
        "#]],
    );
}

#[test]
fn shared_gpus_are_filled_before_fresh_ones() {
    check(
        "worker a cpus 32 gpus 2xA100:80G
         job notebook array 0-3 gpus 1 vram 30G shared
         job whole gpus 1
         job little gpus 1 vram 20G shared
         job unsaid gpus 1 shared
         plan",
        expect![[r#"
            1.0 -> a gpu 0 (30G)
            1.1 -> a gpu 0 (30G)
            1.2 -> a gpu 1 (30G)
            1.3 -> a gpu 1 (30G)
            2 wait: PRIORITY
            1 wait: RESERVED
            a kept for 2 until some time
        "#]],
    );
}

#[test]
fn sick_drained_silent_and_unheard_workers_get_nothing() {
    check(
        "worker a gpus 2xT4:16G
         worker b gpus 2xT4:16G
         worker c gpus 2xT4:16G
         worker d gpus 2xT4:16G
         gpus a sick 0
         drain b new disk
         silence c
         mute d
         job one gpus 1
         job two gpus 2
         plan",
        expect![[r#"
            GPUs of a updated
            worker b drains
            worker c is silent
            1.0 -> a gpu 1
            1 wait: NO_WORKERS
        "#]],
    );
}

#[test]
fn labels_and_backends_must_match() {
    check(
        "worker a label rack=1 label disk=fast
         worker b docker label rack=2
         job one label rack=2
         job two label rack=1 label disk=fast
         job three label rack=3
         job four docker
         job five docker label rack=1
         plan",
        expect![[r#"
            1.0 -> b
            2.0 -> a
            4.0 -> b
            2 wait: INFEASIBLE
        "#]],
    );
}

#[test]
fn an_array_is_spread_until_it_may_not() {
    check(
        "worker a cpus 4
         worker b cpus 4
         job limited array 0-99%3
         job sweep array 0-9 cpus 2
         follow
         end 1.0.1 ok
         follow",
        expect![[r#"
            1.0 -> a
            1.1 -> a
            1.2 -> a
            2.0 -> b
            2.1 -> b
            1 wait: MAX_RUNNING
            1 wait: PRIORITY
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            1.3 -> a
            1 wait: MAX_RUNNING
            1 wait: PRIORITY
        "#]],
    );
}

#[test]
fn a_queue_holds_no_more_gpus_than_it_may() {
    check(
        "worker a cpus 32 gpus 8xA100:80G
         queue night max-gpus 3
         job one queue night gpus 2
         job two queue night gpus 2
         job three queue night gpus 1
         job four queue night gpus 1
         job five queue night
         job six gpus 2
         follow
         reasons
         end 1.0.1 ok
         plan",
        expect![[r#"
            1.0 -> a gpu 0 gpu 1
            3.0 -> a gpu 2
            5.0 -> a
            6.0 -> a gpu 3 gpu 4
            2 wait: QUOTA
            1 one: STARTING
            2 two: QUOTA
            3 three: STARTING
            4 four: QUOTA
            5 five: STARTING
            6 six: STARTING
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            2.0 -> a gpu 0 gpu 1
            1 wait: QUOTA
        "#]],
    );
}

#[test]
fn second_tries_go_first_when_their_time_has_come() {
    check(
        "worker a cpus 1
         job sweep array 0-3 retry 3
         place 1.2 on a
         end 1.2.1 exit 1
         plan
         +500ms
         plan",
        expect![[r#"
            1.2.1 placed
            1.2.1 ended: EXIT 1
            task 1.2 waits again
            1.0 -> a
            1 wait: PRIORITY
            again at 12:00:00.500
            1.2 -> a
            1 wait: PRIORITY
        "#]],
    );
}

#[test]
fn a_place_where_it_failed_is_avoided_while_there_is_another() {
    check(
        "worker a cpus 2
         worker b cpus 2
         job one
         place 1.0 on a
         end 1.0.1 GPU_FAULT
         job filler cpus 2
         place 2.0 on b
         plan
         reasons
         silence b
         plan",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: GPU_FAULT
            task 1.0 waits again
            2.0.1 placed
            1 wait: RESOURCES
            1 one: RESOURCES
            2 filler: STARTING
            worker b is silent
            1.0 -> a
        "#]],
    );
}

#[test]
fn a_gang_takes_so_many_workers_or_none() {
    check(
        "worker a cpus 4 gpus 2xA100:80G
         worker b cpus 4 gpus 2xA100:80G
         worker c cpus 4 gpus 2xA100:80G
         job three nodes 3 gpus 2 world 6
         job two nodes 2 gpus 2 world 5
         job four nodes 4 gpus 1
         job anywhere anywhere gpus 3
         follow
         reasons
         cancel 1
         end 1.0.1 on a ok
         end 1.0.1 on c ok
         plan
         end 1.0.1 on b ok
         plan",
        expect![[r#"
            1.0 -> a gpu 0 gpu 1 ranks 0..2 + b gpu 0 gpu 1 ranks 2..4 + c gpu 0 gpu 1 ranks 4..6
            1 wait: PRIORITY
            2 wait: INFEASIBLE
            1 three: STARTING
            2 two: RESOURCES
            3 four: INFEASIBLE
            4 anywhere: INFEASIBLE
            1.0.1 must stop
            end 1.0.1 on a ok: nothing
            end 1.0.1 on c ok: nothing
            2.0 -> a gpu 0 gpu 1 ranks 0..3 + c gpu 0 gpu 1 ranks 3..5
            2 wait: INFEASIBLE
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            2.0 -> a gpu 0 gpu 1 ranks 0..3 + b gpu 0 gpu 1 ranks 3..5
            2 wait: INFEASIBLE
        "#]],
    );
}

#[test]
fn what_only_time_can_change_is_known() {
    check(
        "worker a
         job later begin 13:00:00
         job sooner begin 12:30:00
         job held held
         job after after any 3
         plan
         reasons
         at 12:30:00
         plan",
        expect![[r#"
            1 wait: HELD
            1 wait: DEPENDENCY
            2 wait: BEGIN_TIME
            again at 12:30:00
            1 later: BEGIN_TIME
            2 sooner: BEGIN_TIME
            3 held: HELD
            4 after: DEPENDENCY
            2.0 -> a
            1 wait: HELD
            1 wait: DEPENDENCY
            1 wait: BEGIN_TIME
            again at 13:00:00
        "#]],
    );
}
