//! Who this worker is: made at its first start, kept in its data directory.

use std::{fs, io::Write, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{Epoch, OrderStamp};

/// `worker.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub uuid: Uuid,
    /// The machine's boot in which `epoch` began: another boot is another life, for nothing that ran is left.
    pub boot_id: String,
    pub epoch: Epoch,
    /// Set once a controller has welcomed this worker.
    pub cluster_id: Option<String>,
    /// The last leader that was obeyed. An earlier one is not, whoever restarts in between.
    pub stamp: OrderStamp,
    /// The inode of the data directory. A copy has another one, and must not pass for the original while that one is out of
    /// reach: it would start again what runs there.
    #[serde(default)]
    pub(super) home: Option<u64>,
}

const FILE: &str = "worker.json";

impl Identity {
    /// Reads who this worker is, or makes it up on the first start; begins a new life after a reboot.
    ///
    /// # Errors
    /// When the file cannot be read, written or understood.
    pub fn load(dir: &Path, boot_id: &str) -> anyhow::Result<Identity> {
        let path = dir.join(FILE);
        let home =
            fs::metadata(dir).with_context(|| format!("cannot read {}", dir.display()))?.ino();
        let mut identity: Identity = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!("{} is damaged; delete it to join as a new worker", path.display())
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Identity {
                uuid: Uuid::new_v4(),
                boot_id: boot_id.to_owned(),
                epoch: Epoch(1),
                cluster_id: None,
                stamp: OrderStamp::default(),
                home: None,
            },
            Err(error) => bail!("cannot read {}: {error}", path.display()),
        };
        ensure!(
            identity.home.is_none_or(|it| it == home),
            "{} was copied from another data directory, and no two workers may share an identity: delete it to join as a new worker. \
             If the whole directory was moved here and nothing runs at the old place any more, set its `home` to null",
            path.display()
        );
        identity.home = Some(home);
        if identity.boot_id != boot_id {
            identity.boot_id = boot_id.to_owned();
            identity.epoch = Epoch(identity.epoch.0 + 1);
        }
        identity.save(dir)?;
        Ok(identity)
    }

    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, dir: &Path) -> anyhow::Result<()> {
        let draft = dir.join("worker.json.new");
        let write = || {
            let mut file = fs::File::create(&draft)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&draft, dir.join(FILE))?;
            fs::File::open(dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", dir.join(FILE).display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_not_taken_for_the_original() {
        let root = tempfile::tempdir().unwrap();
        let (original, copy) = (root.path().join("original"), root.path().join("copy"));
        fs::create_dir(&original).unwrap();
        fs::create_dir(&copy).unwrap();
        let identity = Identity::load(&original, "boot").unwrap();
        assert_eq!(Identity::load(&original, "boot").unwrap(), identity);
        fs::copy(original.join(FILE), copy.join(FILE)).unwrap();
        let refused = Identity::load(&copy, "boot").unwrap_err().to_string();
        assert!(refused.contains("copied from another data directory"), "{refused}");

        let moved = root.path().join("moved");
        fs::rename(&original, &moved).unwrap();
        assert_eq!(Identity::load(&moved, "boot").unwrap(), identity, "it is the same directory");
        // What an earlier version wrote says nothing of its home; it finds one here.
        let written = Identity { home: None, ..identity.clone() };
        fs::write(copy.join(FILE), serde_json::to_vec(&written).unwrap()).unwrap();
        let settled = Identity::load(&copy, "boot").unwrap();
        assert_ne!(settled.home, identity.home);
        assert_eq!(settled.uuid, identity.uuid);
    }
}
