//! What travels: the generated code, and the only place that knows both it and the model.

pub(crate) mod convert;

/// Generated from `proto/`. Never named outside this room and the two that carry it (raft, and the services).
pub(crate) mod proto {
    #![allow(
        missing_debug_implementations,
        clippy::all,
        reason = "generated code follows its generator's style"
    )]
    tonic::include_proto!("drigs.v1");
}
