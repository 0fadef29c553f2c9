//! What can go wrong, for those who branch on it.

use crate::raft::NodeId;
use crate::rpc::api::{ApiError, ErrorKind};
use crate::store;

/// Why a replica could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}")]
    Config(String),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the replica did not start: {0}")]
    Start(String),
}

/// Why a proposal has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Nothing of it entered the log.
    #[error("this controller does not lead{}", hint(*leader))]
    NotLeader { leader: Option<NodeId> },
    /// Nothing of it entered the log.
    #[error("too many proposals wait already; try again a little later")]
    Overloaded,
    /// All of it may be committed, now or later, or none.
    #[error("whether it was committed is not known; asking again with the same key is safe")]
    Unknown,
    #[error("this controller is shutting down")]
    Shutdown,
}

/// This controller can not vouch for what it knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this controller does not lead{}", hint(*leader))]
pub struct NotLeader {
    pub leader: Option<NodeId>,
}

/// Why the members were not changed, or another did not take over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    #[error("{0}")]
    Refused(String),
    #[error("another change of members is under way; try again when it is done")]
    Busy,
    #[error("{0}")]
    TimedOut(String),
    #[error("this controller is shutting down")]
    Shutdown,
}

/// Why the process can not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// What the process should exit with.
    pub exit_code: i32,
    pub message: String,
}

impl Fatal {
    /// A disk that failed once is not asked again: what it holds is known only after a restart.
    pub const STORAGE: i32 = 74;
    /// The core is dead or stuck while the process lives.
    pub const CORE: i32 = 70;
    /// This replica must not take part as it is; an operator has to act.
    pub const IDENTITY: i32 = 78;

    pub(super) fn end_process(self) {
        eprintln!("drigs-controller: {}", self.message);
        std::process::exit(self.exit_code)
    }
}

impl From<ProposeError> for ApiError {
    fn from(error: ProposeError) -> Self {
        let kind = match &error {
            ProposeError::NotLeader { .. } | ProposeError::Unknown | ProposeError::Shutdown => {
                ErrorKind::Unavailable
            }
            ProposeError::Overloaded => ErrorKind::Overloaded,
        };
        ApiError::new(kind, error.to_string())
    }
}

fn hint(leader: Option<NodeId>) -> String {
    leader.map_or(String::from(", and knows of no leader"), |id| format!("; controller {id} does"))
}

impl From<MemberError> for ApiError {
    fn from(error: MemberError) -> Self {
        let kind = match &error {
            MemberError::NotLeader(_) | MemberError::Shutdown => ErrorKind::Unavailable,
            MemberError::Refused(_) | MemberError::Busy | MemberError::TimedOut(_) => {
                ErrorKind::Conflict
            }
        };
        ApiError::new(kind, error.to_string())
    }
}
