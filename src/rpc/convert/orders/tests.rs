use std::sync::Arc;

use proptest::prelude::*;
use prost::Message;

use super::{Decoder, Encoder};
use crate::model::{JobId, JobSpec, MilliCpus, Order, OrderStamp, Orders, StopReason};
use crate::rpc::{
    convert::Malformed,
    proto,
    session::ControllerMessage,
    tests::samples::{self, orders_of_array},
};

/// Both ends of one stream.
#[derive(Default)]
struct Stream {
    encoder: Encoder,
    decoder: Decoder,
}

impl Stream {
    /// What arrives, and how many messages and bytes it took.
    fn send(&mut self, message: ControllerMessage) -> (ControllerMessage, usize, usize) {
        let messages = self.encoder.encode(message);
        let count = messages.len();
        let bytes = messages.iter().map(Message::encoded_len).sum();
        let mut arrived: Vec<_> = messages
            .into_iter()
            .filter_map(|message| self.decoder.decode(message).unwrap())
            .collect();
        assert_eq!(arrived.len(), 1, "what was said once arrives once");
        (arrived.remove(0), count, bytes)
    }

    fn orders(&mut self, orders: &Orders) -> (usize, usize) {
        let message = ControllerMessage::Orders { answers: 4, orders: orders.clone() };
        let (arrived, count, bytes) = self.send(message.clone());
        assert_eq!(arrived, message);
        assert!(
            self.decoder.specs.keys().eq(self.encoder.specs.values().map(|(number, _)| number))
        );
        (count, bytes)
    }
}

#[test]
fn bodies_and_specs_travel_once() {
    let mut stream = Stream::default();
    let mut orders = orders_of_array(JobSpec::default(), 1000);
    let (messages, first) = stream.orders(&orders);
    assert_eq!(messages, 2, "one spec, one set");
    let (messages, again) = stream.orders(&orders);
    assert_eq!(messages, 1);
    assert!(again < 16_000 && again * 4 < first, "{first} bytes, then {again}");

    for order in &mut orders.orders {
        order.stop = Some(StopReason::Preempted);
        order.prefetched = true;
    }
    assert_eq!(stream.orders(&orders).0, 1);
    orders.orders.truncate(1);
    orders.orders[0].slice.cpus = MilliCpus(1);
    assert_eq!(stream.orders(&orders).0, 1, "another body, the same spec");
}

#[test]
fn what_left_the_set_comes_whole_again() {
    let mut stream = Stream::default();
    let orders = orders_of_array(JobSpec::default(), 1);
    let none = Orders { orders: Vec::new(), ..orders.clone() };
    let (_, first) = stream.orders(&orders);
    stream.orders(&none);
    assert!(stream.decoder.specs.is_empty() && stream.decoder.received.is_empty());
    assert_eq!(stream.orders(&orders).1, first);
}

#[test]
fn a_changed_spec_is_sent_and_the_old_one_forgotten() {
    let mut stream = Stream::default();
    stream.orders(&orders_of_array(JobSpec::default(), 3));
    let urgent = JobSpec { priority: 9, ..JobSpec::default() };
    assert_eq!(stream.orders(&orders_of_array(urgent, 3)).0, 2);
    assert_eq!(stream.decoder.specs.len(), 1);
}

#[test]
fn tasks_of_one_job_share_its_spec_in_memory() {
    let mut stream = Stream::default();
    let orders = orders_of_array(JobSpec::default(), 2);
    let message = ControllerMessage::Orders { answers: 1, orders };
    let (ControllerMessage::Orders { orders, .. }, ..) = stream.send(message) else {
        panic!("orders stay orders")
    };
    assert!(Arc::ptr_eq(&orders.orders[0].spec, &orders.orders[1].spec));
}

#[test]
fn orders_without_what_they_build_on_are_refused() {
    let mut encoder = Encoder::default();
    let message =
        ControllerMessage::Orders { answers: 1, orders: orders_of_array(samples::spec(), 1) };
    let whole = encoder.encode(message.clone());
    let short = encoder.encode(message);
    let fault = |message: &proto::ControllerMessage| {
        Decoder::default().decode(message.clone()).unwrap_err().to_string()
    };
    assert_eq!(fault(&short[0]), Malformed::Missing("order.body").to_string());
    assert_eq!(fault(&whole[1]), Malformed::Missing("shared_spec").to_string());
}

fn any_order() -> impl Strategy<Value = Order> {
    (0u64..3, 0u32..4, 0u32..3, 0u64..2, any::<bool>(), any::<bool>()).prop_map(
        |(job, index, priority, cpus, stop, prefetched)| {
            let spec = Arc::new(JobSpec { priority, ..JobSpec::default() });
            let mut order = samples::order(index, spec);
            order.attempt.task.job = JobId(job);
            order.slice.cpus = MilliCpus(cpus);
            order.stop = stop.then_some(StopReason::User);
            order.prefetched = prefetched;
            order
        },
    )
}

/// A set names each attempt once.
fn any_set() -> impl Strategy<Value = Orders> {
    proptest::collection::vec(any_order(), 0..8).prop_map(|mut orders| {
        let mut seen = std::collections::BTreeSet::new();
        orders.retain(|order| seen.insert(order.attempt));
        let stamp = OrderStamp { term: 1, index: 2 };
        Orders { stamp, orders, lease: crate::model::Millis(5) }
    })
}

proptest! {
    #[test]
    fn every_sequence_of_sets_arrives_as_it_was_sent(
        sets in proptest::collection::vec(any_set(), 1..12)
    ) {
        let mut stream = Stream::default();
        for set in sets {
            let message = ControllerMessage::Orders { answers: 4, orders: set };
            prop_assert_eq!(stream.send(message.clone()).0, message);
        }
    }
}
