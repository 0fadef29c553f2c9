//! Placements, starts, ends and second tries.

use expect_test::expect;

use crate::state::testing::check;

#[test]
fn a_task_runs_from_placement_to_its_end() {
    check(
        "worker a cpus 4 gpus 2xA100:80G
         job train gpus 1 mem 2G
         place 1.0 on a gpu 1
         start 1.0.1
         start 1.0.1
         show
         +10s
         end 1.0.1 ok
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            start 1.0.1: nothing
            job 1 train: RUNNING
            task 1.0: RUNNING as 1 on a gpu 1 running
            worker a w1 e1: 3/4 CPUs, 14G/16G memory, gpu 0 80G/80G, gpu 1 0B/80G
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            job 1 train: COMPLETED, completed 0
            worker a w1 e1: 4/4 CPUs, 16G/16G memory, gpu 0 80G/80G, gpu 1 80G/80G
        "#]],
    );
}

#[test]
fn a_placement_that_no_longer_fits_is_refused() {
    check(
        "worker a cpus 4 mem 8G gpus 2xA100:80G
         worker b epoch 2 cpus 4 mem 8G
         job one gpus 1
         job two gpus 1
         job held held
         job later begin 13:00:00
         place 9.0 on a
         place 1.1 on a
         place 1.0
         place 1.0 on w9
         place 1.0 on b epoch 1
         place 1.0 on a cpus 5
         place 1.0 on a mem 9G
         place 1.0 on a cpus 2 on a cpus 1
         place 3.0 on a
         place 4.0 on a
         place 1.0 on a gpu 0
         place 1.0 on a gpu 1
         place 2.0 on a gpu 0
         place 2.0 on a gpu 1,1
         place 2.0 on a gpu 1 share 0B
         gpus a sick 1
         place 2.0 on a gpu 1
         drain b for repairs
         place 2.0 on b
         resume b
         silence b
         place 2.0 on b
         back b
         place 2.0 on b
         at 13:00:00
         place 4.0 on b
         show",
        expect![[r#"
            place 9.0 on a: NO, no job 9; `drigs jobs -a` lists them
            place 1.1 on a: NO, task 1.1 is not waiting for a placement
            place 1.0: NO, task 1.0 is not waiting for a placement
            place 1.0 on w9: NO, no worker w9; `drigs workers` lists them
            place 1.0 on b epoch 1: NO, worker w2 is in a newer life than this speaks of
            place 1.0 on a cpus 5: NO, the room planned for task 1.0 on worker w1 is taken
            place 1.0 on a mem 9G: NO, the room planned for task 1.0 on worker w1 is taken
            place 1.0 on a cpus 2 on a cpus 1: NO, the room planned for task 1.0 on worker w1 is taken
            place 3.0 on a: NO, task 3.0 is not waiting for a placement
            place 4.0 on a: NO, task 4.0 is not waiting for a placement
            1.0.1 placed
            place 1.0 on a gpu 1: NO, task 1.0 is not waiting for a placement
            place 2.0 on a gpu 0: NO, the room planned for task 2.0 on worker w1 is taken
            place 2.0 on a gpu 1,1: NO, the room planned for task 2.0 on worker w1 is taken
            place 2.0 on a gpu 1 share 0B: NO, the room planned for task 2.0 on worker w1 is taken
            GPUs of a updated
            place 2.0 on a gpu 1: NO, the room planned for task 2.0 on worker w1 is taken
            worker b drains
            place 2.0 on b: NO, worker w2 takes no new work
            worker b resumed
            worker b is silent
            place 2.0 on b: NO, worker w2 takes no new work
            worker b is back
            2.0.1 placed
            4.0.1 placed
            job 1 one: SCHEDULED
            job 2 two: SCHEDULED
            job 3 held: PENDING, queued 0, held by ann
            job 4 later: SCHEDULED
            task 1.0: SCHEDULED as 1 on a gpu 0
            task 2.0: SCHEDULED as 1 on b
            task 4.0: SCHEDULED as 1 on b
            worker a w1 e1: 3/4 CPUs, 8G/8G memory, gpu 0 0B/80G, gpu 1 sick (Xid 79)
            worker b w2 e2: 2/4 CPUs, 8G/8G memory
        "#]],
    );
}

#[test]
fn shares_of_a_gpu_add_up_to_its_memory() {
    check(
        "worker a gpus 1xA100:80G
         job notebook array 0-3 gpus 1 vram 30G shared
         job whole gpus 1
         place 1.0 on a gpu 0 share 30G
         place 1.1 on a gpu 0 share 30G
         place 1.2 on a gpu 0 share 30G
         place 2.0 on a gpu 0
         place 1.2 on a gpu 0 share 20G
         end 1.0.1 ok
         end 1.1.1 ok
         place 2.0 on a gpu 0
         end 1.2.1 ok
         place 2.0 on a gpu 0
         place 1.3 on a gpu 0 share 1G",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            place 1.2 on a gpu 0 share 30G: NO, the room planned for task 1.2 on worker w1 is taken
            place 2.0 on a gpu 0: NO, the room planned for task 2.0 on worker w1 is taken
            1.2.1 placed
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            1.1.1 ended: SUCCESS
            task 1.1 is over: SUCCESS
            place 2.0 on a gpu 0: NO, the room planned for task 2.0 on worker w1 is taken
            1.2.1 ended: SUCCESS
            task 1.2 is over: SUCCESS
            2.0.1 placed
            place 1.3 on a gpu 0 share 1G: NO, the room planned for task 1.3 on worker w1 is taken
        "#]],
    );
}

#[test]
fn an_array_runs_as_many_tasks_as_it_may() {
    check(
        "worker a
         job sweep array 0-9%2
         place 1.0 on a
         place 1.1 on a
         place 1.2 on a
         end 1.0.1 ok
         place 1.2 on a
         show",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            place 1.2 on a: NO, job 1 already runs as many tasks as it may
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            1.2.1 placed
            job 1 sweep: SCHEDULED, queued 3-9, completed 0
            task 1.1: SCHEDULED as 1 on a
            task 1.2: SCHEDULED as 1 on a
            worker a w1 e1: 6/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn reports_of_other_attempts_and_lives_change_nothing() {
    check(
        "worker a
         worker b
         job one retry 1
         place 1.0 on a
         start 1.0.2 on a
         start 1.0.1 on b
         start 1.0.1 on a epoch 2
         end 1.0.1 on b ok
         end 1.0.1 exit 1
         end 1.0.1 on a ok
         start 1.0.1 on a
         place 1.0 on b
         end 1.0.1 on a ok
         start 1.0.2 on b
         end 1.0.2 ok
         end 1.0.2 on b ok",
        expect![[r#"
            1.0.1 placed
            start 1.0.2 on a: NO, attempt 1.0.2 is over or was replaced
            start 1.0.1 on b: NO, attempt 1.0.1 has no part on worker w2
            start 1.0.1 on a epoch 2: NO, worker w1 is in a newer life than this speaks of
            end 1.0.1 on b ok: NO, attempt 1.0.1 has no part on worker w2
            1.0.1 ended: EXIT 1
            task 1.0 waits again
            end 1.0.1 on a ok: NO, attempt 1.0.1 is over or was replaced
            start 1.0.1 on a: NO, attempt 1.0.1 is over or was replaced
            1.0.2 placed
            end 1.0.1 on a ok: NO, attempt 1.0.1 is over or was replaced
            1.0.2 started
            1.0.2 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            end 1.0.2 on b ok: NO, attempt 1.0.2 is over or was replaced
        "#]],
    );
}

#[test]
fn failures_are_tried_again_with_a_growing_pause_and_a_cap() {
    check(
        "worker a
         job flaky retry 2
         place 1.0 on a
         end 1.0.1 exit 3
         show
         place 1.0 on a
         end 1.0.2 signal 11
         show
         place 1.0 on a
         end 1.0.3 exit 4
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: EXIT 3
            task 1.0 waits again
            job 1 flaky: QUEUED
            task 1.0: QUEUED not before 12:00:00.500, 1 own failures, 0 others
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            1.0.2 placed
            1.0.2 ended: SIGNAL 11
            task 1.0 waits again
            job 1 flaky: QUEUED
            task 1.0: QUEUED not before 12:00:01, 2 own failures, 0 others
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            1.0.3 placed
            1.0.3 ended: EXIT 4
            task 1.0 is over: EXIT 4
            job 1 is over: FAILED
            job 1 flaky: FAILED, failed 0, first failure 0 EXIT 4
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn only_the_causes_named_are_tried_again() {
    check(
        "worker a cpus 16
         job exits array 0-7 retry 1 on failure
         job code array 0-7 retry 1 on 42
         job signals array 0-7 retry 1 on signal on oom on timeout on start
         place 1.0 on a
         end 1.0.1 exit 1
         place 1.1 on a
         end 1.1.1 signal 9
         place 2.0 on a
         end 2.0.1 exit 42
         place 2.1 on a
         end 2.1.1 exit 41
         place 3.0 on a
         end 3.0.1 signal 9
         place 3.1 on a
         end 3.1.1 OUT_OF_MEMORY_HOST
         place 3.2 on a
         end 3.2.1 OUT_OF_MEMORY_GPU
         place 3.3 on a
         end 3.3.1 TIMEOUT
         place 3.4 on a
         end 3.4.1 START_FAILED
         place 3.5 on a
         end 3.5.1 exit 1",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: EXIT 1
            task 1.0 waits again
            1.1.1 placed
            1.1.1 ended: SIGNAL 9
            task 1.1 is over: SIGNAL 9
            2.0.1 placed
            2.0.1 ended: EXIT 42
            task 2.0 waits again
            2.1.1 placed
            2.1.1 ended: EXIT 41
            task 2.1 is over: EXIT 41
            3.0.1 placed
            3.0.1 ended: SIGNAL 9
            task 3.0 waits again
            3.1.1 placed
            3.1.1 ended: OUT_OF_MEMORY_HOST
            task 3.1 waits again
            3.2.1 placed
            3.2.1 ended: OUT_OF_MEMORY_GPU
            task 3.2 waits again
            3.3.1 placed
            3.3.1 ended: TIMEOUT
            task 3.3 waits again
            3.4.1 placed
            3.4.1 ended: START_FAILED
            task 3.4 waits again
            3.5.1 placed
            3.5.1 ended: EXIT 1
            task 3.5 is over: EXIT 1
        "#]],
    );
}

#[test]
fn the_clusters_faults_are_not_the_jobs() {
    check(
        "worker a
         worker b
         job one
         place 1.0 on a
         end 1.0.1 GPU_FAULT
         show
         place 1.0 on b
         end 1.0.2 SUPERVISOR_LOST
         show
         place 1.0 on b
         end 1.0.3 PREEMPTED
         show
         place 1.0 on b
         end 1.0.4 exit 1
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: GPU_FAULT
            task 1.0 waits again
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids a
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            worker b w2 e1: 8/8 CPUs, 16G/16G memory
            1.0.2 placed
            1.0.2 ended: SUPERVISOR_LOST
            task 1.0 waits again
            job 1 one: RECOVERING
            task 1.0: RECOVERING not before 12:00:10, 0 own failures, 2 others, avoids b
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            worker b w2 e1: 8/8 CPUs, 16G/16G memory
            1.0.3 placed
            1.0.3 ended: PREEMPTED
            task 1.0 waits again
            job 1 one: RECOVERING
            task 1.0: RECOVERING not before 12:00:20, 0 own failures, 3 others
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            worker b w2 e1: 8/8 CPUs, 16G/16G memory
            1.0.4 placed
            1.0.4 ended: EXIT 1
            task 1.0 is over: EXIT 1
            job 1 is over: FAILED
            job 1 one: FAILED, failed 0, first failure 0 EXIT 1
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
            worker b w2 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn the_clusters_faults_end_a_task_too_when_they_never_stop() {
    let mut script = String::from("worker a\njob one\n");
    for number in 1..=16 {
        script += &format!("place 1.0 on a\nend 1.0.{number} NODE_LOST\n");
    }
    script += "show\nplace 1.0 on a\nend 1.0.17 NODE_LOST\nshow";
    let mut world = crate::state::testing::World::default();
    let printed: Vec<String> = script.lines().map(|line| world.run(line)).collect();
    expect![[r#"
        job 1 one: RECOVERING
        task 1.0: RECOVERING not before 12:10:00, 0 own failures, 16 others, avoids a
        worker a w1 e1: 8/8 CPUs, 16G/16G memory
        1.0.17 placed
        1.0.17 ended: NODE_LOST
        task 1.0 is over: NODE_LOST
        job 1 is over: FAILED
        job 1 one: FAILED, failed 0, first failure 0 NODE_LOST
        worker a w1 e1: 8/8 CPUs, 16G/16G memory
    "#]]
    .assert_eq(&printed[34..].concat());
}
