mod cluster;
mod conformance;
mod harness;
mod members;
mod recovery;
