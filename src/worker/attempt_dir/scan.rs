//! What became of the attempts: how a restarted agent finds them again.

use std::{fs, io};

use super::{AttemptDir, Claim, DataDir, Ended, Exit, Launch, Tree};
use crate::{
    model::AttemptId,
    worker::{clock::wall_clock, process::Process},
};

/// What an attempt's directory, and a look at its processes, say.
#[derive(Clone, Debug)]
pub enum Status {
    /// Its start may still be under way.
    Unclaimed,
    /// It was made sure that it never starts.
    Void,
    /// Its shim lives; `main` is `None` until the job was started.
    Running {
        shim: Process,
        main: Option<Process>,
    },
    /// Its shim is gone and has not said how it ended.
    SupervisorLost {
        main: Option<Process>,
    },
    /// What ran then ran before the machine's last start.
    Rebooted,
    Ended(Exit),
}

/// An attempt that an agent finds when it starts.
#[derive(Clone, Debug)]
pub struct Found {
    pub attempt: AttemptId,
    /// `None` when the agent died while it wrote it; such an attempt never started.
    pub launch: Option<Launch>,
    pub state: FoundState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundState {
    /// And never will, unless it is forgotten and started anew.
    NeverStarted,
    Running {
        shim: Process,
        main: Option<Process>,
    },
    /// Its shim is gone. What is left of it is being ended; its end will be told as an event.
    SupervisorLost {
        main: Option<Process>,
    },
    Ended(Exit),
}

impl AttemptDir {
    /// # Errors
    /// The claim is there, but cannot be read.
    pub fn status(&self, boot_id: &str) -> io::Result<Status> {
        if let Some(exit) = self.exit().filter(Exit::is_final) {
            return Ok(Status::Ended(exit));
        }
        let Some((claim, main)) = self.claimed()? else {
            let rebooted = self.prepared().is_ok_and(|prepared| prepared.boot_id != boot_id);
            return Ok(if rebooted { Status::Rebooted } else { Status::Unclaimed });
        };
        if claim.boot_id != boot_id {
            return Ok(Status::Rebooted);
        }
        let Some(shim) = claim.shim else { return Ok(Status::Void) };
        if shim.is_alive() {
            return Ok(Status::Running { shim, main });
        }
        // It may have written its last word between the two looks.
        Ok(match self.exit().filter(Exit::is_final) {
            Some(exit) => Status::Ended(exit),
            None => Status::SupervisorLost { main },
        })
    }

    /// Sees to it that an unclaimed attempt never starts; `false` when a shim was quicker.
    ///
    /// # Errors
    /// The claim cannot be written.
    pub fn void(&self, boot_id: &str) -> io::Result<bool> {
        let claim = Claim { boot_id: boot_id.to_owned(), shim: None };
        Ok(self.claim(&claim)?.is_some())
    }

    /// Records the end of an attempt whose shim cannot, keeping what it may have said of the main process.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn conclude(&self, ended: Ended, left: Vec<i32>) -> io::Result<Exit> {
        let mut exit = self.exit().unwrap_or_else(|| Exit::at_once(ended, wall_clock()));
        exit.tree = if left.is_empty() { Tree::Empty } else { Tree::Unkillable(left) };
        self.write_exit(&exit)?;
        Ok(exit)
    }
}

/// Every attempt that was not settled yet. Settles nothing itself, but when it returns, no start is under way.
///
/// # Errors
/// The data directory cannot be read or written.
pub fn scan(dir: &DataDir, boot_id: &str) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir.attempts())? {
        let name = entry?.file_name();
        let Some(attempt) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let attempt_dir = dir.attempt(attempt);
        let launch = attempt_dir.prepared().ok().map(|prepared| prepared.launch);
        found.push(Found { attempt, launch, state: find_state(&attempt_dir, boot_id)? });
    }
    found.sort_by_key(|found| found.attempt);
    Ok(found)
}

fn find_state(attempt: &AttemptDir, boot_id: &str) -> io::Result<FoundState> {
    loop {
        return Ok(match attempt.status(boot_id)? {
            Status::Unclaimed if attempt.void(boot_id)? => FoundState::NeverStarted,
            Status::Unclaimed => continue,
            Status::Void => FoundState::NeverStarted,
            Status::Running { shim, main } => FoundState::Running { shim, main },
            Status::SupervisorLost { main } => FoundState::SupervisorLost { main },
            Status::Rebooted => FoundState::Ended(attempt.conclude(Ended::Rebooted, vec![])?),
            Status::Ended(exit) => FoundState::Ended(exit),
        });
    }
}
