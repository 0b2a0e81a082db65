//! An entry as it is kept, and back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{error::unreadable, keys};
use crate::{
    citation::{bundle::task_id, record::Record},
    store::{
        Entry, StoreError, day_of,
        stats::{Site, Tally},
        terms,
    },
};

/// The value carries its key.
#[derive(Serialize)]
struct Body<'a> {
    tenant: &'a str,
    created_ms: i64,
    record: &'a Record,
}

#[derive(Deserialize)]
struct OwnedBody {
    tenant: String,
    created_ms: i64,
    record: Record,
}

/// What scripts index and count a record by: kept beside it, so that just that can be taken away again.
#[derive(Serialize)]
struct Meta<'a> {
    /// The time in the order of lists, and of tasks.
    o: String,
    a: String,
    /// The day.
    y: String,
    p: &'a str,
    i: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<&'a str>,
    k: String,
    d: Vec<String>,
    c: [i64; 9],
    s: &'a BTreeMap<String, Site>,
}

pub(super) struct Value<'a> {
    pub(super) entry: &'a Entry,
    pub(super) name: String,
    pub(super) meta: String,
    pub(super) body: String,
    /// About how many changes of keys it takes.
    pub(super) work: usize,
}

impl<'a> Value<'a> {
    pub(super) fn new(entry: &'a Entry) -> Result<Self, StoreError> {
        let Entry { tenant, created_ms, record } = entry;
        let unwritable = |_| StoreError::Engine("redis: a record cannot be written as JSON".to_owned());
        let tally = Tally::of(record);
        let domains: Vec<_> = terms::domains(record).into_iter().collect();
        let work = domains.len() + tally.sites.len() + 8;
        let meta = Meta {
            o: keys::down(*created_ms),
            a: keys::up(*created_ms),
            y: day_of(*created_ms).to_string(),
            p: &record.provider,
            i: &record.message_id,
            v: record.conversation_id.as_deref(),
            k: keys::part(&task_id(record)),
            d: domains,
            c: tally.counts.into(),
            s: &tally.sites,
        };
        Ok(Self {
            entry,
            name: keys::name(&record.provider, &record.message_id),
            meta: serde_json::to_string(&meta).map_err(unwritable)?,
            body: serde_json::to_string(&Body { tenant, created_ms: *created_ms, record }).map_err(unwritable)?,
            work,
        })
    }
}

/// The entry in a value.
pub(super) fn read(tenant: &str, body: &[u8]) -> Result<Entry, StoreError> {
    // The parser's own message would quote the record.
    let OwnedBody { tenant: of, created_ms, record } = serde_json::from_slice(body).map_err(|_| unreadable())?;
    if of != tenant {
        return Err(StoreError::Mismatch);
    }
    Ok(Entry { tenant: of, created_ms, record })
}
