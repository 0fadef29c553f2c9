//! Whom to ask. All clones of a client follow one route: one of them finding a controller gone is enough for all.

use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tonic::transport::Channel;

use crate::rpc::{
    api::{ApiError, ErrorKind},
    client::tries::Miss,
    proto::controller_client::ControllerClient,
    transport::{self, CONNECT_TIMEOUT, MESSAGE_LIMIT},
};

pub(super) type Stub = ControllerClient<Channel>;

/// The way to one controller, at one of its addresses.
#[derive(Clone)]
pub(super) struct Line {
    number: u64,
    /// For people.
    pub(super) address: String,
    pub(super) stub: Stub,
    /// When the last answer of any call came this way.
    heard: Arc<Mutex<Option<Instant>>>,
}

pub(super) struct Route {
    present: Mutex<Option<Line>>,
    search: tokio::sync::Mutex<Search>,
}

/// Goes through the names in turn, and through all addresses of each.
struct Search {
    names: Vec<String>,
    turn: usize,
    name: String,
    addresses: VecDeque<SocketAddr>,
    lines: u64,
}

impl Line {
    pub(super) fn heard(&self) {
        *self.last() = Some(Instant::now());
    }

    pub(super) fn was_heard_within(&self, length: Duration) -> bool {
        self.last().is_some_and(|heard| heard.elapsed() < length)
    }

    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Route {
    /// # Errors
    /// No name is given, or one is not `host:port`.
    pub(super) fn new(names: Vec<String>) -> Result<Route, ApiError> {
        if names.is_empty() {
            let message = "no controller is named: DRIGS_CONTROLLERS lists them (such as 10.0.0.5:7070,10.0.0.6:7070)";
            return Err(ApiError::new(ErrorKind::Invalid, message));
        }
        names.iter().try_for_each(|name| transport::check_address(name))?;
        let search =
            Search { names, turn: 0, name: String::new(), addresses: VecDeque::new(), lines: 0 };
        Ok(Route { present: Mutex::new(None), search: tokio::sync::Mutex::new(search) })
    }

    /// The last good line, or the next one to try. It connects when it is first used.
    pub(super) async fn line(&self) -> Result<Line, Miss> {
        if let Some(line) = &*self.lock() {
            return Ok(line.clone());
        }
        let mut search = self.search.lock().await;
        if let Some(line) = &*self.lock() {
            return Ok(line.clone());
        }
        let line = search.next().await?;
        *self.lock() = Some(line.clone());
        Ok(line)
    }

    /// The line is of no use just now; others may have noticed before and be on the next one already.
    pub(super) fn leave(&self, line: &Line) {
        let mut present = self.lock();
        if present.as_ref().is_some_and(|known| known.number == line.number) {
            *present = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Line>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Search {
    async fn next(&mut self) -> Result<Line, Miss> {
        if self.addresses.is_empty() {
            self.name = self.names[self.turn].clone();
            self.turn = (self.turn + 1) % self.names.len();
            self.addresses = resolve(&self.name).await?;
        }
        let unknown = || unreachable(&self.name, "the name has no address");
        let address = self.addresses.pop_front().ok_or_else(unknown)?;
        let endpoint = transport::endpoint(&address.to_string()).map_err(Miss::Final)?;
        self.lines += 1;
        let stub = Stub::new(endpoint.connect_lazy()).max_decoding_message_size(MESSAGE_LIMIT);
        Ok(Line {
            number: self.lines,
            address: label(&self.name, address),
            stub,
            heard: Arc::default(),
        })
    }
}

async fn resolve(name: &str) -> Result<VecDeque<SocketAddr>, Miss> {
    match tokio::time::timeout(CONNECT_TIMEOUT, tokio::net::lookup_host(name)).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(_)) => Err(unreachable(name, "the name is not known")),
        Err(_) => Err(unreachable(name, "the name was not resolved in time")),
    }
}

fn unreachable(name: &str, reason: &str) -> Miss {
    Miss::Unavailable { address: name.to_owned(), reason: reason.to_owned(), reached: false }
}

fn label(name: &str, address: SocketAddr) -> String {
    if address.to_string() == name {
        name.to_owned()
    } else {
        format!("{name} at {}", address.ip())
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.lock().as_ref().map(|line| line.address.clone());
        f.debug_struct("Route").field("present", &present).finish_non_exhaustive()
    }
}
