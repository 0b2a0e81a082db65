//! A record as the SQL engines keep it: its value, and what it is found and counted by.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Entry, StoreError, stats::Tally, terms};
use crate::citation::record::Record;

/// The value carries its key.
#[derive(Serialize)]
struct Body<'a> {
    tenant: &'a str,
    record: &'a Record,
}

#[derive(Deserialize)]
pub(super) struct OwnedBody {
    pub(super) tenant: String,
    pub(super) record: Record,
}

pub(super) struct Packed<'a> {
    pub(super) entry: &'a Entry,
    pub(super) body: String,
    pub(super) search: String,
    pub(super) domains: BTreeSet<String>,
    /// What the record adds to the sums.
    pub(super) tally: Tally,
    pub(super) tally_json: String,
}

impl<'a> Packed<'a> {
    pub(super) fn new(engine: &str, entry: &'a Entry) -> Result<Self, StoreError> {
        let json = |text: Result<String, serde_json::Error>| {
            text.map_err(|_| StoreError::Engine(format!("{engine}: a record cannot be written as JSON")))
        };
        let tally = Tally::of(&entry.record);
        Ok(Self {
            entry,
            body: json(serde_json::to_string(&Body { tenant: &entry.tenant, record: &entry.record }))?,
            search: terms::search_text(&entry.record),
            domains: terms::domains(&entry.record),
            tally_json: json(serde_json::to_string(&tally))?,
            tally,
        })
    }

    /// Tenant, provider, id.
    pub(super) fn key(&self) -> (&'a str, &'a str, &'a str) {
        (&self.entry.tenant, &self.entry.record.provider, &self.entry.record.message_id)
    }
}

/// The entry in a body, or an error when it was stored under another key: `is_key` is told its provider and its id.
pub(super) fn unpack(
    engine: &str,
    tenant: &str,
    created_ms: i64,
    body: &str,
    is_key: impl FnOnce(&str, &str) -> bool,
) -> Result<Entry, StoreError> {
    // The parser's own message would quote the record.
    let stored: OwnedBody = serde_json::from_str(body)
        .map_err(|_| StoreError::Engine(format!("{engine}: a stored record is not readable")))?;
    if stored.tenant != tenant || !is_key(&stored.record.provider, &stored.record.message_id) {
        return Err(StoreError::Mismatch);
    }
    Ok(Entry { tenant: stored.tenant, created_ms, record: stored.record })
}
