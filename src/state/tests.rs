//! What each command does, and when it is refused.

use expect_test::expect;

use crate::state::testing::check;

#[test]
fn a_task_runs_from_submission_to_its_end() {
    check(
        "worker a cpus 4 gpus 2xA100:80G
         job train gpus 1 mem 2G
         place 1.0 on a gpu 1
         start 1.0.1
         show
         +10s
         end 1.0.1 ok
         show",
        expect![[r#"
            1.0.1 placed
            1.0.1 started
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
