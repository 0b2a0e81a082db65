//! Messages between replicas, one line of JSON each. Names are stable: replicas of different versions may share a store.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::citation::Record;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub enum PeerMessage {
    /// Announces the sender. The others reply with their own if it is `joining`.
    Hello { from: Uuid, joining: bool },
    /// The sender stops.
    Bye { from: Uuid },
    /// Asks which replica relays a message, and renews the lease while a client of the sender watches it.
    Ask { from: Uuid, tenant: String, id: String },
    /// A snapshot of a message that the sender relays or relayed, for every replica that mirrors it.
    Have { from: Uuid, tenant: String, id: String, record: Box<Record>, done: bool },
    /// The sender does not relay the message.
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
