//! What a worker does next, from what it was told and what it has.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{AttemptId, Bytes, MilliCpus, Order, StopReason};

/// An attempt as it stands on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// Its processes live, or are about to.
    Live { cpus: MilliCpus, memory: Bytes, stopping: bool },
    /// Over; its end is told until the orders no longer name it.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start(AttemptId),
    Stop(AttemptId, StopCause),
    /// Never started here, and must not be any more: report it as ended.
    Decline(AttemptId, StopReason),
    /// Begun before the controllers lost part of their history, and not living here: report how it ended, never start it.
    Account(AttemptId),
    /// Its end is committed; nothing about it needs to be kept but its output.
    Forget(AttemptId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    Ordered(StopReason),
    /// The orders do not name it: it was given up, and may already run elsewhere.
    NotOurs,
}

/// What this machine has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub cpus: MilliCpus,
    pub memory: Bytes,
}

/// The difference between what should be and what is.
pub fn reconcile(
    orders: &[Order],
    local: &BTreeMap<AttemptId, Local>,
    capacity: Capacity,
) -> Vec<Action> {
    let ordered: BTreeSet<AttemptId> = orders.iter().map(|order| order.attempt).collect();
    let mut actions: Vec<Action> = local
        .iter()
        .filter(|(attempt, _)| !ordered.contains(attempt))
        .filter_map(|(attempt, local)| match local {
            Local::Live { stopping: true, .. } => None,
            Local::Live { .. } => Some(Action::Stop(*attempt, StopCause::NotOurs)),
            Local::Ended => Some(Action::Forget(*attempt)),
        })
        .collect();
    let mut room = Room::left_by(local, &ordered, capacity);
    for order in orders {
        actions.extend(action_for(order, local.get(&order.attempt), &mut room));
    }
    actions
}

fn action_for(order: &Order, local: Option<&Local>, room: &mut Room) -> Option<Action> {
    match (local, order.stop) {
        (None, _) if order.begun => Some(Action::Account(order.attempt)),
        (None, Some(reason)) => Some(Action::Decline(order.attempt, reason)),
        (None, None) if room.take(order) => Some(Action::Start(order.attempt)),
        (Some(Local::Live { stopping: false, .. }), Some(reason)) => {
            Some(Action::Stop(order.attempt, StopCause::Ordered(reason)))
        }
        (None, None) | (Some(Local::Live { .. } | Local::Ended), _) => None,
    }
}

/// What live attempts leave for others.
struct Room {
    cpus: MilliCpus,
    memory: Bytes,
    /// Turns are taken in order: once one does not fit, none behind it starts.
    closed: bool,
    /// Something lives here that no order names: the controllers do not count it any more, and its GPUs are not free.
    leftovers: bool,
}

impl Room {
    fn left_by(
        local: &BTreeMap<AttemptId, Local>,
        ordered: &BTreeSet<AttemptId>,
        capacity: Capacity,
    ) -> Room {
        let Capacity { cpus, memory } = capacity;
        let mut room = Room { cpus, memory, closed: false, leftovers: false };
        for (attempt, local) in local {
            if let Local::Live { cpus, memory, .. } = local {
                room.cpus = room.cpus - *cpus;
                room.memory = room.memory - *memory;
                room.leftovers |= !ordered.contains(attempt);
            }
        }
        room
    }

    /// Whether the order may start now. What was ordered at once may, since the controllers keep that account; only
    /// leftovers, of which they do not know, make it wait.
    fn take(&mut self, order: &Order) -> bool {
        let slice = &order.slice;
        let fits = slice.cpus <= self.cpus && slice.memory <= self.memory;
        let starts = match (order.prefetched, self.leftovers) {
            (true, _) => fits && !self.closed,
            (false, true) => fits && slice.gpus.is_empty(),
            (false, false) => true,
        };
        self.closed |= order.prefetched && !starts;
        if starts || !order.prefetched {
            self.cpus = self.cpus - slice.cpus;
            self.memory = self.memory - slice.memory;
        }
        starts
    }
}
