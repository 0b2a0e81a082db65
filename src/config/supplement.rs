//! The `supplement…` keys of a route: a search that runs in parallel with the upstream request.

use std::{sync::Arc, time::Duration};

use super::{
    Search, Supplement, Supplementing,
    check::{self, Checked},
    pointer::Pointer,
    resolve::Reader,
    search::{self, NO_KEY},
    value::Entry,
};

/// Maximum of `max_wait_ms`. To a user a longer delay of the finish looks like a hung chat.
const MAX_WAIT_MS: u64 = 10_000;

/// The parts of `[search]` that a route's keys refer to.
#[derive(Clone, Copy)]
pub(super) struct SearchService<'a> {
    /// True if an API key is set, even an invalid one.
    has_key: bool,
    /// `None` if `[search]` is invalid.
    search: Option<&'a Search>,
}

impl<'a> SearchService<'a> {
    pub fn new(key: Option<&Entry>, search: Option<&'a Search>) -> Self {
        Self { has_key: key.is_some_and(|key| key.text() != Some("")), search }
    }

    /// Looks up the domains of an event type.
    fn domains(self, entry: &Entry) -> Checked<Vec<String>> {
        // An invalid `[search]` has an error of its own.
        let Some(Search { event_types, .. }) = self.search else { return Ok(Vec::new()) };
        if event_types.is_empty() {
            return Err(format!("there is none in [{}]", search::EVENT_TYPES));
        }
        let names: Vec<&str> = event_types.keys().map(String::as_str).collect();
        check::keyword(entry, &names, |name| event_types.get(name).cloned())
    }
}

pub(super) fn resolve(reader: &mut Reader<'_>, service: SearchService<'_>) -> Option<Arc<Supplementing>> {
    let when = reader.optional("supplement", |entry| {
        let when = check::keyword(entry, Supplement::NAMES, |text| text.parse().ok())?;
        if when == Supplement::Off || service.has_key { Ok(when) } else { Err(NO_KEY.to_owned()) }
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
