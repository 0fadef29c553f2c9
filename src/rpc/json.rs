//! How views look as JSON, on the command line and over REST alike: times as RFC 3339, CPUs as cores, lengths of time with
//! their unit. Inside DRIGS they are milliseconds and thousandths.

use serde::Serialize;
use serde_json::{Map, Number, Value};

/// Tables whose keys are the user's own.
const USERS_OWN: [&str; 3] = ["env", "labels", "volumes"];
const TIMES: [&str; 4] = ["begin", "earliest_start", "since", "not_before"];
const LENGTHS: [&str; 4] = ["time_limit", "grace", "interval", "after"];
const CPUS: [&str; 2] = ["cpus", "cpus_used"];

/// `view` as people and programs outside are shown it.
pub fn shown(view: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(view).expect("views have text keys and no failing parts");
    convert(&mut value);
    value
}

fn convert(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(convert),
        Value::Object(fields) => convert_fields(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn convert_fields(fields: &mut Map<String, Value>) {
    for (key, value) in fields.iter_mut() {
        let key = key.as_str();
        if USERS_OWN.contains(&key) {
            continue;
        }
        let Some(number) = value.as_u64() else {
            convert(value);
            continue;
        };
        if key.ends_with("_at") || TIMES.contains(&key) {
            *value = Value::String(rfc3339(number));
        } else if LENGTHS.contains(&key) {
            *value = Value::String(length(number));
        } else if CPUS.contains(&key) {
            *value = Value::Number(cores(number));
        }
    }
}

fn rfc3339(millis: u64) -> String {
    let instant = i64::try_from(millis).ok().map(jiff::Timestamp::from_millisecond);
    match instant {
        Some(Ok(instant)) => format!("{instant:.3}"),
        _ => millis.to_string(),
    }
}

/// Exact, and read back by every field that takes a length of time.
fn length(millis: u64) -> String {
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

fn cores(thousandths: u64) -> Number {
    match thousandths % 1000 {
        0 => Number::from(thousandths / 1000),
        _ => {
            Number::from_f64(thousandths as f64 / 1000.0).expect("a quotient of integers is finite")
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::model::{JobSpec, MilliCpus, Millis, Timestamp};

    #[test]
    fn times_and_units_are_readable() {
        let mut spec = JobSpec {
            begin: Some(Timestamp(1_700_000_000_123)),
            time_limit: Some(Millis::from_secs(5400)),
            ..JobSpec::default()
        };
        spec.request.cpus = MilliCpus(1500);
        spec.env.insert("cpus".into(), "7".into());
        let value = shown(&spec);
        let part = |key: &str| value[key].to_string();
        let parts = ["begin", "time_limit", "request", "stop", "env"].map(part).join("\n");
        expect![[r#"
            "2023-11-14T22:13:20.123Z"
            "5400s"
            {"cpus":1.5,"gpus":{"count":0,"memory":null,"min_compute_capability":null,"model":null,"sharing":false,"topology_aware":false},"memory":0}
            {"grace":"30s","signal":15}
            {"cpus":"7"}"#]].assert_eq(&parts);
    }
}
