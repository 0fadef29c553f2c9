//! Controllers that are gone, hang, or do not know who leads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpListener, time::Instant};

use super::{
    fake::{
        Fake, any_port, client, client_within, dead_address, run, services, start, start_with_drain,
    },
    samples,
};
use crate::rpc::{
    api::{Api, ApiError, ErrorKind},
    client::{Client, ClientConfig},
};

#[tokio::test]
async fn a_controller_that_refuses_is_passed_over_and_the_good_one_remembered() {
    let follower = Arc::new(Fake::refusing(ErrorKind::Unavailable, "no leader"));
    let leader = Arc::new(Fake::default());
    let (first, second) = (run(follower.clone()).await, run(leader.clone()).await);
    let api = client(&[&dead_address().await, &first.address, &second.address]);
    for _ in 0..3 {
        assert_eq!(api.submit(samples::submit()).await, Ok(samples::submitted()));
    }
    assert_eq!((follower.asked().len(), leader.asked().len()), (1, 3));
}

#[tokio::test]
async fn when_nobody_is_there_it_says_whom_it_tried() {
    let (one, two) = (dead_address().await, dead_address().await);
    let api = client_within(&[&one, &two], Duration::from_secs(1));
    let began = Instant::now();
    let error = api.cluster().await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(
        error,
        ApiError::new(
            ErrorKind::Unavailable,
            format!(
                "no controller reachable: tried {one} (connection refused), {two} (connection refused); \
                 is one running? DRIGS_CONTROLLERS names them"
            )
        )
    );
}

#[tokio::test]
async fn when_nobody_leads_it_says_so() {
    let server = run(Arc::new(Fake::refusing(ErrorKind::Unavailable, "no leader"))).await;
    let dead = dead_address().await;
    let api = client_within(&[&server.address, &dead], Duration::from_secs(3));
    assert_eq!(
        api.cluster().await,
        Err(ApiError::new(
            ErrorKind::Unavailable,
            format!(
                "no controller could answer: tried {} (no leader), {dead} (connection refused)",
                server.address
            )
        ))
    );
}

#[tokio::test]
async fn what_a_controller_said_is_not_forgotten_when_the_time_is_up() {
    let refusal = ApiError::new(ErrorKind::Unavailable, "no quorum");
    let server = run(Arc::new(Fake {
        refusal: std::sync::Mutex::new(Some(refusal)),
        pause: Duration::from_millis(800),
        ..Fake::default()
    }))
    .await;
    // Three tries are answered; the fourth has less time than its answer takes.
    let api = client_within(&[&server.address], Duration::from_secs(3));
    let error = api.cluster().await.unwrap_err();
    assert_eq!(
        error.message,
        format!("no controller could answer: tried {} (no quorum)", server.address)
    );
}

#[tokio::test]
async fn an_unknown_name_is_named() {
    let api = client_within(&["no-such-host.invalid:7070"], Duration::from_millis(100));
    let error = api.cluster().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(
        error.message.contains("tried no-such-host.invalid:7070 (the name "),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn a_name_with_several_addresses_is_tried_at_each() {
    let server = run(Arc::new(Fake::default())).await;
    let name = format!("localhost:{}", server.socket().port());
    assert_eq!(client(&[&name]).cluster().await, Ok(samples::cluster()));
}

#[tokio::test]
async fn a_controller_that_hangs_does_not_eat_the_deadline() {
    let hanging = run(Arc::new(Fake { hangs: true, ..Fake::default() })).await;
    // Accepts and says nothing at all, as a stopped process does.
    let silent = any_port().await;
    let silent_address = silent.local_addr().unwrap().to_string();
    let good = run(Arc::new(Fake::default())).await;
    let api =
        client_within(&[&hanging.address, &silent_address, &good.address], Duration::from_secs(3));
    assert_eq!(api.cluster().await, Ok(samples::cluster()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_controllers_are_killed_and_restarted() {
    let fake = Arc::new(Fake { pause: Duration::from_millis(5), ..Fake::default() });
    let mut servers = [run(fake.clone()).await, run(fake.clone()).await];
    let addresses = servers.each_ref().map(|server| server.address.clone());
    let api = client(&addresses.each_ref().map(String::as_str));
    let done = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let (api, done) = (api.clone(), done.clone());
            tokio::spawn(async move {
                for _ in 0..CALLS {
                    assert_eq!(api.submit(samples::submit()).await, Ok(samples::submitted()));
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for kill in 1..=KILLS {
        until(|| done.load(Ordering::SeqCst) >= kill * 20 * CALLS / (KILLS + 1)).await;
        let server = &mut servers[kill % 2];
        server.task.abort();
        let _ = (&mut server.task).await;
        *server = start(bind(server.socket()).await, services(fake.clone())).await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
}

const CALLS: usize = 50;
const KILLS: usize = 10;

/// The port was in use a moment ago.
async fn bind(socket: std::net::SocketAddr) -> TcpListener {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpListener::bind(socket).await {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn passing_on_makes_one_try() {
    let dead = dead_address().await;
    let config = ClientConfig {
        controllers: vec![dead.clone()],
        token: None,
        deadline: Duration::from_secs(30),
    };
    let error = Client::passing_on(config).unwrap().cluster().await.unwrap_err();
    let message = format!("the leader at {dead}: connection refused");
    assert_eq!(error, ApiError::new(ErrorKind::Unavailable, message));
}

#[tokio::test]
async fn shutdown_finishes_what_is_under_way_and_closes_the_port_at_once() {
    let fake = Arc::new(Fake { pause: Duration::from_millis(100), ..Fake::default() });
    let long = Duration::from_secs(60);
    let server = start_with_drain(any_port().await, services(fake.clone()), long).await;
    let api = client_within(&[&server.address], Duration::from_secs(3));
    let under_way = tokio::spawn(api.clone().submit(samples::submit()));
    until(|| !fake.asked().is_empty()).await;
    server.shutdown.cancel();
    let socket = server.socket();
    until_refused(socket).await;
    assert_eq!(under_way.await.unwrap(), Ok(samples::submitted()));
    assert_eq!(api.cluster().await.unwrap_err().kind, ErrorKind::Unavailable);
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_cuts_what_would_never_end() {
    let fake = Arc::new(Fake { hangs: true, ..Fake::default() });
    let server = run(fake.clone()).await;
    let api = client_within(&[&server.address], Duration::from_secs(2));
    let hanging = tokio::spawn(api.cluster());
    until(|| !fake.asked().is_empty()).await;
    let began = Instant::now();
    server.shutdown.cancel();
    server.task.await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(hanging.await.unwrap().unwrap_err().kind, ErrorKind::Unavailable);
}

async fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn until_refused(socket: std::net::SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while tokio::net::TcpStream::connect(socket).await.is_ok() {
        assert!(Instant::now() < deadline, "the port stays open");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
