//! Compiles every file under `proto/`, without a `protoc` on the machine.

use std::{error::Error, fs, path::PathBuf};

const PROTO: &str = "proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let mut files: Vec<PathBuf> = fs::read_dir(format!("{PROTO}/drigs/v1"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    let descriptors = protox::compile(files, [PROTO])?;
    // Ordered maps, so that equal messages have equal bytes.
    tonic_prost_build::configure().btree_map(".").bytes(".").compile_fds(descriptors)?;
    Ok(())
}
