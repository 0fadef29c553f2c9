//! The words between a worker and the leader, on one stream that the worker dials.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{AttemptReport, Epoch, Gpu, LostAfter, Millis, Orders, WorkerId};
use crate::rpc::api::LogRequest;
/// What a worker says of itself, as it enters the log.
pub use crate::state::RegisterWorker;

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerMessage {
    /// The first message of a session.
    Hello(Box<Hello>),
    Report(Report),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub registration: RegisterWorker,
    /// Drawn at each start of the agent: two agents with one identity are told apart by it.
    pub incarnation: Uuid,
    /// The cluster it belongs to, once it knows.
    pub cluster_id: Option<String>,
    /// Ends that earlier lives of it still owe; they are recorded before the new life begins.
    pub owed: Vec<AttemptReport>,
    /// Milliseconds since the Unix epoch by the worker's clock: only to tell an operator of a clock that is far off.
    pub clock: u64,
}

/// The whole set of attempts that a worker has. Sent at every change, and a few times per lease anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Counts the reports of a session; the orders that answer one name it.
    pub number: u64,
    pub attempts: Vec<AttemptReport>,
    /// Only when they changed.
    pub gpus: Option<Vec<Gpu>>,
    /// Nothing lives there but what the orders of this session name.
    pub settled: bool,
}

/// What a controller answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerMessage {
    Welcome(Welcome),
    /// Not the leader: ask there. `None` when nobody leads just now.
    Redirect {
        leader: Option<String>,
    },
    /// The worker may not join as it is; says why in one line. `retry` when time may help.
    Refused {
        reason: String,
        retry: bool,
    },
    /// The whole set, in answer to the report of this number (or to a change since).
    Orders {
        answers: u64,
        orders: Orders,
    },
    /// Dial a log stream with this id and send what is asked for.
    OpenLog {
        stream: u64,
        request: LogRequest,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub cluster_id: String,
    pub term: u64,
    /// Every controller's address, so that one name in `--join` is enough.
    pub controllers: Vec<String>,
    pub lease: Millis,
    /// What applies to jobs that do not say it themselves.
    pub lost_after: LostAfter,
}
