//! Whole sets of orders are sent often and change little, so what is the same as in the set before stays unsaid: of an
//! order that the worker has, only its name, and whether to stop it. One encoder and one decoder live as long as one
//! stream; a new stream begins with everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::model::{AttemptId, JobId, JobSpec, Order, OrderStamp, Orders};
use crate::rpc::{
    convert::{Malformed, required, session},
    proto::{self, controller_message::Kind},
    session::ControllerMessage,
};

/// The leader's end of one stream.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// The last set, which the worker has.
    sent: BTreeMap<AttemptId, Known>,
    /// Specs that the last set uses, with their numbers.
    specs: BTreeMap<JobId, (u64, Arc<JobSpec>)>,
    last_number: u64,
}

/// The worker's end of one stream.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The last set.
    received: BTreeMap<AttemptId, Known>,
    /// Specs that the last set uses, and those that came after it, by their numbers.
    specs: BTreeMap<u64, Arc<JobSpec>>,
}

/// An order that both ends have, and the number of its spec.
#[derive(Debug)]
struct Known {
    order: Order,
    spec: u64,
}

impl Encoder {
    /// The messages that say this, in the order in which they must travel.
    pub(crate) fn encode(&mut self, message: ControllerMessage) -> Vec<proto::ControllerMessage> {
        let kind = match message {
            ControllerMessage::Welcome(welcome) => Kind::Welcome(welcome.into()),
            ControllerMessage::Redirect { leader } => Kind::Redirect(proto::Redirect { leader }),
            ControllerMessage::Refused { reason, retry } => {
                Kind::Refused(proto::Refused { reason, retry })
            }
            ControllerMessage::OpenLog { stream, request } => {
                Kind::OpenLog((stream, request).into())
            }
            ControllerMessage::Orders { answers, orders } => return self.orders(answers, orders),
        };
        vec![proto::ControllerMessage { kind: Some(kind) }]
    }

    fn orders(&mut self, answers: u64, orders: Orders) -> Vec<proto::ControllerMessage> {
        let mut messages = Vec::new();
        let mut before = std::mem::take(&mut self.sent);
        let mut wire = Vec::with_capacity(orders.orders.len());
        for order in orders.orders {
            let known = before.remove(&order.attempt).filter(|sent| same_body(&sent.order, &order));
            let (spec, body) = match known {
                Some(sent) => (sent.spec, None),
                None => {
                    let spec = self.number(&order, &mut messages);
                    (spec, Some(body(&order, spec)))
                }
            };
            wire.push(proto::Order {
                attempt: Some(order.attempt.into()),
                stop: order.stop.map(|reason| proto::StopReason::from(reason).into()),
                prefetched: order.prefetched,
                body,
            });
            self.sent.insert(order.attempt, Known { order, spec });
        }
        self.forget_unused_specs();
        messages.push(Kind::Orders(proto::Orders {
            answers,
            term: orders.stamp.term,
            index: orders.stamp.index,
            lease_ms: orders.lease.0,
            orders: wire,
        }));
        messages.into_iter().map(|kind| proto::ControllerMessage { kind: Some(kind) }).collect()
    }

    /// The number of the order's spec; a spec that the worker does not have goes ahead.
    fn number(&mut self, order: &Order, ahead: &mut Vec<Kind>) -> u64 {
        let job = order.attempt.task.job;
        if let Some((number, spec)) = self.specs.get(&job)
            && same_spec(spec, &order.spec)
        {
            return *number;
        }
        self.last_number += 1;
        let number = self.last_number;
        ahead.push(Kind::Spec(proto::SharedSpec { number, spec: Some((&*order.spec).into()) }));
        self.specs.insert(job, (number, order.spec.clone()));
        number
    }

    /// The decoder forgets the same ones.
    fn forget_unused_specs(&mut self) {
        let used: BTreeSet<u64> = self.sent.values().map(|sent| sent.spec).collect();
        self.specs.retain(|_, (number, _)| used.contains(number));
    }
}

fn same_body(one: &Order, other: &Order) -> bool {
    one.slice == other.slice
        && same_spec(&one.spec, &other.spec)
        && one.lost_after == other.lost_after
        && (one.node, one.nodes, one.world_size) == (other.node, other.nodes, other.world_size)
        && one.begun == other.begun
}

fn same_spec(one: &Arc<JobSpec>, other: &Arc<JobSpec>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn body(order: &Order, spec: u64) -> proto::OrderBody {
    proto::OrderBody {
        slice: Some((&order.slice).into()),
        spec,
        lost_after: Some(order.lost_after.into()),
        node: order.node,
        nodes: order.nodes,
        world_size: order.world_size,
        begun: order.begun,
    }
}

impl Decoder {
    /// Takes one message in; `None` when it only prepares a later one.
    ///
    /// # Errors
    /// The message makes no sense here. The stream must be given up: what follows may build on it.
    pub(crate) fn decode(
        &mut self,
        message: proto::ControllerMessage,
    ) -> Result<Option<ControllerMessage>, Malformed> {
        Ok(Some(match message.kind.ok_or(Malformed::Missing("controller_message.kind"))? {
            Kind::Welcome(welcome) => ControllerMessage::Welcome(welcome.try_into()?),
            Kind::Redirect(proto::Redirect { leader }) => ControllerMessage::Redirect { leader },
            Kind::Refused(proto::Refused { reason, retry }) => {
                ControllerMessage::Refused { reason, retry }
            }
            Kind::OpenLog(open) => {
                let (stream, request) = open.try_into()?;
                ControllerMessage::OpenLog { stream, request }
            }
            Kind::Spec(proto::SharedSpec { number, spec }) => {
                let spec: JobSpec = required(spec, "shared_spec.spec")?;
                self.specs.insert(number, Arc::new(spec));
                return Ok(None);
            }
            Kind::Orders(orders) => self.orders(orders)?,
        }))
    }

    fn orders(&mut self, wire: proto::Orders) -> Result<ControllerMessage, Malformed> {
        let mut before = std::mem::take(&mut self.received);
        let mut orders = Vec::with_capacity(wire.orders.len());
        for order in wire.orders {
            let known = self.order(order, &mut before)?;
            orders.push(known.order.clone());
            self.received.insert(known.order.attempt, known);
        }
        let used: BTreeSet<u64> = self.received.values().map(|known| known.spec).collect();
        self.specs.retain(|number, _| used.contains(number));
        let stamp = OrderStamp { term: wire.term, index: wire.index };
        let orders = Orders { stamp, orders, lease: session::lease(wire.lease_ms)? };
        Ok(ControllerMessage::Orders { answers: wire.answers, orders })
    }

    fn order(
        &self,
        wire: proto::Order,
        before: &mut BTreeMap<AttemptId, Known>,
    ) -> Result<Known, Malformed> {
        let attempt = required(wire.attempt, "order.attempt")?;
        let stop = wire.stop.map(proto::StopReason::decode).transpose()?;
        let mut known = match wire.body {
            Some(body) => self.with_body(attempt, body)?,
            None => before.remove(&attempt).ok_or(Malformed::Missing("order.body"))?,
        };
        known.order.stop = stop;
        known.order.prefetched = wire.prefetched;
        Ok(known)
    }

    fn with_body(&self, attempt: AttemptId, body: proto::OrderBody) -> Result<Known, Malformed> {
        let spec = self.specs.get(&body.spec).ok_or(Malformed::Missing("shared_spec"))?;
        let order = Order {
            attempt,
            slice: required(body.slice, "order.slice")?,
            spec: spec.clone(),
            lost_after: required(body.lost_after, "order.lost_after")?,
            stop: None,
            prefetched: false,
            node: body.node,
            nodes: body.nodes,
            world_size: body.world_size,
            begun: body.begun,
        };
        Ok(Known { order, spec: body.spec })
    }
}

#[cfg(test)]
mod tests;
