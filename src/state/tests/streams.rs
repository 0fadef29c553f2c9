//! Short tasks that are handed out ahead of their turn.

use expect_test::expect;

use crate::state::testing::check;

#[test]
fn a_waiting_task_gets_its_turn_when_one_before_it_ends() {
    check(
        "worker a cpus 2
         job sweep array 0-9
         place 1.0 on a
         place 1.1 on a
         place 1.3 on a prefetch
         +1s
         place 1.2 on a prefetch
         show
         start 1.3.1
         end 1.1.1 ok
         start 1.3.1
         end 1.3.1 ok
         show",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            1.3.1 placed
            1.2.1 placed
            job 1 sweep: SCHEDULED, queued 4-9
            task 1.0: SCHEDULED as 1 on a
            task 1.1: SCHEDULED as 1 on a
            task 1.2: SCHEDULED as 1 on a in its turn
            task 1.3: SCHEDULED as 1 on a in its turn
            worker a w1 e1: 0/2 CPUs, 16G/16G memory
            start 1.3.1: NO, the room planned for task 1.3 on worker w1 is taken
            1.1.1 ended: SUCCESS
            task 1.1 is over: SUCCESS
            1.3.1 has its turn
            1.3.1 started
            1.3.1 ended: SUCCESS
            task 1.3 is over: SUCCESS
            1.2.1 has its turn
            job 1 sweep: SCHEDULED, queued 4-9, completed 1,3
            task 1.0: SCHEDULED as 1 on a
            task 1.2: SCHEDULED as 1 on a
            worker a w1 e1: 0/2 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn it_waits_only_where_its_turn_surely_comes() {
    check(
        "worker a cpus 2 mem 8G gpus 1xT4:16G
         worker b cpus 2
         job sweep array 0-9
         job other array 0-9
         job gpu array 0-9 gpus 1
         job big cpus 2
         place 1.0 on a
         place 1.1 on b
         place 4.0 on b prefetch
         place 1.2 on a prefetch
         show
         place 2.0 on a prefetch
         place 1.3 on a cpus 2 prefetch
         place 1.3 on a mem 1G prefetch
         place 1.3 on a prefetch
         place 2.1 on b
         place 2.2 on a prefetch
         place 2.2 on b prefetch
         place 1.4 on b prefetch
         place 1.4 on a on b prefetch
         end 1.0.1 ok
         end 1.2.1 ok
         place 3.0 on a gpu 0
         place 3.1 on a gpu 0 prefetch
         show",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            place 4.0 on b prefetch: NO, the room planned for task 4.0 on worker w2 is taken
            1.2.1 placed
            job 1 sweep: SCHEDULED, queued 3-9
            job 2 other: QUEUED, queued 0-9
            job 3 gpu: QUEUED, queued 0-9
            job 4 big: QUEUED, queued 0
            task 1.0: SCHEDULED as 1 on a
            task 1.1: SCHEDULED as 1 on b
            task 1.2: SCHEDULED as 1 on a
            worker a w1 e1: 0/2 CPUs, 8G/8G memory, gpu 0 16G/16G
            worker b w2 e1: 1/2 CPUs, 16G/16G memory
            place 2.0 on a prefetch: NO, the room planned for task 2.0 on worker w1 is taken
            place 1.3 on a cpus 2 prefetch: NO, the room planned for task 1.3 on worker w1 is taken
            place 1.3 on a mem 1G prefetch: NO, the room planned for task 1.3 on worker w1 is taken
            1.3.1 placed
            2.1.1 placed
            place 2.2 on a prefetch: NO, the room planned for task 2.2 on worker w1 is taken
            2.2.1 placed
            place 1.4 on b prefetch: NO, the room planned for task 1.4 on worker w2 is taken
            place 1.4 on a on b prefetch: NO, the room planned for task 1.4 on worker w1 is taken
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            1.3.1 has its turn
            1.2.1 ended: SUCCESS
            task 1.2 is over: SUCCESS
            3.0.1 placed
            place 3.1 on a gpu 0 prefetch: NO, the room planned for task 3.1 on worker w1 is taken
            job 1 sweep: SCHEDULED, queued 4-9, completed 0,2
            job 2 other: SCHEDULED, queued 0,3-9
            job 3 gpu: SCHEDULED, queued 1-9
            job 4 big: QUEUED, queued 0
            task 1.1: SCHEDULED as 1 on b
            task 1.3: SCHEDULED as 1 on a
            task 2.1: SCHEDULED as 1 on b
            task 2.2: SCHEDULED as 1 on b in its turn
            task 3.0: SCHEDULED as 1 on a gpu 0
            worker a w1 e1: 0/2 CPUs, 8G/8G memory, gpu 0 0B/16G
            worker b w2 e1: 0/2 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_room_that_came_free_is_taken_at_once() {
    check(
        "worker a cpus 1
         job sweep array 0-9
         place 1.0 on a
         end 1.0.1 ok
         place 1.1 on a prefetch
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            1.1.1 placed
            job 1 sweep: SCHEDULED, queued 2-9, completed 0
            task 1.1: SCHEDULED as 1 on a
            worker a w1 e1: 0/1 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_task_that_waits_in_vain_is_recalled() {
    check(
        "worker a cpus 1
         job sweep array 0-9
         place 1.0 on a
         place 1.1 on a prefetch
         place 1.2 on a prefetch
         recall 1.0.1
         recall 1.1.2
         recall 1.1.1
         recall 1.1.1
         show
         end 1.1.1 PREEMPTED
         recall 1.2.1
         end 1.0.1 ok
         end 1.2.1 ok
         show",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            1.2.1 placed
            recall 1.0.1: NO, attempt 1.0.1 is over or was replaced
            recall 1.1.2: NO, attempt 1.1.2 is over or was replaced
            1.1.1 must stop
            recall 1.1.1: nothing
            job 1 sweep: SCHEDULED, queued 3-9
            task 1.0: SCHEDULED as 1 on a
            task 1.1: SCHEDULED as 1 on a in its turn, stopping (Preempted)
            task 1.2: SCHEDULED as 1 on a in its turn
            worker a w1 e1: 0/1 CPUs, 16G/16G memory
            1.1.1 ended: PREEMPTED
            task 1.1 waits again
            1.2.1 must stop
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            1.2.1 has its turn
            1.2.1 ended: SUCCESS
            task 1.2 is over: SUCCESS
            job 1 sweep: RECOVERING, queued 3-9, completed 0,2
            task 1.1: RECOVERING
            worker a w1 e1: 1/1 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_waiting_task_is_lost_like_any_other() {
    check(
        "worker a cpus 1
         job sweep array 0-9
         place 1.0 on a
         place 1.1 on a prefetch
         place 1.2 on a prefetch
         cancel 1.2
         silence a
         giveup 1.0.1
         show
         back a
         start 1.1.1
         worker a epoch 2 cpus 1
         show",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            1.2.1 placed
            1.2.1 must stop
            worker a is silent
            1.0.1 ended: NODE_LOST (its worker was out of touch for too long)
            task 1.0 waits again
            1.1.1 has its turn
            job 1 sweep: RECOVERING, queued 3-9
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids a
            task 1.1: RECOVERING as 1 on a
            task 1.2: RECOVERING as 1 on a in its turn, stopping (User)
            worker a w1 e1: 0/1 CPUs, 16G/16G memory silent since 12:00:00
            worker a is back
            1.1.1 started
            job 1 sweep: RECOVERING, queued 3-9, cancelled 2
            task 1.0: RECOVERING, 0 own failures, 1 others, avoids a
            task 1.1: RECOVERING, 0 own failures, 1 others, avoids a
            worker a w1 e2: 1/1 CPUs, 16G/16G memory
        "#]],
    );
}

#[test]
fn a_line_is_no_longer_than_256() {
    use crate::state::testing::World;
    let mut world = World::default();
    world.run("worker a cpus 1");
    world.run("job sweep array 0-999");
    world.run("place 1.0 on a");
    for index in 1..=256 {
        world.run(&format!("place 1.{index} on a prefetch"));
    }
    let printed = world.run("place 1.257 on a prefetch");
    expect![[r#"
        place 1.257 on a prefetch: NO, the room planned for task 1.257 on worker w1 is taken
    "#]]
    .assert_eq(&printed);
}

#[test]
fn a_worker_that_grew_takes_those_that_wait() {
    check(
        "worker a cpus 1
         job sweep array 0-9
         place 1.0 on a
         place 1.1 on a prefetch
         place 1.2 on a prefetch
         worker a cpus 2
         show",
        expect![[r#"
            1.0.1 placed
            1.1.1 placed
            1.2.1 placed
            job 1 sweep: SCHEDULED, queued 3-9
            task 1.0: SCHEDULED as 1 on a
            task 1.1: SCHEDULED as 1 on a
            task 1.2: SCHEDULED as 1 on a in its turn
            worker a w1 e1: 0/2 CPUs, 16G/16G memory
        "#]],
    );
}
