//! Logs that resume, and sessions of workers.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

use super::{
    fake::{Fake, TOKEN, any_port, auth, client, client_within, dead_address, run, start},
    samples,
};
use crate::model::{AttemptReport, Epoch, LostAfter, Millis, OrderStamp, Orders, Phase, WorkerId};
use crate::rpc::{
    api::{Answer, Api, ApiError, ErrorKind, LogChunk},
    hub_client::HubClient,
    server::{Hub, Inbound, LogUpload, Outbound, Services},
    session::{ControllerMessage, Hello, Report, Welcome, WorkerMessage},
};

fn broken() -> Result<LogChunk, ApiError> {
    Err(ApiError::new(ErrorKind::Unavailable, "the leader changed"))
}

#[tokio::test]
async fn a_broken_log_goes_on_where_it_was_on_another_controller() {
    let (one, two) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
    one.logs.lock().unwrap().push(vec![
        Ok(samples::chunk(100, "first ")),
        Ok(samples::chunk(106, "second ")),
        broken(),
    ]);
    // The other one sends more than it was asked for.
    two.logs.lock().unwrap().push(vec![
        Ok(samples::chunk(106, "sec")),
        Ok(samples::chunk(109, "ond third ")),
        broken(),
    ]);
    one.logs.lock().unwrap().push(vec![Ok(samples::chunk(119, "end"))]);
    let (first, second) = (run(one.clone()).await, run(two.clone()).await);
    let api = client(&[&first.address, &second.address]);

    let log = api.logs(samples::log_request()).await.unwrap();
    let chunks: Vec<LogChunk> = log.map(Result::unwrap).collect().await;
    let texts: Vec<_> = chunks
        .iter()
        .map(|chunk| (chunk.offset, String::from_utf8_lossy(&chunk.bytes).into_owned()))
        .collect();
    let expected = [(100, "first "), (106, "second "), (113, "third "), (119, "end")];
    assert_eq!(texts, expected.map(|(offset, text)| (offset, text.to_owned())));

    let resumed = |from| {
        let mut request = samples::log_request();
        request.attempt = Some(2);
        request.tail = None;
        request.from = from;
        format!("{request:?}")
    };
    assert_eq!(one.asked(), [format!("{:?}", samples::log_request()), resumed(119)]);
    assert_eq!(two.asked(), [resumed(113)]);
}

#[tokio::test]
async fn a_log_that_breaks_for_good_says_why() {
    let fake = Arc::new(Fake::default());
    let server = run(fake.clone()).await;
    let gone = ApiError::new(ErrorKind::NotFound, "the output is gone");
    fake.logs.lock().unwrap().push(vec![Ok(samples::chunk(0, "a")), Err(gone.clone())]);
    let api = client(&[&server.address]);
    let chunks: Vec<_> = api.logs(samples::log_request()).await.unwrap().collect().await;
    assert_eq!(chunks, [Ok(samples::chunk(0, "a")), Err(gone)]);

    *fake.logs.lock().unwrap() = (0..1000).map(|_| vec![broken()]).collect();
    let api = client_within(&[&server.address], Duration::from_secs(3));
    let chunks: Vec<_> = api.logs(samples::log_request()).await.unwrap().collect().await;
    let message =
        format!("no controller could answer: tried {} (the leader changed)", server.address);
    assert_eq!(chunks, [Err(ApiError::new(ErrorKind::Unavailable, message))]);
    assert!(fake.asked().len() < 50, "it must not ask without pause");
}

type OpenSession = (Inbound, Option<SocketAddr>, mpsc::Sender<ControllerMessage>);
type OpenUpload = (u64, LogUpload, oneshot::Sender<()>);

/// A hub whose sessions and uploads come out at the other end.
struct Switchboard {
    sessions: mpsc::UnboundedSender<OpenSession>,
    uploads: mpsc::UnboundedSender<OpenUpload>,
}

impl Hub for Switchboard {
    fn session(&self, inbound: Inbound, peer: Option<SocketAddr>) -> Outbound {
        let (sender, receiver) = mpsc::channel(8);
        self.sessions.send((inbound, peer, sender)).unwrap();
        ReceiverStream::new(receiver).boxed()
    }

    fn log_upload(&self, stream: u64, chunks: LogUpload) -> Answer<()> {
        let (done, wait) = oneshot::channel();
        self.uploads.send((stream, chunks, done)).unwrap();
        async move { wait.await.map_err(|_| ApiError::new(ErrorKind::NotFound, "nobody reads")) }
            .boxed()
    }
}

struct Exchange {
    sessions: mpsc::UnboundedReceiver<OpenSession>,
    uploads: mpsc::UnboundedReceiver<OpenUpload>,
    server: super::fake::Running,
}

async fn exchange() -> Exchange {
    let (sessions, sessions_out) = mpsc::unbounded_channel();
    let (uploads, uploads_out) = mpsc::unbounded_channel();
    let hub = Arc::new(Switchboard { sessions, uploads });
    let server = start(any_port().await, Services::default().hub(hub, auth())).await;
    Exchange { sessions: sessions_out, uploads: uploads_out, server }
}

fn hello() -> WorkerMessage {
    WorkerMessage::Hello(Box::new(Hello {
        registration: samples::registration(),
        incarnation: Uuid::from_u128(7),
        cluster_id: Some("c".into()),
        owed: vec![AttemptReport {
            attempt: samples::attempt(),
            epoch: Epoch(1),
            phase: Phase::Ended(samples::ending()),
        }],
        clock: 1234,
    }))
}

#[tokio::test]
async fn a_session_carries_both_ways() {
    let mut exchange = exchange().await;
    let hub = HubClient::dial(&exchange.server.address, Some(TOKEN)).await.unwrap();
    let mut session = hub.session().await.unwrap();
    let (mut inbound, peer, outbound) = exchange.sessions.recv().await.unwrap();
    assert!(peer.is_some_and(|peer| peer.ip().is_loopback()));

    let reports = [
        hello(),
        WorkerMessage::Report(Report {
            number: 1,
            attempts: Vec::new(),
            gpus: None,
            settled: true,
        }),
        WorkerMessage::Report(Report {
            number: 2,
            attempts: vec![AttemptReport {
                attempt: samples::attempt(),
                epoch: Epoch(2),
                phase: Phase::Running,
            }],
            gpus: Some(vec![samples::gpu()]),
            settled: false,
        }),
    ];
    for report in reports {
        session.outbound.send(report.clone()).await.unwrap();
        assert_eq!(inbound.next().await, Some(Ok(report)));
    }

    let answers = [
        ControllerMessage::Welcome(Welcome {
            worker: WorkerId(3),
            epoch: Epoch(2),
            cluster_id: "c".into(),
            term: 5,
            controllers: vec!["10.0.0.5:7070".into()],
            lease: Millis(10_000),
            lost_after: LostAfter::Keep,
        }),
        ControllerMessage::Redirect { leader: Some("10.0.0.6:7070".into()) },
        ControllerMessage::Redirect { leader: None },
        ControllerMessage::Refused { reason: "no".into(), retry: true },
        ControllerMessage::OpenLog { stream: 9, request: samples::log_request() },
        ControllerMessage::Orders {
            answers: 2,
            orders: Orders {
                stamp: OrderStamp { term: 5, index: 8 },
                orders: Vec::new(),
                lease: Millis(10_000),
            },
        },
    ];
    for answer in answers {
        outbound.send(answer.clone()).await.unwrap();
        assert_eq!(session.inbound.next().await, Some(Ok(answer)));
    }

    drop(session.outbound);
    assert_eq!(inbound.next().await, None, "a worker that hangs up is no fault");
    drop(outbound);
    assert_eq!(session.inbound.next().await, None);
}

#[tokio::test]
async fn a_thousand_tasks_travel_with_one_spec() {
    let mut exchange = exchange().await;
    let hub = HubClient::dial(&exchange.server.address, Some(TOKEN)).await.unwrap();
    let mut session = hub.session().await.unwrap();
    let (_inbound, _, outbound) = exchange.sessions.recv().await.unwrap();
    let mut spec = samples::spec();
    spec.env.insert("LARGE".into(), "x".repeat(1 << 20));
    let message =
        ControllerMessage::Orders { answers: 1, orders: samples::orders_of_array(spec, 1000) };
    for _ in 0..2 {
        outbound.send(message.clone()).await.unwrap();
        assert!(session.inbound.next().await == Some(Ok(message.clone())));
    }
}

#[tokio::test]
async fn both_ends_notice_when_the_other_is_gone() {
    let mut exchange = exchange().await;
    let hub = HubClient::dial(&exchange.server.address, Some(TOKEN)).await.unwrap();
    let session = hub.session().await.unwrap();
    let (mut inbound, _, outbound) = exchange.sessions.recv().await.unwrap();
    drop(session);
    let _ = inbound.next().await;
    assert_eq!(inbound.next().await, None);
    outbound.closed().await;

    let mut session = hub.session().await.unwrap();
    let _held = exchange.sessions.recv().await.unwrap();
    exchange.server.kill().await;
    let last = session.inbound.next().await.unwrap().unwrap_err();
    assert_eq!(last.kind, ErrorKind::Unavailable);
    assert_eq!(session.inbound.next().await, None);
}

#[tokio::test]
async fn a_worker_that_may_not_enter_is_told_why() {
    let exchange = exchange().await;
    let hub = HubClient::dial(&exchange.server.address, Some("guess")).await.unwrap();
    assert_eq!(hub.session().await.unwrap_err().kind, ErrorKind::Denied);

    let dead = dead_address().await;
    let error = HubClient::dial(&dead, None).await.unwrap_err();
    let message = format!("controller {dead}: connection refused");
    assert_eq!(error, ApiError::new(ErrorKind::Unavailable, message));
    assert_eq!(HubClient::dial("nowhere", None).await.unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn a_worker_that_makes_no_sense_ends_its_session() {
    let mut exchange = exchange().await;
    let hub = HubClient::dial(&exchange.server.address, Some(TOKEN)).await.unwrap();
    let session = hub.session().await.unwrap();
    let (mut inbound, _, _outbound) = exchange.sessions.recv().await.unwrap();
    let WorkerMessage::Hello(mut absurd) = hello() else { unreachable!() };
    absurd.registration.cpus = crate::model::MilliCpus(u64::MAX);
    session.outbound.send(WorkerMessage::Hello(absurd)).await.unwrap();
    let fault = "field `registration.milli_cpus` is above a million cores";
    assert_eq!(inbound.next().await, Some(Err(ApiError::new(ErrorKind::Invalid, fault))));
    assert_eq!(inbound.next().await, None);
}

#[tokio::test]
async fn output_is_uploaded_until_either_end_has_enough() {
    let mut exchange = exchange().await;
    let hub = HubClient::dial(&exchange.server.address, Some(TOKEN)).await.unwrap();
    let gone = ApiError::new(ErrorKind::Internal, "the disk is gone");
    let chunks = vec![Ok(samples::chunk(0, "a")), Err(gone.clone()), Ok(samples::chunk(1, "b"))];
    let uploading = tokio::spawn({
        let hub = hub.clone();
        async move { hub.upload_log(4, stream::iter(chunks)).await }
    });
    let (number, mut upload, done) = exchange.uploads.recv().await.unwrap();
    assert_eq!(number, 4);
    assert_eq!(upload.next().await, Some(Ok(samples::chunk(0, "a"))));
    assert_eq!(upload.next().await, Some(Err(gone)));
    assert_eq!(upload.next().await, None, "an error is the last word");
    done.send(()).unwrap();
    assert_eq!(uploading.await.unwrap(), Ok(()));

    // A log that never ends, and a reader that leaves.
    let polled = Arc::new(Mutex::new(()));
    let alive = Arc::downgrade(&polled);
    let endless = stream::unfold(polled, |held| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Some((Ok(samples::chunk(0, "more")), held))
    });
    let uploading = tokio::spawn(async move { hub.upload_log(5, endless).await });
    let (_, mut upload, done) = exchange.uploads.recv().await.unwrap();
    assert!(upload.next().await.unwrap().is_ok());
    drop((upload, done));
    let error = uploading.await.unwrap().unwrap_err();
    assert_eq!(error, ApiError::new(ErrorKind::NotFound, "nobody reads"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive.upgrade().is_some() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
