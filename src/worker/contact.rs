//! When this worker last knew that a leader listened, kept where every shim can read it: a shim ends its attempt when
//! that is too long ago, whether or not the agent lives to tell it.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
};

use crate::worker::{attempt_dir::DataDir, clock::BootTime};

const FILE: &str = "contact";
const TIME_LENGTH: usize = size_of::<u64>();

/// The agent's side. The file holds the time and then the boot id without which the time means nothing.
#[derive(Debug)]
pub struct Contact {
    file: File,
    last: BootTime,
}

impl Contact {
    /// Keeps what an earlier agent wrote since the machine's last start: a restart of the agent is not a contact.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(dir: &DataDir, boot_id: &str) -> io::Result<Contact> {
        let last = last_contact(dir, boot_id).unwrap_or_default();
        let path = dir.root().join(FILE);
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let contact = Contact { file, last };
        contact.write(last)?;
        contact.file.write_all_at(boot_id.as_bytes(), TIME_LENGTH as u64)?;
        Ok(contact)
    }

    /// A leader answered a report that was *sent* at `sent`. What is older than the last is ignored.
    ///
    /// # Errors
    /// It cannot be written; attempts may then end sooner than they must, never later.
    pub fn record(&mut self, sent: BootTime) -> io::Result<()> {
        if sent <= self.last {
            return Ok(());
        }
        self.write(sent)?;
        self.last = sent;
        Ok(())
    }

    pub fn last(&self) -> BootTime {
        self.last
    }

    fn write(&self, time: BootTime) -> io::Result<()> {
        self.file.write_all_at(&time.0.to_le_bytes(), 0)
    }
}

/// `None` when there was no contact since the machine's last start.
pub fn last_contact(dir: &DataDir, boot_id: &str) -> Option<BootTime> {
    let file = File::open(dir.root().join(FILE)).ok()?;
    let mut bytes = vec![0; TIME_LENGTH + boot_id.len()];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let time = settled_time(&file).ok()?;
    let plausible = 0 < time.0 && time <= BootTime::now();
    (plausible && &bytes[TIME_LENGTH..] == boot_id.as_bytes()).then_some(time)
}

/// Reads until it gets the same twice: a read may meet a write halfway.
fn settled_time(file: &File) -> io::Result<BootTime> {
    let read = || {
        let mut bytes = [0; TIME_LENGTH];
        file.read_exact_at(&mut bytes, 0)?;
        io::Result::Ok(u64::from_le_bytes(bytes))
    };
    let mut time = read()?;
    loop {
        let again = read()?;
        if again == time {
            return Ok(BootTime(time));
        }
        time = again;
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_contact_outlives_the_agent_but_not_the_boot() {
        let root = TempDir::new().unwrap();
        let dir = DataDir::create(root.path()).unwrap();
        assert_eq!(last_contact(&dir, "boot-1"), None);
        let mut contact = Contact::open(&dir, "boot-1").unwrap();
        assert_eq!(last_contact(&dir, "boot-1"), None, "there was none yet");
        contact.record(BootTime(20)).unwrap();
        contact.record(BootTime(10)).unwrap();
        assert_eq!(last_contact(&dir, "boot-1"), Some(BootTime(20)), "it never goes back");

        drop(contact);
        Contact::open(&dir, "boot-1").unwrap();
        assert_eq!(last_contact(&dir, "boot-1"), Some(BootTime(20)));
        Contact::open(&dir, "boot-2").unwrap();
        assert_eq!(last_contact(&dir, "boot-2"), None);
        assert_eq!(last_contact(&dir, "boot-1"), None);
    }

    #[test]
    fn a_contact_that_lies_ahead_is_none() {
        let root = TempDir::new().unwrap();
        let dir = DataDir::create(root.path()).unwrap();
        let mut contact = Contact::open(&dir, "boot-1").unwrap();
        contact.record(BootTime(u64::MAX)).unwrap();
        assert_eq!(last_contact(&dir, "boot-1"), None);
    }
}
