//! Machines that come, fall silent, return and go.

use expect_test::expect;

use crate::state::testing::check;

#[test]
fn a_silent_worker_keeps_its_attempts_until_they_are_given_up() {
    check(
        "worker a
         job one
         job two
         place 1.0 on a
         place 2.0 on a
         giveup 1.0.1
         silence a epoch 2
         silence a
         silence a
         show
         back a
         back a
         giveup 1.0.1
         silence a
         +1h
         giveup 1.0.2
         giveup 1.0.1
         giveup 1.0.1
         back a
         end 1.0.1 on a ok
         end 2.0.1 on a ok
         show",
        expect![[r#"
            1.0.1 placed
            2.0.1 placed
            giveup 1.0.1: NO, worker w1 is in touch: nothing of it is given up
            silence a epoch 2: NO, worker w1 is in a newer life than this speaks of
            worker a is silent
            silence a: nothing
            job 1 one: RECOVERING
            job 2 two: RECOVERING
            task 1.0: RECOVERING as 1 on a
            task 2.0: RECOVERING as 1 on a
            worker a w1 e1: 6/8 CPUs, 16G/16G memory silent since 12:00:00
            worker a is back
            back a: nothing
            giveup 1.0.1: NO, worker w1 is in touch: nothing of it is given up
            worker a is silent
            giveup 1.0.2: NO, attempt 1.0.2 is over or was replaced
            1.0.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 1.0 waits again
            giveup 1.0.1: NO, attempt 1.0.1 is over or was replaced
            worker a is back
            end 1.0.1 on a ok: NO, attempt 1.0.1 is over or was replaced
            2.0.1 ended: SUCCESS
            task 2.0 is over: SUCCESS
            job 2 is over: COMPLETED
            job 1 one: RECOVERING
            job 2 two: COMPLETED, completed 0
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids a
            worker a w1 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_new_life_ends_what_ran_in_the_old_one() {
    check(
        "worker a epoch 3
         job one
         place 1.0 on a
         start 1.0.1
         worker a epoch 3 cpus 16
         show
         worker a epoch 2
         worker a epoch 4
         show
         end 1.0.1 on a epoch 3 ok
         silence a epoch 3
         back a epoch 3
         gpus a 1xT4:16G epoch 3
         drain a
         worker a epoch 5
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            job 1 one: RUNNING
            task 1.0: RUNNING as 1 on a running
            worker a w1 e3: 15/16 CPUs, 16G/16G memory
            worker a epoch 2: NO, worker w1 is in a newer life than this speaks of
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids a
            worker a w1 e4: 8/8 CPUs, 16G/16G memory
            end 1.0.1 on a epoch 3 ok: NO, attempt 1.0.1 is over or was replaced
            silence a epoch 3: NO, worker w1 is in a newer life than this speaks of
            back a epoch 3: NO, worker w1 is in a newer life than this speaks of
            gpus a 1xT4:16G epoch 3: NO, worker w1 is in a newer life than this speaks of
            worker a drains
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids a
            worker a w1 e5: 8/8 CPUs, 16G/16G memory draining ()
        "#]],
    );
}

#[test]
fn a_name_belongs_to_who_may_still_return() {
    check(
        "worker a uuid 1
         worker a uuid 2
         job one
         place 1.0 on a
         silence a
         worker a uuid 2
         giveup 1.0.1
         worker a uuid 2
         worker b uuid 2
         show",
        expect![[r#"
            worker a uuid 2: NO, another worker is called `a`; choose another --name, or `drigs worker forget a` if it is gone
            1.0.1 placed
            worker a is silent
            worker a uuid 2: NO, another worker is called `a`; choose another --name, or `drigs worker forget a` if it is gone
            1.0.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 1.0 waits again
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids w1
            worker b w2 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn one_uuid_is_one_worker() {
    check(
        "worker a uuid 1 epoch 2
         worker b uuid 1 epoch 1
         worker b uuid 1 epoch 2
         show",
        expect![[r#"
            worker b uuid 1 epoch 1: NO, worker w1 is in a newer life than this speaks of
            worker b w1 e2: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_gpu_has_one_machine() {
    check(
        "worker a gpus 2xT4:16G
         worker b gpus 1xT4:16G of a
         worker b gpus 1xT4:16G gpus 1xT4:16G
         worker b
         gpus b 1xT4:16G of a
         silence a
         gpus b 1xT4:16G of a
         back a
         worker a gpus 2xT4:16G
         worker a gpus 1xA100:80G
         show",
        expect![[r#"
            worker b gpus 1xT4:16G of a: NO, GPU GPU-a-T4-0 is claimed by two workers
            worker b gpus 1xT4:16G gpus 1xT4:16G: NO, GPU GPU-b-T4-0 is claimed by two workers
            gpus b 1xT4:16G of a: NO, GPU GPU-a-T4-0 is claimed by two workers
            worker a is silent
            GPUs of b updated
            back a: NO, GPU GPU-a-T4-0 is claimed by two workers
            worker a gpus 2xT4:16G: NO, GPU GPU-a-T4-0 is claimed by two workers
            worker a w1 e1: 8/8 CPUs, 16G/16G memory, gpu 0 80G/80G
            worker b w2 e1: 8/8 CPUs, 16G/16G memory, gpu 0 16G/16G
        "#]],
    );
    check(
        "worker a gpus 1xT4:16G
         job one gpus 1
         place 1.0 on a gpu 0
         silence a
         worker b gpus 1xT4:16G of a
         giveup 1.0.1
         worker b gpus 1xT4:16G of a
         back a
         silence b
         back a
         back b",
        expect![[r#"
            1.0.1 placed
            worker a is silent
            worker b gpus 1xT4:16G of a: NO, GPU GPU-a-T4-0 is claimed by two workers
            1.0.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 1.0 waits again
            back a: NO, GPU GPU-a-T4-0 is claimed by two workers
            worker b is silent
            worker a is back
            back b: NO, GPU GPU-a-T4-0 is claimed by two workers
        "#]],
    );
}

#[test]
fn a_worker_may_return_with_less_than_it_gave() {
    check(
        "worker a cpus 8 mem 16G gpus 2xT4:16G
         job one cpus 6 mem 10G gpus 1
         job two
         place 1.0 on a gpu 1
         worker a cpus 4 mem 8G gpus 1xT4:16G
         show
         place 2.0 on a
         end 1.0.1 ok
         place 2.0 on a
         show",
        expect![[r#"
            1.0.1 placed
            job 1 one: SCHEDULED
            job 2 two: QUEUED, queued 0
            task 1.0: SCHEDULED as 1 on a gpu GPU-a-T4-1
            worker a w1 e1: 0/4 CPUs, 0B/8G memory, gpu 0 16G/16G
            place 2.0 on a: NO, the room planned for task 2.0 on worker w1 is taken
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 is over: COMPLETED
            2.0.1 placed
            job 1 one: COMPLETED, completed 0
            job 2 two: SCHEDULED
            task 2.0: SCHEDULED as 1 on a
            worker a w1 e1: 3/4 CPUs, 8G/8G memory, gpu 0 16G/16G
        "#]],
    );
}

#[test]
fn only_a_worker_that_is_gone_is_forgotten() {
    check(
        "worker a
         job one
         place 1.0 on a
         forget a
         silence a
         forget a
         forget w1
         drain w1 x
         resume w1
         silence w1
         back w1
         gpus w1 1xT4:16G
         show
         worker a
         show",
        expect![[r#"
            1.0.1 placed
            forget a: NO, worker w1 is connected; only one that is gone can be forgotten
            worker a is silent
            1.0.1 ended: NODE_LOST (an operator forgot its worker)
            task 1.0 waits again
            worker w1 forgotten
            forget w1: NO, no worker w1; `drigs workers` lists them
            drain w1 x: NO, no worker w1; `drigs workers` lists them
            resume w1: NO, no worker w1; `drigs workers` lists them
            silence w1: NO, no worker w1; `drigs workers` lists them
            back w1: NO, no worker w1; `drigs workers` lists them
            gpus w1 1xT4:16G: NO, no worker w1; `drigs workers` lists them
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids w1
            job 1 one: RECOVERING
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids w1
            worker a w2 e1: 8/8 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_drained_worker_finishes_what_it_has() {
    check(
        "worker a gpus 1xT4:16G
         job one array 0-1
         place 1.0 on a
         drain a new disk
         place 1.1 on a
         start 1.0.1
         gpus a sick 0
         show
         resume a
         place 1.1 on a
         end 1.0.1 ok
         show",
        expect![[r#"
            1.0.1 placed
            worker a drains
            place 1.1 on a: NO, worker w1 takes no new work
            1.0.1 started
            GPUs of a updated
            job 1 one: RUNNING, queued 1
            task 1.0: RUNNING as 1 on a running
            worker a w1 e1: 7/8 CPUs, 16G/16G memory, gpu 0 sick (Xid 79) draining (new disk)
            worker a resumed
            1.1.1 placed
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            job 1 one: SCHEDULED, completed 0
            task 1.1: SCHEDULED as 1 on a
            worker a w1 e1: 7/8 CPUs, 16G/16G memory, gpu 0 sick (Xid 79)
        "#]],
    );
}
