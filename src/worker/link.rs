//! The way to the leader: whom to ask next, and how long to wait before.

use std::time::Duration;

use futures::StreamExt;
use rand::RngExt;

use crate::rpc::{
    hub_client::{HubClient, Session},
    session::{ControllerMessage, Hello, Welcome, WorkerMessage},
};

/// One try to join.
pub struct Link {
    address: String,
    token: Option<String>,
    hello: Hello,
}

/// A session that a leader has welcomed, and the connection it came over.
pub struct Joined {
    pub stream: Session,
    pub hub: HubClient,
}

/// Why a try came to nothing.
pub enum Refusal {
    /// The controller does not lead; it names the one that does, if there is one.
    Elsewhere(Option<String>),
    Refused {
        reason: String,
        retry: bool,
    },
    Broken(String),
}

/// Whom to ask next. Knows every controller it was ever told of.
#[derive(Clone, Debug)]
pub struct Way {
    controllers: Vec<String>,
    turn: usize,
    /// Where the leader is said to be.
    leader: Option<String>,
    failures: u32,
}

/// How long a controller may take to welcome a worker: its registration must be committed first.
const WELCOME_DEADLINE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Link {
    pub fn new(address: String, token: Option<String>, hello: Hello) -> Self {
        Link { address, token, hello }
    }

    pub async fn dial(self) -> Result<(Joined, Welcome), Refusal> {
        let address = self.address.clone();
        match tokio::time::timeout(WELCOME_DEADLINE, self.join()).await {
            Ok(joined) => joined,
            Err(_) => Err(Refusal::Broken(format!("{address} did not answer in time"))),
        }
    }

    async fn join(self) -> Result<(Joined, Welcome), Refusal> {
        let broken = |error: &dyn std::fmt::Display| Refusal::Broken(error.to_string());
        let hub = HubClient::dial(&self.address, self.token.as_deref())
            .await
            .map_err(|error| broken(&error))?;
        let mut stream = hub.session().await.map_err(|error| broken(&error))?;
        let hello = WorkerMessage::Hello(Box::new(self.hello));
        // A controller that does not lead says where to go, and hangs up, without listening first: what it said counts.
        let _ = stream.outbound.send(hello).await;
        match stream.inbound.next().await {
            Some(Ok(ControllerMessage::Welcome(welcome))) => Ok((Joined { stream, hub }, welcome)),
            Some(Ok(ControllerMessage::Redirect { leader })) => Err(Refusal::Elsewhere(leader)),
            Some(Ok(ControllerMessage::Refused { reason, retry })) => {
                Err(Refusal::Refused { reason, retry })
            }
            Some(Ok(ControllerMessage::Orders { .. } | ControllerMessage::OpenLog { .. })) => {
                Err(Refusal::Broken(format!("{} gave orders before a welcome", self.address)))
            }
            Some(Err(error)) => Err(broken(&error)),
            None => Err(Refusal::Broken(format!("{} ended the session", self.address))),
        }
    }
}

impl Way {
    pub fn new(controllers: Vec<String>) -> Self {
        let turn = rand::rng().random_range(0..controllers.len().max(1));
        Way { controllers, turn, leader: None, failures: 0 }
    }

    /// The leader, as far as known; otherwise one after the other.
    pub fn next(&mut self) -> String {
        if let Some(leader) = self.leader.take() {
            return leader;
        }
        self.turn = (self.turn + 1) % self.controllers.len();
        self.controllers[self.turn].clone()
    }

    /// A leader welcomed this worker and named all controllers.
    pub fn arrived(&mut self, controllers: &[String]) {
        self.failures = 0;
        for controller in controllers {
            if !self.controllers.contains(controller) {
                self.controllers.push(controller.clone());
            }
        }
    }

    /// A controller named the leader, or knows none just now.
    pub fn follow(&mut self, leader: Option<String>) {
        self.failures = self.failures.saturating_add(1);
        self.leader = leader;
    }

    pub fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Longer with each failure, and never the same for all workers of a cluster.
    pub fn pause(&self) -> Duration {
        if self.failures <= 1 && self.leader.is_some() {
            return Duration::ZERO;
        }
        let longest = (FIRST_PAUSE * 2u32.pow(self.failures.min(8))).min(LONGEST_PAUSE);
        longest.mul_f64(rand::rng().random_range(0.5..1.0))
    }
}
