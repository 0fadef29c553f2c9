mod cluster;
mod conformance;
mod harness;
mod members;
mod offline;
mod recovery;
