//! Bytes that stay as they are, and bytes that make no sense.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use prost::Message;

use super::{Encoder, Failure, Malformed, from_status, to_status};
use crate::model::{AttemptReport, Epoch, JobId, Phase, TaskState, UserName};
use crate::rpc::{
    api::{
        ApiError, Consistency, ErrorKind, JobAction, JobDetail, JobFilter, LogChunk, LogRequest,
        SubmitRequest, TargetRef, WorkerAction,
    },
    proto,
    session::{ControllerMessage, Report, WorkerMessage},
    tests::samples,
};

fn golden(message: &impl Message, expected: &Expect) {
    let mut hex = String::new();
    for byte in message.encode_to_vec() {
        write!(hex, "{byte:02x}").expect("a string takes all");
    }
    expected.assert_eq(&hex);
}

#[test]
fn bytes_stay_as_they_are() {
    let submit = SubmitRequest { spec: crate::model::JobSpec::default(), ..samples::submit() };
    golden(
        &proto::SubmitRequest::from(submit),
        &expect![
            "0a2b0a036a6f62120764656661756c74220508e8071a002a020a0030013a047472756572007a06080f10b0ea011203616e6e1a036b2d3120012801"
        ],
    );
    let filter = proto::ListJobsRequest::from((samples::filter(), Consistency::Stale));
    golden(&filter, &expect!["0a020102120204071a03616e6e22056e696768742a0274723001383240634801"]);
    let act = (TargetRef::Job(JobId(12)), JobAction::SetPriority(5), UserName::from("ann"));
    golden(&proto::ActOnJobRequest::from(act), &expect!["0a02080c1203616e6e3805"]);
    golden(
        &proto::JobView::from(samples::job()),
        &expect![
            "080c1205747261696e1a03616e6e22056e696768742802300a38074001480250035a100801100218032004280530063807400860c4136805700278038001018a01056770752d319201190a044558495410ffffffffffffffffff01180922046c6f7374980104"
        ],
    );
    golden(
        &proto::WorkerView::from(samples::worker()),
        &expect![
            "0a02773112056770752d311a0831302e302e302e392208445241494e494e472a046469736b3205302e322e3038c03e40014802500358046005680672090a047a6f6e651201627801800107880108"
        ],
    );
    golden(
        &proto::LogChunk::from(samples::chunk(300, "hi")),
        &expect!["0a06080c1003180210ac021a026869"],
    );
    let ended = AttemptReport {
        attempt: samples::attempt(),
        epoch: Epoch(2),
        phase: Phase::Ended(samples::ending()),
    };
    let report = Report { number: 3, attempts: vec![ended], gpus: Some(Vec::new()), settled: true };
    golden(
        &proto::WorkerMessage::from(WorkerMessage::Report(report)),
        &expect![
            "12270803121f0a06080c1003180210021a13080210fdffffffffffffffff0122026e6f284d1a002001"
        ],
    );
    let orders = samples::orders_of_array(crate::model::JobSpec::default(), 2);
    let mut encoder = Encoder::default();
    let messages = encoder.encode(ControllerMessage::Orders { answers: 3, orders });
    let [spec, set] = &messages[..] else { panic!("one spec, one set") };
    golden(
        spec,
        &expect![
            "222f0801122b0a036a6f62120764656661756c74220508e8071a002a020a0030013a047472756572007a06080f10b0ea01"
        ],
    );
    golden(
        set,
        &expect![
            "2a930108031001180220904e2a420a04080c1801223a0a290803100218e8072080808080042a070a054750552d312a0d0a054750552d321080808080103002380210011a050880dddb012001280330062a440a06080c10011801223a0a290803100218e8072080808080042a070a054750552d312a0d0a054750552d321080808080103002380210011a050880dddb01200128033006"
        ],
    );
}

fn fault<P, M>(message: P) -> String
where
    M: TryFrom<P, Error = Malformed>,
{
    match M::try_from(message) {
        Ok(_) => panic!("it was taken"),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn what_makes_no_sense_names_its_field() {
    let submit = || proto::SubmitRequest::from(samples::submit());
    let cases = [
        fault::<_, SubmitRequest>(proto::SubmitRequest { spec: None, ..submit() }),
        fault::<_, SubmitRequest>(proto::SubmitRequest { user: String::new(), ..submit() }),
        fault::<_, SubmitRequest>(proto::SubmitRequest { key: String::new(), ..submit() }),
        fault::<_, SubmitRequest>(proto::SubmitRequest { key: "k".repeat(257), ..submit() }),
        fault::<_, (JobFilter, Consistency)>(proto::ListJobsRequest {
            states: vec![2, 99],
            limit: 5,
            ..Default::default()
        }),
        fault::<_, (JobFilter, Consistency)>(proto::ListJobsRequest::default()),
        fault::<_, (JobFilter, Consistency)>(proto::ListJobsRequest {
            ids: vec![1; 10_001],
            limit: 5,
            ..Default::default()
        }),
        fault::<_, (TargetRef, JobAction, UserName)>(proto::ActOnJobRequest::default()),
        fault::<_, (TargetRef, JobAction, UserName)>(proto::ActOnJobRequest {
            action: Some(proto::act_on_job_request::Action::SetPriority(1_000_001)),
            ..Default::default()
        }),
        fault::<_, (String, WorkerAction)>(proto::ActOnWorkerRequest::default()),
        fault::<_, LogRequest>(proto::LogRequest::default()),
        fault::<_, LogChunk>(proto::LogChunk {
            offset: u64::MAX,
            bytes: "x".into(),
            ..Default::default()
        }),
        fault::<_, JobDetail>(proto::JobDetail::default()),
        fault::<_, WorkerMessage>(proto::WorkerMessage::default()),
        fault::<_, Report>(proto::Report {
            attempts: vec![proto::AttemptReport::default()],
            ..Default::default()
        }),
    ];
    expect![[r#"
        field `spec` is missing
        field `user` is missing
        field `key` is missing
        field `key` is longer than 256 bytes
        field `state` has the value 99, which this version does not know
        field `limit` is not within 1 to 10,000
        field `ids` is longer than 10,000 jobs
        field `action` is missing
        field `set_priority` is above 1,000,000
        field `worker` is missing
        field `task` is missing
        field `chunk.offset` is beyond all sizes
        field `job` is missing
        field `worker_message.kind` is missing
        field `report.attempt` is missing"#]]
    .assert_eq(&cases.join("\n"));
}

proptest! {
    /// Whatever bytes come, they are refused or understood; nothing else happens.
    #[test]
    fn no_bytes_upset_a_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = proto::SubmitRequest::decode(&bytes[..]) {
            let _ = SubmitRequest::try_from(message);
        }
        if let Ok(message) = proto::WorkerMessage::decode(&bytes[..]) {
            let _ = WorkerMessage::try_from(message);
        }
        if let Ok(message) = proto::ControllerMessage::decode(&bytes[..]) {
            let _ = super::Decoder::default().decode(message);
        }
    }

    #[test]
    fn filters_arrive_as_they_were_sent(
        ids in proptest::collection::vec(1u64.., 0..4),
        user in proptest::option::of(".*"),
        name in proptest::option::of(".*"),
        finished: bool,
        limit in 1u32..=10_000,
        before in proptest::option::of(1u64..),
        stale: bool,
    ) {
        let filter = JobFilter {
            ids: ids.into_iter().map(JobId).collect(),
            states: vec![TaskState::Cancelled],
            user,
            queue: None,
            name,
            finished,
            limit,
            before: before.map(JobId),
        };
        let question = (filter, Consistency::from(stale));
        let bytes = proto::ListJobsRequest::from(question.clone()).encode_to_vec();
        let arrived = proto::ListJobsRequest::decode(&bytes[..]).unwrap();
        prop_assert_eq!(<(JobFilter, Consistency)>::try_from(arrived).unwrap(), question);
    }

    #[test]
    fn errors_are_told_from_broken_connections(message in ".{0,300}") {
        for kind in [
            ErrorKind::Invalid,
            ErrorKind::NotFound,
            ErrorKind::Conflict,
            ErrorKind::Denied,
            ErrorKind::Unavailable,
            ErrorKind::Overloaded,
            ErrorKind::Internal,
        ] {
            let error = ApiError::new(kind, message.clone());
            prop_assert_eq!(from_status(&to_status(&error)), Failure::Answered(error));
        }
        let broken = tonic::Status::internal(message.clone());
        prop_assert_eq!(from_status(&broken), Failure::Broken(message));
    }
}
