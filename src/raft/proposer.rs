//! Collects proposals into batches. Whatever waits when there is room becomes one log entry, so that many clients share
//! one trip to the disks, and one client waits for nothing.

use std::{sync::Arc, time::Duration};

use openraft::{
    errors::{ClientWriteError, ForwardReason, ForwardToLeader},
    impls::ProgressResponder,
    raft::ClientWriteResult,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::Instant,
};

use crate::model::Timestamp;
use crate::raft::{
    Fence, ProposeError,
    types::{Core, Encoded, Types},
};
use crate::rpc::convert;
use crate::state::{Command, Outcome};

#[derive(Clone, Debug)]
pub struct Proposer {
    queue: mpsc::Sender<Proposal>,
    patience: Duration,
}

pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Debug)]
struct Proposal {
    fence: Option<Fence>,
    encoded: Vec<u8>,
    commands: usize,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<Outcome>, ProposeError>;

/// Proposals that may wait.
const BACKLOG: usize = 8192;
/// While one batch is on its way to the others, the next one already goes to the disk.
const IN_FLIGHT: usize = 2;
const MOST_COMMANDS: usize = 8192;
const MOST_BYTES: usize = 1 << 20;
/// Until a leader that was turned away is asked again.
pub(super) const MOMENT: Duration = Duration::from_millis(10);

impl Proposer {
    /// Must be called on the runtime that is to do the work.
    pub fn start(core: Core, clock: Clock, patience: Duration) -> Self {
        let (queue, inbox) = mpsc::channel(BACKLOG);
        tokio::spawn(collect(inbox, Log { core, patience }, clock));
        Proposer { queue, patience }
    }

    pub async fn propose(&self, fence: Option<Fence>, commands: &[Command]) -> Answer {
        let (answer, answered) = oneshot::channel();
        let encoded = convert::encode_commands(commands);
        let proposal = Proposal { fence, encoded, commands: commands.len(), answer };
        self.queue.try_send(proposal).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Shutdown,
        })?;
        match tokio::time::timeout(self.patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(ProposeError::Unknown),
        }
    }
}

/// Proposals that become one log entry, under one fence.
struct Collected {
    fence: Option<Fence>,
    proposals: Vec<Proposal>,
    commands: usize,
    bytes: usize,
}

impl Collected {
    fn of(first: Proposal) -> Self {
        let fence = first.fence.clone();
        let (commands, bytes) = (first.commands, first.encoded.len());
        Collected { fence, proposals: vec![first], commands, bytes }
    }

    fn has_room_for(&self, next: &Proposal) -> bool {
        next.fence == self.fence
            && self.commands + next.commands <= MOST_COMMANDS
            && self.bytes + next.encoded.len() <= MOST_BYTES
    }

    fn push(&mut self, next: Proposal) {
        self.commands += next.commands;
        self.bytes += next.encoded.len();
        self.proposals.push(next);
    }

    fn encode(&self, at: Timestamp) -> Encoded {
        let parts = self.proposals.iter().map(|proposal| &proposal.encoded[..]);
        Encoded(convert::join_commands(at, parts))
    }

    fn fail(self, error: &ProposeError) {
        for proposal in self.proposals {
            let _ = proposal.answer.send(Err(error.clone()));
        }
    }

    /// Hands each proposer its own part.
    fn settle(self, outcomes: Vec<Outcome>) {
        let mut outcomes = outcomes.into_iter();
        for proposal in self.proposals {
            let own = outcomes.by_ref().take(proposal.commands).collect();
            let _ = proposal.answer.send(Ok(own));
        }
    }
}

async fn collect(mut inbox: mpsc::Receiver<Proposal>, log: Log, clock: Clock) {
    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut held = None;
    loop {
        let first = match held.take() {
            Some(held) => held,
            None => match inbox.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        let permit = room.clone().acquire_owned().await.expect("never closed");
        let mut collected = Collected::of(first);
        while let Ok(next) = inbox.try_recv() {
            // Whoever gave up waiting is told that the outcome is unknown; better that there is none.
            if next.answer.is_closed() {
                continue;
            }
            if !collected.has_room_for(&next) {
                held = Some(next);
                break;
            }
            collected.push(next);
        }
        let batch = collected.encode((clock)());
        // Handed in here, one after the other, so that batches stay in order.
        let answer = log.hand_in(batch.clone(), collected.fence.as_ref()).await;
        tokio::spawn(settle(log.clone(), batch, collected, answer, permit));
    }
}

/// Where batches go.
#[derive(Clone)]
struct Log {
    core: Core,
    patience: Duration,
}

type Written = Result<oneshot::Receiver<ClientWriteResult<Types>>, ProposeError>;

impl Log {
    async fn hand_in(&self, batch: Encoded, fence: Option<&Fence>) -> Written {
        let (responder, done) = ProgressResponder::<Types, _>::complete_only();
        let mut request = self.core.write(batch).responder(responder);
        if let Some(fence) = fence {
            request = request.with_leader(fence.term);
        }
        request.await.map_err(|_| ProposeError::Shutdown)?;
        Ok(done)
    }
}

/// Waits for the batch to be applied, and tells everyone. What was turned away only for a moment is handed in again.
async fn settle(
    log: Log,
    batch: Encoded,
    collected: Collected,
    mut answer: Written,
    permit: OwnedSemaphorePermit,
) {
    let deadline = Instant::now() + log.patience;
    loop {
        let done = match answer {
            Ok(done) => done,
            Err(error) => return collected.fail(&error),
        };
        match done.await {
            Ok(Ok(written)) => {
                drop(permit);
                return collected.settle(written.data.0);
            }
            Ok(Err(ClientWriteError::ForwardToLeader(forward)))
                if is_momentary(&forward) && Instant::now() < deadline =>
            {
                tokio::time::sleep(MOMENT).await;
                answer = log.hand_in(batch.clone(), collected.fence.as_ref()).await;
            }
            Ok(Err(error)) => return collected.fail(&refusal(error)),
            Err(_) => return collected.fail(&ProposeError::Unknown),
        }
    }
}

/// It leads, but can not prove it just now, or is about to hand over.
pub(super) fn is_momentary(forward: &ForwardToLeader<Types>) -> bool {
    match forward.reason {
        ForwardReason::LeaseExpired | ForwardReason::LeadershipTransfer => true,
        ForwardReason::NotLeader => false,
    }
}

fn refusal(error: ClientWriteError<Types>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(forward) => {
            ProposeError::NotLeader { leader: forward.leader_id }
        }
        ClientWriteError::LogEntryDiscarded(_)
        | ClientWriteError::ChangeMembershipError(_)
        | ClientWriteError::PreconditionFailed(_) => ProposeError::Unknown,
    }
}
