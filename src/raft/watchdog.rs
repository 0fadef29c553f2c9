//! A process whose core is dead must not go on serving.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use openraft::errors::Fatal as CoreFatal;
use tokio::runtime::Handle;

use crate::raft::{Fatal, types::Core};

/// Raises the alarm once, and not for what breaks because it was closed.
#[derive(Clone)]
pub struct Alarm {
    state: Arc<State>,
}

struct State {
    silent: AtomicBool,
    tell: Arc<dyn Fn(Fatal) + Send + Sync>,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Alarm {
    pub fn new(tell: Arc<dyn Fn(Fatal) + Send + Sync>) -> Self {
        Alarm { state: Arc::new(State { silent: AtomicBool::new(false), tell }) }
    }

    pub fn raise(&self, fatal: Fatal) {
        if !self.silence() {
            (self.state.tell)(fatal);
        }
    }

    /// From now on nothing is alarming. Says whether it was so already.
    pub fn silence(&self) -> bool {
        self.state.silent.swap(true, Ordering::SeqCst)
    }

    fn is_silent(&self) -> bool {
        self.state.silent.load(Ordering::SeqCst)
    }
}

/// Asks the core for a sign of life, from a thread that no busy runtime can hold up.
pub fn watch(core: Core, runtime: Handle, patience: Duration, alarm: Alarm) {
    while !alarm.is_silent() {
        let (sender, answer) = mpsc::channel();
        let asked = core.clone();
        runtime.spawn(async move {
            // The thread has stopped listening when it has already raised the alarm.
            let _ = sender.send(asked.with_raft_state(|_| ()).await);
        });
        let message = match answer.recv_timeout(patience) {
            Ok(Ok(())) => {
                thread::sleep(INTERVAL);
                continue;
            }
            Ok(Err(CoreFatal::StorageError(error))) => {
                return alarm
                    .raise(Fatal { exit_code: Fatal::STORAGE, message: error.to_string() });
            }
            Ok(Err(error @ (CoreFatal::Panicked | CoreFatal::Stopped))) => {
                format!("the replication core has ended: {error}")
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                format!("the replication core gave no sign of life for {patience:?}")
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                String::from("the replication runtime has ended")
            }
        };
        return alarm.raise(Fatal { exit_code: Fatal::CORE, message });
    }
}
