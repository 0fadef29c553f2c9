//! Every call arrives as it was made, and so does its answer.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use prost::Message;

use super::{
    fake::{Fake, TOKEN, client, client_within, run, services, start},
    samples,
};
use crate::model::{JobId, TaskId, UserName};
use crate::rpc::{
    api::{
        Api, ApiError, Consistency, ErrorKind, JobAction, JobFilter, MemberAction, TargetRef,
        WorkerAction,
    },
    client::{Client, ClientConfig},
    convert::{Failure, from_status},
    proto::{self, controller_client::ControllerClient},
    server::Services,
    transport::bearer,
};

const NOW: Consistency = Consistency::Linearizable;
const STALE: Consistency = Consistency::Stale;

#[tokio::test]
async fn every_call_and_every_answer_arrive_whole() {
    let fake = Arc::new(Fake::default());
    fake.logs.lock().unwrap().push(vec![Ok(samples::chunk(5, "hello"))]);
    let server = run(fake.clone()).await;
    let api = client(&[&server.address]);
    let task = TaskId { job: JobId(12), index: 3 };
    let ann = UserName::from("ann");

    assert_eq!(api.submit(samples::submit()).await, Ok(samples::submitted()));
    assert_eq!(api.jobs(samples::filter(), STALE).await, Ok(samples::page()));
    assert_eq!(api.job(JobId(12), NOW).await, Ok(samples::detail()));
    assert_eq!(api.tasks(samples::task_filter(), NOW).await, Ok(samples::task_page()));
    assert_eq!(api.explain(TargetRef::Task(task), STALE).await, Ok(samples::explanation()));
    for action in [
        JobAction::Cancel,
        JobAction::Hold,
        JobAction::Release,
        JobAction::Requeue,
        JobAction::SetPriority(5),
    ] {
        assert_eq!(api.act(TargetRef::Job(JobId(12)), action, ann.clone()).await, Ok(()));
    }
    let waited = api.wait(vec![JobId(1), JobId(2)], Duration::from_secs(600)).await;
    assert_eq!(waited, Ok(samples::wait_answer()));
    let chunks: Vec<_> = api.logs(samples::log_request()).await.unwrap().collect().await;
    assert_eq!(chunks, [Ok(samples::chunk(5, "hello"))]);
    assert_eq!(api.workers(STALE).await, Ok(vec![samples::worker()]));
    let drain = WorkerAction::Drain { reason: "disk".into() };
    for action in [drain, WorkerAction::Resume, WorkerAction::Forget] {
        assert_eq!(api.act_on_worker("gpu-1".into(), action).await, Ok(()));
    }
    assert_eq!(api.gpus(NOW).await, Ok(vec![samples::gpu_view()]));
    assert_eq!(api.queues(NOW).await, Ok(vec![samples::queue_view()]));
    assert_eq!(api.put_queue("night".into(), samples::queue()).await, Ok(()));
    assert_eq!(api.status(NOW).await, Ok(samples::status()));
    assert_eq!(api.cluster().await, Ok(samples::cluster()));
    for action in [
        MemberAction::Add { id: 4, address: "10.0.0.8:7070".into() },
        MemberAction::Promote { id: 4 },
        MemberAction::Move { id: 4, address: "10.0.0.9:7070".into() },
        MemberAction::Remove { id: 4 },
        MemberAction::TransferLeader { to: Some(2) },
        MemberAction::TransferLeader { to: None },
    ] {
        assert_eq!(api.act_on_members(action).await, Ok(()));
    }
    let backup: Vec<_> = api.backup().await.unwrap().map(Result::unwrap).collect().await;
    assert_eq!(backup.concat(), b"a backup");

    let asked = fake.asked();
    let expected = [
        format!("{:?}", samples::submit()),
        format!("{:?} Stale", samples::filter()),
        "JobId(12) Linearizable".into(),
        format!("{:?} Linearizable", samples::task_filter()),
        format!("{:?} Stale", TargetRef::Task(task)),
        r#"Job(JobId(12)) Cancel UserName("ann")"#.into(),
        r#"Job(JobId(12)) Hold UserName("ann")"#.into(),
        r#"Job(JobId(12)) Release UserName("ann")"#.into(),
        r#"Job(JobId(12)) Requeue UserName("ann")"#.into(),
        r#"Job(JobId(12)) SetPriority(5) UserName("ann")"#.into(),
        "[JobId(1), JobId(2)] within 60 s".into(),
        format!("{:?}", samples::log_request()),
        "workers Stale".into(),
        r#"gpu-1 Drain { reason: "disk" }"#.into(),
        "gpu-1 Resume".into(),
        "gpu-1 Forget".into(),
        "gpus Linearizable".into(),
        "queues Linearizable".into(),
        format!("night {:?}", samples::queue()),
        "status Linearizable".into(),
        "cluster".into(),
        r#"Add { id: 4, address: "10.0.0.8:7070" }"#.into(),
        "Promote { id: 4 }".into(),
        r#"Move { id: 4, address: "10.0.0.9:7070" }"#.into(),
        "Remove { id: 4 }".into(),
        "TransferLeader { to: Some(2) }".into(),
        "TransferLeader { to: None }".into(),
        "backup".into(),
    ];
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn every_refusal_arrives_word_for_word() {
    let fake = Arc::new(Fake::default());
    let server = run(fake.clone()).await;
    let api = client(&[&server.address]);
    for kind in [
        ErrorKind::Invalid,
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::Denied,
        ErrorKind::Internal,
    ] {
        let error = ApiError::new(kind, "100 % — „nein“,\nsagt er: /?&");
        *fake.refusal.lock().unwrap() = Some(error.clone());
        assert_eq!(api.cluster().await, Err(error));
    }
    assert_eq!(fake.asked().len(), 5, "nothing of this is asked twice");
}

#[tokio::test]
async fn a_long_message_is_cut_to_what_a_header_may_hold() {
    let server = run(Arc::new(Fake::refusing(ErrorKind::Invalid, &"ü".repeat(50_000)))).await;
    let error = client(&[&server.address]).cluster().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.starts_with("üü") && error.message.ends_with("ü…"));
}

#[tokio::test]
async fn only_the_right_token_opens() {
    let server = run(Arc::new(Fake::default())).await;
    let with = |token: Option<&str>| {
        let controllers = vec![server.address.clone()];
        let token = token.map(str::to_owned);
        Client::new(ClientConfig { controllers, token, deadline: Duration::from_secs(60) }).unwrap()
    };
    assert_eq!(with(Some(TOKEN)).cluster().await, Ok(samples::cluster()));
    let denied = |message: &str| Err(ApiError::new(ErrorKind::Denied, message));
    let wrong = denied("the token is not this cluster's: check DRIGS_TOKEN");
    assert_eq!(with(Some("open sesam")).cluster().await, wrong);
    assert_eq!(with(Some("")).cluster().await, wrong);
    let none = denied("this cluster asks for a token: set DRIGS_TOKEN");
    assert_eq!(with(None).cluster().await, none);
}

#[test]
fn what_cannot_be_asked_is_said_at_once() {
    let fault = |controllers: &[&str], token: &str| {
        let config = ClientConfig {
            controllers: controllers.iter().map(|it| (*it).to_owned()).collect(),
            token: Some(token.into()),
            deadline: Duration::from_secs(1),
        };
        Client::new(config).unwrap_err().message
    };
    assert_eq!(
        fault(&[], TOKEN),
        "no controller is named: DRIGS_CONTROLLERS lists them (such as 10.0.0.5:7070,10.0.0.6:7070)"
    );
    for address in ["here", "here:", ":7070", "here:70700", "here:0", "http://here:7070"] {
        assert_eq!(
            fault(&["10.0.0.1:7070", address], TOKEN),
            format!("`{address}` is not a controller's address (such as 10.0.0.5:7070)")
        );
    }
    assert_eq!(
        fault(&["here:7070"], "a\nb"),
        "the token has characters that no token has (a line break, or not ASCII)"
    );
}

#[test]
fn secrets_are_not_printed() {
    let api = client(&["127.0.0.1:1"]);
    let printed = format!("{api:?} {:?}", super::fake::auth());
    assert!(!printed.contains(TOKEN), "{printed}");
}

#[tokio::test]
async fn a_request_that_makes_no_sense_names_its_field() {
    let server = run(Arc::new(Fake::default())).await;
    let api = client(&[&server.address]);
    let too_many = JobFilter { limit: 10_001, ..samples::filter() };
    let errors = [
        api.jobs(too_many, NOW).await.unwrap_err(),
        api.job(JobId(0), NOW).await.unwrap_err(),
        api.act_on_worker(String::new(), WorkerAction::Resume).await.unwrap_err(),
        api.wait(Vec::new(), Duration::ZERO).await.unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind == ErrorKind::Invalid));
    let messages = errors.map(|error| error.message);
    assert_eq!(
        messages,
        [
            "field `limit` is not within 1 to 10,000",
            "field `job` is missing",
            "field `worker` is missing",
            "field `jobs` is missing",
        ]
    );
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_the_next_one_taken() {
    let fake = Arc::new(Fake::default());
    let server = run(fake.clone()).await;
    let api = client(&[&server.address]);
    let mut large = samples::submit();
    large.spec.command.push("x".repeat(17 << 20));
    let error = api.submit(large.clone()).await.unwrap_err();
    let length = proto::SubmitRequest::from(large.clone()).encoded_len();
    let fault = format!("the message has {length} bytes; at most 16777216 may travel");
    assert_eq!(error, ApiError::new(ErrorKind::Invalid, fault));

    let address = format!("http://{}", server.address);
    let mut careless = ControllerClient::connect(address).await.unwrap();
    let mut request = tonic::Request::new(proto::SubmitRequest::from(large));
    request.metadata_mut().insert("authorization", bearer(TOKEN).unwrap());
    let status = careless.submit(request).await.unwrap_err();
    assert_eq!(from_status(&status), Failure::Answered(error));

    assert_eq!(api.submit(samples::submit()).await, Ok(samples::submitted()));
    assert_eq!(fake.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_serves_five_hundred_at_once() {
    let fake = Arc::new(Fake { pause: Duration::from_millis(50), ..Fake::default() });
    let server = run(fake.clone()).await;
    let api = client(&[&server.address]);
    let answers = join_all((0..500).map(|_| api.submit(samples::submit()))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(samples::submitted())));
    assert_eq!(fake.asked().len(), 500);
}

#[tokio::test]
async fn waiting_goes_on_until_it_is_over() {
    let fake = Arc::new(Fake::default());
    fake.waits_left.store(3, Ordering::SeqCst);
    let server = run(fake.clone()).await;
    let api = client(&[&server.address]);
    assert_eq!(api.wait(vec![JobId(1)], Duration::from_secs(20)).await, Ok(samples::wait_answer()));
    assert_eq!(fake.asked().len(), 4);

    fake.waits_left.store(usize::MAX, Ordering::SeqCst);
    let waited = api.wait(vec![JobId(1)], Duration::from_millis(150)).await.unwrap();
    assert!(!waited.done);
}

#[tokio::test]
async fn a_call_that_was_passed_on_is_not_passed_on_again() {
    let (front, local) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
    let services = Services::default().api(front.clone(), local.clone(), super::fake::auth());
    let server = start(super::fake::any_port().await, services).await;
    let config = ClientConfig {
        controllers: vec![server.address.clone()],
        token: Some(TOKEN.into()),
        deadline: Duration::from_secs(60),
    };
    Client::passing_on(config.clone()).unwrap().cluster().await.unwrap();
    assert_eq!((front.asked().len(), local.asked().len()), (0, 1));
    Client::new(config).unwrap().cluster().await.unwrap();
    assert_eq!((front.asked().len(), local.asked().len()), (1, 1));
}

#[tokio::test]
async fn an_overloaded_controller_is_asked_again() {
    let fake = Arc::new(Fake::refusing(ErrorKind::Overloaded, "too much"));
    let server = start(super::fake::any_port().await, services(fake.clone())).await;
    let api = client_within(&[&server.address], Duration::from_secs(3));
    assert_eq!(
        api.submit(samples::submit()).await,
        Err(ApiError::new(ErrorKind::Overloaded, "too much"))
    );
    assert!(fake.asked().len() > 2);
    *fake.refusal.lock().unwrap() = None;
    assert_eq!(api.submit(samples::submit()).await, Ok(samples::submitted()));
}
