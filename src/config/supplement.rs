//! A route's `supplement…` keys: a search of our own beside its answers.

use std::{sync::Arc, time::Duration};

use super::{
    Search, Supplement, Supplementing,
    check::{self, Checked},
    pointer::Pointer,
    resolve::Reader,
    search::{self, NO_KEY},
    value::Entry,
};

/// A finish that waits longer is a hung chat to its reader.
const MAX_WAIT_MS: u64 = 10_000;

/// What routes are held against.
#[derive(Clone, Copy)]
pub(super) struct Service<'a> {
    /// Somebody set a key, though it may be a wrong one.
    keyed: bool,
    search: Option<&'a Search>,
}

impl<'a> Service<'a> {
    pub fn new(key: Option<&Entry>, search: Option<&'a Search>) -> Self {
        Self { keyed: key.is_some_and(|key| key.text() != Some("")), search }
    }

    /// The domains of an event type.
    fn domains(self, entry: &Entry) -> Checked<Vec<String>> {
        // A fault in `[search]` has its own error.
        let Some(Search { event_types, .. }) = self.search else { return Ok(Vec::new()) };
        if event_types.is_empty() {
            return Err(format!("there is none in [{}]", search::EVENT_TYPES));
        }
        let names: Vec<&str> = event_types.keys().map(String::as_str).collect();
        check::word(entry, &names, |name| event_types.get(name).cloned())
    }
}

pub(super) fn resolve(reader: &mut Reader<'_>, service: Service<'_>) -> Option<Arc<Supplementing>> {
    let when = reader.optional("supplement", |entry| {
        let when = check::word(entry, Supplement::NAMES, |text| text.parse().ok())?;
        if when == Supplement::Off || service.keyed { Ok(when) } else { Err(NO_KEY.to_owned()) }
    });
    let query = reader.optional("supplement_query", |entry| {
        let pointer = entry.text().and_then(Pointer::parse);
        pointer.ok_or_else(|| "expected a JSON pointer into the request, such as /messages/-/content".to_owned())
    });
    let domains = reader.optional("supplement_event_type", |entry| match when {
        Some(Supplement::WhenEmpty | Supplement::Always) => service.domains(entry),
        _ => Ok(Vec::new()),
    });
    let max_wait = reader.optional("max_wait_ms", |entry| check::count(entry, 0..=MAX_WAIT_MS));
    Some(Arc::new(Supplementing {
        when: when?,
        query,
        domains: domains.unwrap_or_default(),
        max_wait: Duration::from_millis(max_wait?),
    }))
}
