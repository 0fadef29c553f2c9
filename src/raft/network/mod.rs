//! What controllers say to each other, over gRPC.

mod client;
mod server;

use tonic::{Request, Status, metadata::MetadataMap};

pub use self::client::{AddressBook, Network, PeerError};
pub use self::server::PeerService;
use crate::model::lineage::{self, Kinship};
use crate::raft::NodeId;

/// Who speaks, to whom, and on whose behalf: travels with every call, so that no message ever reaches a controller that
/// it is not meant for.
#[derive(Clone)]
pub struct Identity {
    pub id: NodeId,
    pub token: Option<String>,
}

const FROM: &str = "drigs-from";
const TO: &str = "drigs-to";
const CLUSTER: &str = "drigs-cluster";
const TOKEN: &str = "authorization";

impl Identity {
    /// Adds to `message` what the receiver checks.
    fn address<T>(&self, message: T, to: NodeId, cluster_id: &str) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(FROM, self.id.into());
        metadata.insert(TO, to.into());
        // What can not be written in a header can not match either; the receiver refuses it.
        if let Ok(cluster_id) = cluster_id.parse() {
            metadata.insert(CLUSTER, cluster_id);
        }
        let token = self.token.as_ref().map(|token| format!("Bearer {token}").parse());
        if let Some(Ok(token)) = token {
            metadata.insert(TOKEN, token);
        }
        request
    }

    /// Whether the caller knows the secret and means this controller.
    fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let sender = text(metadata, FROM);
        if let Some(token) = &self.token {
            let expected = blake3::hash(format!("Bearer {token}").as_bytes());
            // Hashes are compared in constant time.
            if blake3::hash(text(metadata, TOKEN).as_bytes()) != expected {
                return Err(Status::unauthenticated(format!(
                    "controller {sender} does not present this cluster's token: give all controllers the same one"
                )));
            }
        }
        let meant = text(metadata, TO);
        if meant != self.id.to_string() {
            return Err(Status::failed_precondition(format!(
                "this is controller {}, and controller {sender} looks for controller {meant} here: check the addresses in --peers",
                self.id
            )));
        }
        Ok(())
    }
}

/// What the caller's cluster is to this one's, and its id.
fn kinship<'a>(metadata: &'a MetadataMap, own: Option<&str>) -> Result<(Kinship, &'a str), Status> {
    let own = own.ok_or_else(|| {
        Status::failed_precondition("this controller is empty and was not let into a cluster yet")
    })?;
    let theirs = text(metadata, CLUSTER);
    Ok((lineage::kinship(own, theirs), theirs))
}

fn sender(metadata: &MetadataMap) -> NodeId {
    text(metadata, FROM).parse().unwrap_or_default()
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> &'a str {
    metadata.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
