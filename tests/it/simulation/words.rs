//! What workers and controllers say to each other, as `rpc::session` has it but without what only people read.

use drigs::model::{AttemptReport, Gpu, Orders};
use drigs::state::RegisterWorker;

#[derive(Clone, Debug)]
pub enum Up {
    Hello { registration: Box<RegisterWorker>, owed: Vec<AttemptReport> },
    Report { number: u64, attempts: Vec<AttemptReport>, gpus: Option<Vec<Gpu>> },
}

#[derive(Clone, Debug)]
pub enum Down {
    Welcome,
    /// Not the leader, or not any more.
    Redirect {
        leader: Option<usize>,
    },
    Refused,
    Orders {
        answers: u64,
        orders: Orders,
    },
}
