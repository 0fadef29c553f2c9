//! Collects proposals into batches. Whatever waits when there is room becomes one log entry, so that many clients share
//! one trip to the disks, and one client waits for nothing.

use std::{sync::Arc, time::Duration};

use openraft::{errors::ClientWriteError, impls::ProgressResponder, raft::ClientWriteResult};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

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

impl Proposer {
    /// Must be called on the runtime that is to do the work.
    pub fn start(core: Core, clock: Clock, patience: Duration) -> Self {
        let (queue, inbox) = mpsc::channel(BACKLOG);
        tokio::spawn(collect(inbox, core, clock));
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

async fn collect(mut inbox: mpsc::Receiver<Proposal>, core: Core, clock: Clock) {
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
        write(&core, collected, (clock)(), permit).await;
    }
}

async fn write(core: &Core, collected: Collected, at: Timestamp, permit: OwnedSemaphorePermit) {
    let parts = collected.proposals.iter().map(|proposal| &proposal.encoded[..]);
    let batch = Encoded(convert::join_commands(at, parts));
    let (responder, done) = ProgressResponder::<Types, _>::complete_only();
    let mut request = core.write(batch).responder(responder);
    if let Some(fence) = &collected.fence {
        request = request.with_leader(fence.term);
    }
    // Only handed to the core here, so that batches stay in order.
    if request.await.is_err() {
        return collected.fail(&ProposeError::Shutdown);
    }
    tokio::spawn(async move {
        let result: Option<ClientWriteResult<Types>> = done.await.ok();
        drop(permit);
        match result {
            Some(Ok(written)) => collected.settle(written.data.0),
            Some(Err(error)) => collected.fail(&refusal(error)),
            None => collected.fail(&ProposeError::Unknown),
        }
    });
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
