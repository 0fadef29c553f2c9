//! Whoever waits is told why, and what would end the wait.

use expect_test::expect;

use super::check;

#[test]
fn what_keeps_a_job_back_whatever_room_there_is() {
    check(
        "explain 1
         job one held
         job two after ok 1 after any 1
         job three begin 14:30:00
         +5m
         explain 1
         explain 2
         explain 3
         explain 3.0
         explain 3.1
         hold 3
         explain 3",
        expect![[r#"
            NO, no job 1; `drigs jobs -a` lists them
            1: PENDING HELD
              held by ann 5m ago; `drigs release 1` lets it go
            2: PENDING DEPENDENCY
              waits for job 1 (afterany), which is PENDING
            3: PENDING BEGIN_TIME, not before 14:30:00
              its begin time is in 2h25m
            3.0: PENDING BEGIN_TIME, not before 14:30:00
              its begin time is in 2h25m
            NO, job 3 has no task 1
            job 3 held
            3: PENDING HELD
              held by ann 0s ago; `drigs release 3` lets it go
        "#]],
    );
}

#[test]
fn no_worker_has_room() {
    check(
        "worker a cpus 4 mem 8G gpus 2xA100:80G
         worker b cpus 4 mem 8G gpus 2xA100:80G
         worker c cpus 4 mem 8G gpus 2xT4:16G
         worker d cpus 4 mem 8G
         worker e gpus 4xA100:80G label rack=1
         worker f gpus 4xA100:80G
         drain e new disk
         silence f
         gpus c sick 0
         job one gpus 1 vram 40G limit 1h
         job two gpus 1 vram 40G
         follow
         start 1.0.1
         +10m
         job three gpus 2 vram 10G
         job four gpus 2 vram 10G limit 30m
         job five cpus 3 mem 9G prio 3
         explain 3
         explain 4
         explain 5
         place 4.0 on b gpu 0,1
         explain 3",
        expect![[r#"
            worker e drains
            worker f is silent
            GPUs of c updated
            1.0 -> a gpu 0
            2.0 -> a gpu 1
            1.0.1 started
            3: QUEUED STARTING, 1 ahead
              it has its turn: the leader places it in its next round
            4: QUEUED PRIORITY, 2 ahead
              there is room, but jobs before it in line take it
              1 worker (a): 0 GPUs free of 2 asked
              1 worker (c): 1 GPU free of 2 asked (1 sick)
              1 worker (e): drained (new disk)
              1 worker (f): silent for 10m
              1 worker (d): 0 GPUs of 2 asked (10G)
              1 worker (b): has room
            5: QUEUED NO_WORKERS
              1 worker (e): drained (new disk)
              1 worker (f): silent for 10m
              4 workers (a, b, c, d): 8G memory of 9G asked
            4.0.1 placed
            3: QUEUED RESOURCES, 1 ahead, not before 12:40:00
              2 workers (a, b): 0 GPUs free of 2 asked
              1 worker (c): 1 GPU free of 2 asked (1 sick)
              1 worker (e): drained (new disk)
              1 worker (f): silent for 10m
              1 worker (d): 0 GPUs of 2 asked (10G)
              4.0.1 holds 2 GPUs, 1 CPU on b; ends in 30m at the latest
              1.0.1 holds 1 GPU, 1 CPU on a; ends in 50m at the latest
              2.0.1 holds 1 GPU, 1 CPU on a; no time limit
        "#]],
    );
}

#[test]
fn somebody_is_served_before() {
    check(
        "worker a cpus 8
         job running cpus 4 limit 1h
         follow
         start 1.0.1
         job big cpus 8 prio 5
         job small cpus 4
         explain 3
         explain 2
         cancel 2
         job first prio 9 cpus 4
         explain 3
         explain 4",
        expect![[r#"
            1.0 -> a
            1.0.1 started
            3: QUEUED RESERVED, 1 ahead
              room on a is kept for job 2, which is before it in line and starts in 1h at the latest
              1 worker (a): has room
            2: QUEUED RESOURCES, not before 13:00:00
              1 worker (a): 4 CPUs free of 8 asked
              1.0.1 holds 4 CPUs on a; ends in 1h at the latest
            job 2 is over: CANCELLED
            3: QUEUED PRIORITY, 1 ahead
              there is room, but jobs before it in line take it
              1 worker (a): has room
            4: QUEUED STARTING
              it has its turn: the leader places it in its next round
        "#]],
    );
}

#[test]
fn no_worker_could_ever_run_it() {
    check(
        "job one
         explain 1
         infeasible 1
         worker a cpus 4 mem 8G gpus 2xT4:16G
         worker b cpus 16 mem 4G docker
         job cpus cpus 64
         job gpus gpus 3 vram 8G
         job vram gpus 1 vram 40G model t4
         job both cpus 8 mem 8G
         job label label rack=1
         job nodes nodes 3
         job gpunodes nodes 2 gpus 1
         job fine docker
         drain b x
         reasons
         explain 2
         infeasible 3
         infeasible 4
         infeasible 5
         infeasible 6
         infeasible 7
         infeasible 8
         infeasible 9
         explain 9
         drain a y
         silence a
         explain 1",
        expect![[r#"
            1: QUEUED NO_WORKERS
              no worker has joined the cluster
            feasible
            worker b drains
            1 one: STARTING
            2 cpus: INFEASIBLE
            3 gpus: INFEASIBLE
            4 vram: INFEASIBLE
            5 both: INFEASIBLE
            6 label: INFEASIBLE
            7 nodes: INFEASIBLE
            8 gpunodes: INFEASIBLE
            9 fine: NO_WORKERS
            2: QUEUED INFEASIBLE, 1 ahead
              no worker could ever run it: asks for 64 CPUs, the largest worker has 16
            no worker could ever run it: asks for 3 GPUs (8G), the largest worker has 2 of them
            no worker could ever run it: asks for 1 GPU (t4, 40G), the largest worker has 0 of them
            no worker could ever run it: each thing is somewhere, but no one worker has all of it
            no worker could ever run it: none that would do carries rack=1
            it asks for 3 nodes, and only 2 workers could ever run one of them
            it asks for 2 nodes, and only 1 worker could ever run one of them
            feasible
            9: QUEUED NO_WORKERS, 8 ahead
              1 worker (b): drained (x)
              1 worker (a): no docker jobs
            worker a drains
            worker a is silent
            1: QUEUED NO_WORKERS
              1 worker (b): drained (x)
              1 worker (a): drained (y)
        "#]],
    );
    check(
        "worker a
         job docker docker
         infeasible 1
         job empty label rack=1
         explain 2
         mute a
         job here
         explain 3",
        expect![[r#"
            no worker could ever run it: none runs docker jobs
            2: QUEUED INFEASIBLE, 1 ahead
              no worker could ever run it: none that would do carries rack=1
            3: QUEUED NO_WORKERS, 2 ahead
              1 worker (a): not heard from yet
        "#]],
    );
}

#[test]
fn limits_of_queues_and_arrays() {
    check(
        "worker a cpus 32 gpus 8xA100:80G
         queue night max-gpus 3
         job one queue night gpus 2
         job two queue night gpus 2
         job sweep array 0-9%2
         follow
         explain 2
         explain 3",
        expect![[r#"
            1.0 -> a gpu 0 gpu 1
            3.0 -> a
            3.1 -> a
            1 wait: QUOTA
            1 wait: MAX_RUNNING
            2: QUEUED QUOTA
              queue `night` holds 2 of the 3 GPUs it may hold together; this needs 2
            3: SCHEDULED MAX_RUNNING, 1 ahead
              10 tasks: 2 about to start, 8 queued
              its array runs 2 tasks, as many as it may at one time
              3.0.1 has had its place on a for 0s and starts in a moment
              3.1.1 has had its place on a for 0s and starts in a moment
        "#]],
    );
}

#[test]
fn second_tries_and_lost_attempts() {
    check(
        "worker a cpus 2
         worker b ephemeral cpus 2
         job flaky retry 5
         job sweep array 0-3 lost 10m
         job keep lost keep
         place 1.0 on a
         end 1.0.1 exit 3
         explain 1
         explain 1.0
         place 2.0 on a
         start 2.0.1
         place 2.1 on b
         start 2.1.1
         place 3.0 on b
         start 3.0.1
         silence b
         +5m
         explain 2
         explain 2.1
         explain 2.2
         explain 3
         reasons
         +6m
         giveup 2.1.1
         explain 2
         end 2.0.1 NODE_LOST
         explain 2",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: EXIT 3
            task 1.0 waits again
            1: QUEUED BACKOFF, not before 12:00:00.500
              1.0 failed (EXIT) and is tried again in 500ms
            1.0: QUEUED BACKOFF, not before 12:00:00.500
              1.0 failed (EXIT) and is tried again in 500ms
            2.0.1 placed
            2.0.1 started
            2.1.1 placed
            2.1.1 started
            3.0.1 placed
            3.0.1 started
            worker b is silent
            2: RUNNING PRIORITY, 1 ahead
              4 tasks: 1 running, 1 recovering, 2 queued
              there is room, but jobs before it in line take it
              1 worker (b): silent for 5m
              1 worker (a): has room
              2.0.1 runs on a, started 5m ago
              2.1.1 may still run on worker b, which is silent for 5m: it goes on when the worker returns; it is given up in 5m20s (lost_after 10m), or at once by `drigs worker forget b`
            2.1: RECOVERING RECOVERING
              2.1.1 may still run on worker b, which is silent for 5m: it goes on when the worker returns; it is given up in 5m20s (lost_after 10m), or at once by `drigs worker forget b`
            2.2: QUEUED PRIORITY, 1 ahead
              there is room, but jobs before it in line take it
              1 worker (b): silent for 5m
              1 worker (a): has room
            3: RECOVERING RECOVERING
              3.0.1 may still run on worker b, which is silent for 5m: it goes on when the worker returns; it is never given up by itself (lost_after keep), but at once by `drigs worker forget b`
            1 flaky: STARTING
            2 sweep: PRIORITY
            3 keep: RECOVERING
            2.1.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 2.1 waits again
            2: RUNNING PRIORITY, 1 ahead
              4 tasks: 1 running, 1 recovering, 2 queued
              there is room, but jobs before it in line take it
              1 worker (b): silent for 11m
              1 worker (a): has room
              1 task ended through no fault of the job and will run again
              2.0.1 runs on a, started 11m ago
            2.0.1 ended: NODE_LOST
            task 2.0 waits again
            2: RECOVERING PRIORITY, 1 ahead
              4 tasks: 2 recovering, 2 queued
              there is room, but jobs before it in line take it
              1 worker (b): silent for 11m
              1 worker (a): has room
              2 tasks ended through no fault of the job and will run again
        "#]],
    );
}

#[test]
fn what_runs_what_starts_and_what_is_over() {
    check(
        "worker a cpus 2
         worker b cpus 2
         job gang nodes 2 cpus 1 limit 1h
         job sweep array 0-9
         place 1.0 on a on b
         start 1.0.1 on a
         place 2.0 on a
         place 2.1 on b
         place 2.2 on a prefetch
         +1m
         explain 1
         explain 2
         explain 2.2
         cancel 1
         explain 1
         end 1.0.1 on a USER
         end 1.0.1 on b USER
         explain 1
         explain 1.0
         end 2.0.1 ok
         end 2.1.1 exit 3
         explain 2.0
         explain 2.1
         reasons",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            2.0.1 placed
            2.1.1 placed
            2.2.1 placed
            1: RUNNING
              1.0.1 runs on a, b, started 1m ago, ends by its time limit in 59m
            2: SCHEDULED RESOURCES, not before 13:00:00
              10 tasks: 3 about to start, 7 queued
              2 workers (a, b): 0 CPUs free of 1 asked
              1.0.1 holds 1 CPU on a; ends in 59m at the latest
              1.0.1 holds 1 CPU on b; ends in 59m at the latest
              2.0.1 holds 1 CPU on a; no time limit
              2.1.1 holds 1 CPU on b; no time limit
              2.0.1 has had its place on a for 1m and starts in a moment
              2.1.1 has had its place on b for 1m and starts in a moment
              2.2.1 waits on a for one before it to end
            2.2: SCHEDULED STARTING
              2.2.1 waits on a for one before it to end
            1.0.1 must stop
            1: RUNNING
              1.0.1 runs on a, b, started 1m ago, ends by its time limit in 59m; it was cancelled and is being stopped
            2.2.1 has its turn
            1.0.1 ended: USER
            task 1.0 is over: USER
            job 1 is over: CANCELLED
            1: CANCELLED USER
              it is over: CANCELLED; `drigs inspect` shows how it ended
            1.0: CANCELLED USER
              it is over: CANCELLED; `drigs inspect` shows how it ended
            2.0.1 ended: SUCCESS
            task 2.0 is over: SUCCESS
            2.1.1 ended: EXIT 3
            task 2.1 is over: EXIT 3
            2.0: COMPLETED SUCCESS
              it is over: COMPLETED; `drigs inspect` shows how it ended
            2.1: FAILED EXIT
              it is over: FAILED; `drigs inspect` shows how it ended
            1 gang: -
            2 sweep: PRIORITY
        "#]],
    );
}
