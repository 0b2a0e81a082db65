//! What replicas say to each other: a line of JSON each.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::citation::Record;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub enum PeerMessage {
    /// I am here. Who joins wants to hear the same from the others.
    Hello { from: Uuid, joining: bool },
    /// I am going.
    Bye { from: Uuid },
    /// Who relays this message? Said again while somebody here watches it.
    Ask { from: Uuid, tenant: String, id: String },
    /// I do, or did; this is what is known of it. For everybody who follows it.
    Have { from: Uuid, tenant: String, id: String, record: Box<Record>, done: bool },
    /// I do not.
    Lack { from: Uuid, to: Uuid, tenant: String, id: String },
    /// A stored record was deleted.
    Forget { from: Uuid, tenant: String, id: String, provider: Option<String> },
}

impl PeerMessage {
    pub fn from(&self) -> Uuid {
        match self {
            Self::Hello { from, .. }
            | Self::Bye { from }
            | Self::Ask { from, .. }
            | Self::Have { from, .. }
            | Self::Lack { from, .. }
            | Self::Forget { from, .. } => *from,
        }
    }
}
