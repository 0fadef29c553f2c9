//! Figures side by side.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::Instant,
};

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};

use super::{etcd, spread::Spread};

const FSYNCS: usize = 200;
/// About what one small entry of a log takes.
const FSYNC_BYTES: usize = 256;

/// A table whose first column says what was measured.
#[derive(Debug)]
pub struct Figures {
    table: Table,
    columns: usize,
}

impl Figures {
    pub fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Figures {
        let mut table = Table::new();
        let headings: Vec<&str> = headings.into_iter().collect();
        table.load_style(presets::ASCII_MARKDOWN).set_header(headings.iter().copied());
        Figures { table, columns: headings.len() }
    }

    pub fn row(&mut self, what: &str, cells: impl IntoIterator<Item = String>) {
        self.table.add_row([what.to_owned()].into_iter().chain(cells));
    }

    pub fn print(mut self, title: &str) {
        for column in 1..self.columns {
            if let Some(column) = self.table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        println!("\n{title}\n\n{}\n", self.table);
    }
}

/// Says on what the figures were measured: they compare within one run, and not between machines.
pub fn print_machine(dir: &Path) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    println!("machine: {cores} cores, Linux {}, load {load} at the start", kernel.trim());
    println!("disk: append of {FSYNC_BYTES} bytes and fdatasync: {}", fsync_times(dir)?);
    match etcd::version() {
        Some(version) => println!("peer: {version}"),
        None => println!("peer: etcd is not installed, so DRIGS is measured alone"),
    }
    Ok(())
}

fn fsync_times(dir: &Path) -> anyhow::Result<Spread> {
    let path = dir.join(format!("fsync-{}", std::process::id()));
    let times = (|| {
        let mut file = File::create(&path)?;
        (0..FSYNCS)
            .map(|_| {
                let began = Instant::now();
                file.write_all(&[7; FSYNC_BYTES])?;
                file.sync_data()?;
                Ok(began.elapsed())
            })
            .collect::<std::io::Result<Spread>>()
    })();
    // It may never have been made.
    let _ = fs::remove_file(&path);
    times.with_context(|| format!("cannot write in {}", dir.display()))
}
