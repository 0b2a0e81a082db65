//! Encodes entries for Redis and decodes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{error::unreadable_error, keys};
use crate::{
    citation::{bundle::task_id, record::Record},
    store::{
        Entry, StoreError, day_of,
        stats::{Aggregate, SiteCounts},
        terms,
    },
};

/// The stored JSON value. It contains the tenant, so that reads can verify the key.
#[derive(Serialize)]
struct BodyRef<'a> {
    tenant: &'a str,
    created_ms: i64,
    record: &'a Record,
}

#[derive(Deserialize)]
struct StoredBody {
    tenant: String,
    created_ms: i64,
    record: Record,
}

/// Index and aggregate data of a record, stored beside it so that scripts can remove exactly what was added.
#[derive(Serialize)]
struct Meta<'a> {
    /// Creation time, encoded for descending and for ascending order.
    o: String,
    a: String,
    /// Day, as counted by [`day_of`].
    y: String,
    p: &'a str,
    i: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<&'a str>,
    k: String,
    d: Vec<String>,
    c: [i64; 9],
    s: &'a BTreeMap<String, SiteCounts>,
}

pub(super) struct EncodedValue<'a> {
    pub(super) entry: &'a Entry,
    pub(super) name: String,
    pub(super) meta: String,
    pub(super) body: String,
    /// Approximate number of key changes.
    pub(super) work: usize,
}

impl<'a> EncodedValue<'a> {
    pub(super) fn new(entry: &'a Entry) -> Result<Self, StoreError> {
        let Entry { tenant, created_ms, record } = entry;
        let unwritable = |_| StoreError::Engine("redis: a record cannot be written as JSON".to_owned());
        let aggregate = Aggregate::of(record);
        let domains: Vec<_> = terms::domains(record).into_iter().collect();
        let work = domains.len() + aggregate.sites.len() + 8;
        let meta = Meta {
            o: keys::descending(*created_ms),
            a: keys::ascending(*created_ms),
            y: day_of(*created_ms).to_string(),
            p: &record.provider,
            i: &record.message_id,
            v: record.conversation_id.as_deref(),
            k: keys::escape_part(&task_id(record)),
            d: domains,
            c: aggregate.counts.into(),
            s: &aggregate.sites,
        };
        Ok(Self {
            entry,
            name: keys::join_name(&record.provider, &record.message_id),
            meta: serde_json::to_string(&meta).map_err(unwritable)?,
            body: serde_json::to_string(&BodyRef { tenant, created_ms: *created_ms, record }).map_err(unwritable)?,
            work,
        })
    }
}

/// Decodes a value and verifies its tenant.
pub(super) fn read(tenant: &str, body: &[u8]) -> Result<Entry, StoreError> {
    // Drop serde's message: it may quote the record.
    let StoredBody { tenant: of, created_ms, record } = serde_json::from_slice(body).map_err(|_| unreadable_error())?;
    if of != tenant {
        return Err(StoreError::Mismatch);
    }
    Ok(Entry { tenant: of, created_ms, record })
}
