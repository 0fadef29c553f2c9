//! Short tasks are handed out ahead, long ones never.

use expect_test::expect;

use super::{Stage, check};

fn stream(ended: u32, milliseconds: u64) -> Stage {
    stream_of(100_000, ended, milliseconds)
}

/// An array on a worker with two CPUs of which `ended` tasks have ended within `milliseconds`.
fn stream_of(tasks: u32, ended: u32, milliseconds: u64) -> Stage {
    let mut stage = Stage::default();
    stage.run("worker a cpus 2");
    stage.run(&format!("job sweep array 0-{}", tasks - 1));
    for index in 0..2 {
        stage.run(&format!("place 1.{index} on a"));
        stage.run(&format!("start 1.{index}.1"));
    }
    stage.run(&format!("+{milliseconds}ms"));
    for index in 0..ended {
        stage.run(&format!("end 1.{index}.1 ok"));
        stage.run(&format!("place 1.{} on a", index + 2));
        stage.run(&format!("start 1.{}.1", index + 2));
    }
    stage
}

fn prefetched(stage: &Stage) -> usize {
    stage.plan(1000).placements.iter().filter(|it| it.prefetch).count()
}

#[test]
fn two_hundred_milliseconds_of_work_wait_on_each_worker() {
    let depth = |ended, milliseconds| prefetched(&stream(ended, milliseconds));
    let cases = [
        (0, 10),
        (7, 70),
        (8, 8),
        (100, 100),
        (100, 1000),
        (100, 5000),
        (100, 9900),
        (100, 11_000),
    ];
    let shown: String = cases
        .iter()
        .map(|(ended, ms)| format!("{ended} ended in {ms} ms: {}\n", depth(*ended, *ms)))
        .collect();
    expect![[r#"
        0 ended in 10 ms: 0
        7 ended in 70 ms: 0
        8 ended in 8 ms: 128
        100 ended in 100 ms: 128
        100 ended in 1000 ms: 20
        100 ended in 5000 ms: 4
        100 ended in 9900 ms: 2
        100 ended in 11000 ms: 0
    "#]]
    .assert_eq(&shown);
}

#[test]
fn what_waits_already_is_counted() {
    let mut stage = stream(100, 1000);
    stage.follow();
    assert_eq!(stage.run("plan"), "1 wait: RESOURCES\n");
    stage.run("end 1.100.1 ok");
    expect![[r#"
        1.122 -> a in its turn
        1 wait: RESOURCES
        a kept for 1 until some time
    "#]]
    .assert_eq(&stage.run("plan"));
}

#[test]
fn a_task_that_turns_out_long_gets_no_others_behind_it() {
    let mut stage = stream(100, 1000);
    stage.run("+3s");
    assert_eq!(prefetched(&stage), 0);
}

#[test]
fn room_elsewhere_comes_first() {
    let mut stage = stream(100, 1000);
    stage.run("worker b cpus 3");
    let plan = stage.plan(1000);
    let shown: Vec<String> =
        plan.placements.iter().take(5).map(|it| stage.show_placement(it)).collect();
    expect![[r#"
        1.102 -> b
        1.103 -> b
        1.104 -> b
        1.105 -> a in its turn
        1.106 -> a in its turn"#]]
    .assert_eq(&shown.join("\n"));
    let mut stage = stream(100, 1000);
    stage.run("worker b cpus 3");
    assert_eq!(stage.plan(2).placements.iter().filter(|it| it.prefetch).count(), 0);
}

#[test]
fn nothing_is_handed_out_where_somebody_else_waits() {
    let mut stage = stream(100, 1000);
    stage.run("job lesser cpus 2");
    assert!(prefetched(&stage) > 0);
    stage.run("job bigger cpus 2 prio 9");
    assert_eq!(prefetched(&stage), 0);
    stage.run("cancel 3");
    stage.run("job same prio 9");
    assert_eq!(prefetched(&stage), 0);
    stage.run("cancel 4");
    stage.run("job gpu prio 9 gpus 1");
    assert!(prefetched(&stage) > 0, "it does not wait for this worker");
}

#[test]
fn the_end_of_an_array_is_left_for_whoever_is_free_first() {
    let left = |queued: u32| {
        let stage = stream_of(102 + queued, 100, 1000);
        format!("{queued} left: {} handed out ahead\n", prefetched(&stage))
    };
    expect![[r#"
        30 left: 20 handed out ahead
        20 left: 20 handed out ahead
        9 left: 8 handed out ahead
        3 left: 2 handed out ahead
        2 left: 2 handed out ahead
        1 left: 0 handed out ahead
        0 left: 0 handed out ahead
    "#]]
    .assert_eq(&[30, 20, 9, 3, 2, 1, 0].map(left).concat());
}

#[test]
fn an_array_with_a_limit_keeps_to_it() {
    check(
        "worker a cpus 1
         job sweep array 0-99%3
         follow
         start 1.0.1
         +10ms
         end 1.0.1 ok
         follow
         end 1.1.1 ok
         follow
         end 1.2.1 ok
         follow
         end 1.3.1 ok
         follow
         end 1.4.1 ok
         follow
         end 1.5.1 ok
         follow
         end 1.6.1 ok
         follow
         end 1.7.1 ok
         follow
         end 1.8.1 ok
         follow",
        expect![[r#"
            1.0 -> a
            1 wait: PRIORITY
            1.0.1 started
            1.0.1 ended: SUCCESS
            task 1.0 is over: SUCCESS
            1.1 -> a
            1 wait: PRIORITY
            1.1.1 ended: SUCCESS
            task 1.1 is over: SUCCESS
            1.2 -> a
            1 wait: PRIORITY
            1.2.1 ended: SUCCESS
            task 1.2 is over: SUCCESS
            1.3 -> a
            1 wait: PRIORITY
            1.3.1 ended: SUCCESS
            task 1.3 is over: SUCCESS
            1.4 -> a
            1 wait: PRIORITY
            1.4.1 ended: SUCCESS
            task 1.4 is over: SUCCESS
            1.5 -> a
            1 wait: PRIORITY
            1.5.1 ended: SUCCESS
            task 1.5 is over: SUCCESS
            1.6 -> a
            1 wait: PRIORITY
            1.6.1 ended: SUCCESS
            task 1.6 is over: SUCCESS
            1.7 -> a
            1 wait: PRIORITY
            1.7.1 ended: SUCCESS
            task 1.7 is over: SUCCESS
            1.8 -> a
            1.9 -> a in its turn
            1.10 -> a in its turn
            1 wait: PRIORITY
            1.8.1 ended: SUCCESS
            task 1.8 is over: SUCCESS
            1.9.1 has its turn
            1.11 -> a in its turn
            1 wait: RESOURCES
        "#]],
    );
}

#[test]
fn what_waits_in_vain_is_recalled_when_there_is_room_elsewhere() {
    check(
        "worker a cpus 1
         job sweep array 0-9
         place 1.0 on a
         start 1.0.1
         place 1.1 on a prefetch
         +1s
         place 1.2 on a prefetch
         worker b cpus 1
         +1s
         follow
         end 1.1.1 PREEMPTED
         plan
         drain b no
         plan
         place 1.4 on a prefetch
         drain a no
         plan",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
            1.1.1 placed
            1.2.1 placed
            recall 1.1.1
            1.3 -> b
            1 wait: PRIORITY
            1.1.1 ended: PREEMPTED
            task 1.1 waits again
            1 wait: RESOURCES
            worker b drains
            1 wait: RESOURCES
            1.4.1 placed
            worker a drains
            recall 1.2.1
            recall 1.4.1
            1 wait: NO_WORKERS
        "#]],
    );
}
