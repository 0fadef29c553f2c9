//! Who this worker is: made at its first start, kept in its data directory.

use std::{fs, io::Write, path::Path};

use anyhow::{Context as _, bail};
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
}

const FILE: &str = "worker.json";

impl Identity {
    /// Reads who this worker is, or makes it up on the first start; begins a new life after a reboot.
    ///
    /// # Errors
    /// When the file cannot be read, written or understood.
    pub fn load(dir: &Path, boot_id: &str) -> anyhow::Result<Identity> {
        let path = dir.join(FILE);
        let mut identity = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!("{} is damaged; delete it to join as a new worker", path.display())
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Identity {
                uuid: Uuid::new_v4(),
                boot_id: boot_id.to_owned(),
                epoch: Epoch(1),
                cluster_id: None,
                stamp: OrderStamp::default(),
            },
            Err(error) => bail!("cannot read {}: {error}", path.display()),
        };
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
