//! `[search]`: the search service, its API key, and the allowed domains by event type.

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Search, check,
    resolve::Reader,
    url_check,
    value::{Entry, Value},
};

/// Error message for a search without an API key.
pub const NO_KEY: &str =
    "no search service is configured: set TAVILY_API_KEY or TAVILY_API_KEY_FILE, or `key` in [search]";
/// Maximum number of results that the service returns.
pub const MAX_RESULTS: u32 = 20;
/// Maximum number of domains in a list.
pub const MAX_DOMAINS: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SearchTopic)]
pub enum Topic {
    General,
    News,
    Finance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = SearchDepth)]
pub enum Depth {
    Basic,
    Advanced,
    Fast,
    UltraFast,
}

/// Table of domain lists. The operator chooses its keys.
pub(super) const EVENT_TYPES: &str = "search.event_types";
/// Never listed.
pub(super) const KEY: &str = "search.key";

/// Maximum length of an API key. Detects a variable that holds a whole file by mistake.
const MAX_KEY: usize = 512;

/// Normalizes a domain to the form it has in URLs: ASCII, lower case. Returns `None` for a scheme, port or path.
pub fn domain(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches('.');
    let plain =
        !text.is_empty() && text.len() <= 253 && !text.contains(|c: char| c.is_whitespace() || "/:@?#*".contains(c));
    match url::Host::parse(text).ok().filter(|_| plain)? {
        url::Host::Domain(domain) => Some(domain),
        _ => None,
    }
}

pub(super) fn resolve(reader: &mut Reader<'_>) -> Option<Search> {
    let authorization = authorization(reader);
    let base_url = reader.optional("search.base_url", url_check::http_url);
    let timeout = reader.optional("search.timeout", |entry| check::duration(entry, Duration::from_millis(1)));
    let max_results = reader.optional("search.max_results", |entry| check::count(entry, 1..=u64::from(MAX_RESULTS)));
    let topic = reader.optional("search.topic", enum_value::<Topic>);
    let search_depth = reader.optional("search.search_depth", enum_value::<Depth>);
    let event_types = reader.optional(EVENT_TYPES, event_types);
    Some(Search {
        authorization,
        base_url: base_url?,
        timeout: timeout?,
        max_results: u32::try_from(max_results?).ok()?,
        topic: topic?,
        search_depth: search_depth?,
        event_types: event_types?,
    })
}

/// Builds the `Authorization` header. No error repeats the key.
fn authorization(reader: &mut Reader<'_>) -> Option<HeaderValue> {
    let entry = reader.keys.get(KEY)?;
    let text = match (&entry.value, entry.text()) {
        (_, Some(text)) => text,
        (Value::Other(_), None) => return reader.optional(KEY, |_| Err("expected a text".to_owned())),
        // A number may be a key without quotes, so the error does not repeat it.
        _ => {
            reader.refuse(KEY, &entry.location, "expected a text in quotes");
            return None;
        }
    };
    if text.is_empty() {
        return None;
    }
    let plain = text.len() <= MAX_KEY && text.bytes().all(|b| b.is_ascii_graphic());
    match HeaderValue::from_str(&format!("Bearer {text}")).ok().filter(|_| plain) {
        Some(mut value) => {
            value.set_sensitive(true);
            Some(value)
        }
        None => {
            reader.refuse(KEY, &entry.location, "expected a key: visible ASCII characters without spaces");
            None
        }
    }
}

fn enum_value<T: ValueEnum>(entry: &Entry) -> check::Checked<T> {
    let values: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
    let names: Vec<&str> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
    check::keyword(entry, &names, |text| T::from_str(text, false).ok())
}

fn event_types(entry: &Entry) -> check::Checked<BTreeMap<String, Vec<String>>> {
    let Value::Map(types) = &entry.value else {
        return Err("expected a table in the file: [search.event_types]".to_owned());
    };
    let mut domains_by_type = BTreeMap::new();
    for (name, list) in types {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        if !(1..=32).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(format!("{name:?}: expected names of 1 to 32 of a-z, 0-9, - and _"));
        }
        let Value::List(_) = list.value else { return Err(format!("{name}: expected a list of domains")) };
        let domains = check::list(list, "expected a domain such as example.com", domain);
        let domains = domains.map_err(|why| format!("{name}: {why}"))?;
        if domains.len() > MAX_DOMAINS {
            return Err(format!("{name}: expected {MAX_DOMAINS} domains at most"));
        }
        domains_by_type.insert(name.clone(), domains);
    }
    Ok(domains_by_type)
}
