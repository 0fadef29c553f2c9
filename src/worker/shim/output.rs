//! What a job prints: one file, kept to a limit by punching holes over its oldest part. So an offset in the output is an
//! offset in the file for ever, and nothing that is written meanwhile can be lost, as it would by rotation.
//!
//! Where a filesystem has no holes, the file is cut to nothing instead, and `output.dropped` says how much went before.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    time::Duration,
};

use rustix::{
    fs::{FallocateFlags, SeekFrom, fallocate, seek},
    io::Errno,
};

use crate::{
    model::Millis,
    worker::{
        attempt_dir::{AttemptDir, Exit},
        clock::BootTime,
    },
};

const DROPPED: &str = "output.dropped";
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
/// A reader that is overtaken by the limit this often takes what it gets.
const READ_TRIES: usize = 3;

/// A piece of an attempt's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Where `bytes` begin: later than asked for when the output before that was dropped.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Where the output ends as yet.
    pub end: u64,
    /// What lies before this is gone.
    pub dropped_before: u64,
    /// The attempt is over and `bytes` reach the end: there will be no more.
    pub complete: bool,
}

/// The shim's side: keeps the file to its limit.
#[derive(Debug)]
pub struct Output {
    attempt: AttemptDir,
    file: File,
    limit: u64,
    has_holes: bool,
    /// The file is a hole, or was cut, up to here.
    dropped: u64,
    last_size: u64,
    last_look: BootTime,
}

impl Output {
    /// # Errors
    /// The file cannot be made.
    pub fn create(attempt: &AttemptDir, limit: u64) -> io::Result<Output> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(attempt.output())?;
        Ok(Output {
            attempt: attempt.clone(),
            file,
            limit,
            has_holes: true,
            dropped: 0,
            last_size: 0,
            last_look: BootTime::now(),
        })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Drops the oldest part if there is too much, and says when to look again: the sooner, the faster it grows.
    pub fn keep_to_limit(&mut self, now: BootTime) -> Duration {
        let Ok(size) = self.file.metadata().map(|metadata| metadata.len()) else {
            return LONGEST_WAIT;
        };
        let grown = size.saturating_sub(self.last_size);
        let wait = wait_for_growth(grown, now.since(self.last_look), self.limit / 2);
        (self.last_size, self.last_look) = (size, now);
        self.dropped = self.dropped.min(size);
        if size - self.dropped > self.limit {
            self.drop_oldest(size);
        }
        wait
    }

    /// Errors are left for the next look: the disk may be in trouble, the job is not.
    fn drop_oldest(&mut self, size: u64) {
        if self.has_holes {
            match self.punch(size) {
                Ok(()) => return,
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.has_holes = false,
                Err(_) => return,
            }
        }
        let _ = self.cut(size);
    }

    /// Keeps the newest three quarters, so that not every write needs a punch. Whole blocks only: part of a block would
    /// be filled with zeroes, which a reader could not tell from output.
    fn punch(&mut self, size: u64) -> Result<(), Errno> {
        let block = self.file.metadata().map_or(4096, |metadata| metadata.blksize().max(4096));
        let end = (size - self.limit / 4 * 3) / block * block;
        if end <= self.dropped {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, self.dropped, end - self.dropped)?;
        self.dropped = end;
        Ok(())
    }

    /// The count comes after the cut: between the two a reader finds its place to lie ahead, and waits.
    fn cut(&mut self, size: u64) -> io::Result<()> {
        self.file.set_len(0)?;
        (self.dropped, self.last_size) = (0, 0);
        let path = self.attempt.path().join(DROPPED);
        let draft = path.with_extension("draft");
        fs::write(&draft, (cut_before(&self.attempt) + size).to_string())?;
        fs::rename(draft, path)
    }
}

fn wait_for_growth(grown: u64, during: Millis, room: u64) -> Duration {
    if grown == 0 {
        return LONGEST_WAIT;
    }
    let millis = u128::from(room) * u128::from(during.0.max(1)) / u128::from(grown);
    let wait = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

/// How much a filesystem without holes has lost by cuts.
fn cut_before(attempt: &AttemptDir) -> u64 {
    let count = fs::read_to_string(attempt.path().join(DROPPED));
    count.ok().and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Reads up to `max` bytes from `offset`, or from the oldest byte that is kept. Blocks as files do.
///
/// # Errors
/// The output cannot be read. That there is none (yet) is no error.
pub fn read(attempt: &AttemptDir, offset: u64, max: usize) -> io::Result<Chunk> {
    // In this order: once the attempt is over, the size read next is the last one.
    let over = attempt.exit().is_some_and(|exit| Exit::is_final(&exit));
    let mut chunk = match File::open(attempt.output()) {
        Ok(file) => read_file(&file, cut_before(attempt), offset, max)?,
        Err(error) if error.kind() == ErrorKind::NotFound => Chunk { offset, ..Chunk::default() },
        Err(error) => return Err(error),
    };
    chunk.complete = over && chunk.offset + chunk.bytes.len() as u64 >= chunk.end;
    Ok(chunk)
}

/// `base` is the output's offset at which the file begins.
fn read_file(file: &File, base: u64, offset: u64, max: usize) -> io::Result<Chunk> {
    let wanted = offset.saturating_sub(base);
    let mut tries = 0;
    loop {
        let size = file.metadata()?.len();
        let start = wanted.max(first_data(file, size)?).min(size);
        let length = (size - start).min(max as u64) as usize;
        let mut bytes = vec![0; length];
        let read = file.read_at(&mut bytes, start)?;
        bytes.truncate(read);
        // What was punched out while it was read came as zeroes.
        let dropped = first_data(file, size)?;
        tries += 1;
        if dropped <= start || tries == READ_TRIES {
            let (offset, end, dropped_before) = (base + start, base + size, base + dropped);
            return Ok(Chunk { offset, bytes, end, dropped_before, complete: false });
        }
    }
}

fn first_data(file: &File, size: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(0)) {
        Ok(offset) => Ok(offset.min(size)),
        Err(Errno::NXIO) => Ok(size),
        Err(Errno::INVAL) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::TempDir;

    use super::*;
    use crate::{
        model::{AttemptId, JobId, TaskId},
        worker::attempt_dir::DataDir,
    };

    const BLOCK: usize = 4096;
    const LIMIT: u64 = 8 * BLOCK as u64;

    fn output() -> (TempDir, Output) {
        let root = TempDir::new().unwrap();
        let dir = DataDir::create(root.path()).unwrap();
        let attempt = AttemptId { task: TaskId { job: JobId(1), index: 0 }, number: 1 };
        fs::create_dir(dir.attempt(attempt).path()).unwrap();
        let output = Output::create(&dir.attempt(attempt), LIMIT).unwrap();
        (root, output)
    }

    /// Block `n` is filled with the letter that has the number `n`.
    fn print(output: &Output, blocks: std::ops::Range<u8>) {
        for block in blocks {
            output.file().write_all(&[b'a' + block; BLOCK]).unwrap();
        }
    }

    fn read_letters(output: &Output, from: u64) -> (u64, String, u64) {
        let chunk = read(&output.attempt, from, 1 << 20).unwrap();
        assert!(!chunk.complete);
        let letters = chunk.bytes.iter().step_by(BLOCK).map(|byte| char::from(*byte)).collect();
        (chunk.offset / BLOCK as u64, letters, chunk.dropped_before / BLOCK as u64)
    }

    #[test]
    fn the_newest_part_is_kept_at_its_offset() {
        let (_root, mut output) = output();
        print(&output, 0..8);
        output.keep_to_limit(BootTime::now());
        assert_eq!(read_letters(&output, 0), (0, "abcdefgh".to_owned(), 0));
        print(&output, 8..10);
        output.keep_to_limit(BootTime::now());
        assert_eq!(read_letters(&output, 0), (4, "efghij".to_owned(), 4));
        assert_eq!(read_letters(&output, 9 * BLOCK as u64), (9, "j".to_owned(), 4));
        assert_eq!(read_letters(&output, 99 * BLOCK as u64), (10, String::new(), 4));
    }

    #[test]
    fn without_holes_the_file_is_cut_and_offsets_go_on() {
        let (_root, mut output) = output();
        output.has_holes = false;
        for begin in [0, 10] {
            print(&output, begin..begin + 10);
            output.keep_to_limit(BootTime::now());
            let end = u64::from(begin) + 10;
            assert_eq!(read_letters(&output, 0), (end, String::new(), end));
        }
        print(&output, 20..22);
        output.keep_to_limit(BootTime::now());
        assert_eq!(read_letters(&output, 21 * BLOCK as u64), (21, "v".to_owned(), 20));
    }

    #[test]
    fn a_job_that_truncates_its_own_output_confuses_nobody() {
        let (_root, mut output) = output();
        print(&output, 0..10);
        output.keep_to_limit(BootTime::now());
        output.file.set_len(0).unwrap();
        print(&output, 0..1);
        output.keep_to_limit(BootTime::now());
        assert_eq!(read_letters(&output, 5), (0, "a".to_owned(), 0));
    }

    #[test]
    fn the_faster_it_grows_the_sooner_it_is_looked_at() {
        let wait = |grown, during| wait_for_growth(grown, Millis(during), 32 << 20).as_millis();
        assert_eq!(wait(0, 1000), 1000);
        assert_eq!(wait(1000, 1000), 1000);
        assert_eq!(wait(1 << 30, 1000), 31);
        assert_eq!(wait(64 << 30, 1000), 5);
    }
}
