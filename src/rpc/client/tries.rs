//! How long a call goes on trying, and what it says when it gives up.

use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;

use crate::rpc::{
    api::{ApiError, ErrorKind},
    client::route::Line,
};

/// Why one try brought no answer.
#[derive(Debug)]
pub(super) enum Miss {
    /// A controller's word that would be the same the next time.
    Final(ApiError),
    /// Too much at once: the same controller may answer a little later.
    Overloaded(ApiError),
    /// Another controller may answer.
    Unavailable { address: String, reason: String, reached: bool },
}

/// The tries of one call.
#[derive(Debug)]
pub(super) struct Tries {
    end: Instant,
    pause: Duration,
    /// Who was tried, with how it went the last time, in the order of the first tries.
    tried: Vec<Tried>,
}

/// How it went with one controller.
#[derive(Debug)]
struct Tried {
    address: String,
    reason: String,
    /// The reason is its own word.
    reached: bool,
}

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// A try with less time than this would tell more of the deadline than of the controller.
const SHORTEST_TRY: Duration = Duration::from_millis(50);

impl Miss {
    pub(super) fn answered(line: &Line, error: ApiError) -> Miss {
        match error.kind {
            ErrorKind::Unavailable => Miss::Unavailable {
                address: line.address.clone(),
                reason: error.message,
                reached: true,
            },
            ErrorKind::Overloaded => Miss::Overloaded(error),
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Denied
            | ErrorKind::Internal => Miss::Final(error),
        }
    }

    pub(super) fn broken(line: &Line, reason: String) -> Miss {
        Miss::Unavailable { address: line.address.clone(), reason, reached: false }
    }

    pub(super) fn asks_for_another(&self) -> bool {
        match self {
            Miss::Unavailable { .. } => true,
            Miss::Final(_) | Miss::Overloaded(_) => false,
        }
    }

    /// When there is only this one try.
    pub(super) fn into_error(self) -> ApiError {
        match self {
            Miss::Final(error) | Miss::Overloaded(error) => error,
            Miss::Unavailable { address, reason, reached } => {
                let message =
                    if reached { reason } else { format!("the leader at {address}: {reason}") };
                ApiError::new(ErrorKind::Unavailable, message)
            }
        }
    }
}

impl Tries {
    pub(super) fn new(deadline: Duration) -> Self {
        Tries { end: Instant::now() + deadline, pause: FIRST_PAUSE, tried: Vec::new() }
    }

    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Returns when it is time for the next try.
    ///
    /// # Errors
    /// There is none: another try would bring the same, or there is no time for one.
    pub(super) async fn after(&mut self, miss: Miss) -> Result<(), ApiError> {
        let overloaded = match miss {
            Miss::Final(error) => return Err(error),
            Miss::Overloaded(error) => Some(error),
            Miss::Unavailable { address, reason, reached } => {
                self.remember(Tried { address, reason, reached });
                None
            }
        };
        let pause = self.pause.mul_f64(rand::rng().random_range(0.5..1.0));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if pause + SHORTEST_TRY >= self.left() {
            return Err(overloaded.unwrap_or_else(|| self.in_vain()));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn remember(&mut self, now: Tried) {
        let over = self.left() < SHORTEST_TRY;
        match self.tried.iter_mut().find(|known| known.address == now.address) {
            // That the last try was cut short by the deadline says less than what the controller said before.
            Some(last) if over && last.reached && !now.reached => {}
            Some(last) => *last = now,
            None => self.tried.push(now),
        }
    }

    fn in_vain(&self) -> ApiError {
        let reached = self.tried.iter().any(|it| it.reached);
        let tried: Vec<String> =
            self.tried.iter().map(|it| format!("{} ({})", it.address, it.reason)).collect();
        let tried = tried.join(", ");
        let message = if reached {
            format!("no controller could answer: tried {tried}")
        } else {
            format!(
                "no controller reachable: tried {tried}; is one running? DRIGS_CONTROLLERS names them"
            )
        };
        ApiError::new(ErrorKind::Unavailable, message)
    }
}
