use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::model::{AttemptId, Bytes, IndexSet, JobId, Millis, TaskId, WorkerId};

fn check_time(texts: &str, expected: Expect) {
    let line = |text: &str| match Millis::parse(text, Millis::from_secs(60)) {
        Ok(millis) => format!("{text} = {} ms, shown {millis}\n", millis.0),
        Err(fault) => format!("{fault}\n"),
    };
    expected.assert_eq(&texts.split(' ').map(line).collect::<String>());
}

#[test]
fn lengths_of_time() {
    check_time(
        "90s 30 1.5h 2h30m 500ms 1:30:00 30:00 1-12 2-04:00 0 -5 4x 1e9d 99999999999d",
        expect![[r#"
            90s = 90000 ms, shown 1m30s
            30 = 1800000 ms, shown 30m
            1.5h = 5400000 ms, shown 1h30m
            2h30m = 9000000 ms, shown 2h30m
            500ms = 500 ms, shown 500ms
            1:30:00 = 5400000 ms, shown 1h30m
            30:00 = 1800000 ms, shown 30m
            1-12 = 129600000 ms, shown 1d12h
            2-04:00 = 187200000 ms, shown 2d4h
            0 = 0 ms, shown 0s
            `-5` is not a length of time (such as 90s, 30m, 4h, 2d, 1:30:00 or 1-12:00)
            `4x` is not a length of time (such as 90s, 30m, 4h, 2d, 1:30:00 or 1-12:00)
            `1e9d` is not a length of time (such as 90s, 30m, 4h, 2d, 1:30:00 or 1-12:00)
            `99999999999d` is not a length of time (such as 90s, 30m, 4h, 2d, 1:30:00 or 1-12:00)
        "#]],
    );
}

#[test]
fn amounts_of_memory_are_1024_based() {
    let line = |text: &str| match Bytes::parse(text, Bytes::from_mib(1)) {
        Ok(bytes) => format!("{text} = {}, shown {bytes}\n", bytes.0),
        Err(fault) => format!("{fault}\n"),
    };
    let all: String = ["16GB", "16G", "1.5T", "512", "10B", "7 GiB", "-1G", "3 apples", "9999999T"]
        .map(line)
        .concat();
    expect![[r#"
        16GB = 17179869184, shown 16G
        16G = 17179869184, shown 16G
        1.5T = 1649267441664, shown 1.5T
        512 = 536870912, shown 512M
        10B = 10, shown 10B
        7 GiB = 7516192768, shown 7G
        `-1G` is not an amount of memory (such as 512M, 16GB or 1.5T)
        `3 apples` is not an amount of memory (such as 512M, 16GB or 1.5T)
        `9999999T` is not an amount of memory (such as 512M, 16GB or 1.5T)
    "#]]
    .assert_eq(&all);
}

#[test]
fn ids_read_back_as_they_are_shown() {
    let task = TaskId { job: JobId(12), index: 3 };
    assert_eq!(task.to_string().parse(), Ok(task));
    assert_eq!("12_3".parse(), Ok(task));
    let attempt = AttemptId { task, number: 2 };
    assert_eq!(attempt.to_string(), "12.3.2");
    assert_eq!("12.3.2".parse(), Ok(attempt));
    assert_eq!("w7".parse(), Ok(WorkerId(7)));
    let fault = "twelve".parse::<JobId>().unwrap_err().to_string();
    assert_eq!(fault, "`twelve` is not a job id (a number such as 12)");
}

#[test]
fn index_sets_read_back_as_they_are_shown() {
    let shown = |text: &str| text.parse::<IndexSet>().map(|set| set.to_string());
    assert_eq!(shown("0-99,200,100-150").unwrap(), "0-150,200");
    assert_eq!(shown("0-10:5").unwrap(), "0,5,10");
    assert_eq!(shown("").unwrap(), "");
    for wrong in ["5-3", "a", "1-", "0-9:0", "-1", "0-4294967296", "1,,2"] {
        assert!(shown(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn an_index_set_is_a_set(steps in prop::collection::vec((0..3, 0u32..60, 0u32..20), 0..60)) {
        let mut set = IndexSet::new();
        let mut model = BTreeSet::new();
        for (kind, first, length) in steps {
            if kind == 0 {
                set.remove_range(first, first + length);
                model.retain(|index| !(first..=first + length).contains(index));
            } else if kind == 1 {
                set.insert_range(first, first + length);
                model.extend(first..=first + length);
            } else {
                prop_assert_eq!(set.remove(first), model.remove(&first));
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert!(set.iter().eq(model.iter().copied()));
            let ranges: Vec<_> = set.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "ranges touch");
        }
        prop_assert_eq!(set.to_string().parse::<IndexSet>().unwrap(), set);
    }
}
