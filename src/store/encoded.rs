//! A record as the SQL engines store it: JSON body, search text, domains and aggregate.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Entry, StoreError, stats::Aggregate, terms};
use crate::citation::record::Record;

/// The stored JSON value. It contains the tenant, so that reads can verify the key.
#[derive(Serialize)]
struct BodyRef<'a> {
    tenant: &'a str,
    record: &'a Record,
}

#[derive(Deserialize)]
pub(super) struct StoredBody {
    pub(super) tenant: String,
    pub(super) record: Record,
}

pub(super) struct EncodedRecord<'a> {
    pub(super) entry: &'a Entry,
    pub(super) body: String,
    pub(super) search: String,
    pub(super) domains: BTreeSet<String>,
    /// What the record contributes to the daily aggregates.
    pub(super) aggregate: Aggregate,
    pub(super) aggregate_json: String,
}

impl<'a> EncodedRecord<'a> {
    pub(super) fn new(engine: &str, entry: &'a Entry) -> Result<Self, StoreError> {
        let json = |text: Result<String, serde_json::Error>| {
            text.map_err(|_| StoreError::Engine(format!("{engine}: a record cannot be written as JSON")))
        };
        let aggregate = Aggregate::of(&entry.record);
        Ok(Self {
            entry,
            body: json(serde_json::to_string(&BodyRef { tenant: &entry.tenant, record: &entry.record }))?,
            search: terms::search_text(&entry.record),
            domains: terms::domains(&entry.record),
            aggregate_json: json(serde_json::to_string(&aggregate))?,
            aggregate,
        })
    }

    /// (tenant, provider, id)
    pub(super) fn key(&self) -> (&'a str, &'a str, &'a str) {
        (&self.entry.tenant, &self.entry.record.provider, &self.entry.record.message_id)
    }
}

/// Decodes a body. Fails with [`StoreError::Mismatch`] if its tenant differs or `is_key(provider, id)` is false.
pub(super) fn decode(
    engine: &str,
    tenant: &str,
    created_ms: i64,
    body: &str,
    is_key: impl FnOnce(&str, &str) -> bool,
) -> Result<Entry, StoreError> {
    // Drop serde's message: it may quote the record.
    let stored: StoredBody = serde_json::from_str(body)
        .map_err(|_| StoreError::Engine(format!("{engine}: a stored record is not readable")))?;
    if stored.tenant != tenant || !is_key(&stored.record.provider, &stored.record.message_id) {
        return Err(StoreError::Mismatch);
    }
    Ok(Entry { tenant: stored.tenant, created_ms, record: stored.record })
}
