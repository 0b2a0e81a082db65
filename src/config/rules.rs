//! `[scores]`, `[corroboration]` and `[intents]`: how sources are rated and queries classified.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, LazyLock},
    time::Duration,
};

use url::Host;

use super::{
    Origin,
    check::{self, Checked},
    error::ConfigError,
    layer,
    resolve::Reader,
    value::{Entry, Value},
};
use crate::citation::{
    Rules,
    bundle::Intents,
    corroborate,
    score::{self, Weights},
    text::WordLists,
};

/// Table of authority by domain. An operator's rows are added to the default rows or replace them.
pub(super) const AUTHORITY: &str = "scores.authority";

const HOUR: Duration = Duration::from_secs(60 * 60);
const WEIGHTS: [&str; 3] = ["scores.weights.relevance", "scores.weights.freshness", "scores.weights.authority"];
const DOMAIN: &str = "expected a domain such as example.com";
const FRACTION: &str = "expected a number from 0 to 1";

/// The rules of the embedded file, parsed once. For commands that run without a configuration.
pub fn default_rules() -> Arc<Rules> {
    static RULES: LazyLock<Arc<Rules>> = LazyLock::new(|| {
        let (settings, _) = layer::defaults();
        let mut errors = Vec::new();
        let mut reader = Reader { table: "", keys: &settings, errors: &mut errors };
        let rules = resolve(&mut reader);
        debug_assert!(errors.is_empty(), "{errors:?}");
        Arc::new(rules)
    });
    Arc::clone(&RULES)
}

/// Reads all three sections. Invalid values become harmless defaults; [`Reader`] reports them.
pub(super) fn resolve(reader: &mut Reader<'_>) -> Rules {
    Rules {
        scores: score::Rules {
            half_life: reader.optional("scores.half_life", |entry| check::duration(entry, HOUR)).unwrap_or(HOUR),
            minimum: reader.optional("scores.minimum", fraction).unwrap_or_default(),
            allow: domains(reader, "scores.allow"),
            deny: domains(reader, "scores.deny"),
            weights: weights(reader),
            authority: authority(reader),
        },
        corroboration: corroborate::Rules {
            min_domains: reader.count("corroboration.domains", 100),
            words: WordLists::new(
                ["corroboration.official", "corroboration.positive", "corroboration.negative"]
                    .map(|key| words(reader, key)),
            ),
        },
        intents: Intents {
            market: words(reader, "intents.market"),
            tech: words(reader, "intents.tech"),
            timeline: words(reader, "intents.timeline"),
            people: words(reader, "intents.people"),
            comparison: words(reader, "intents.comparison"),
        },
    }
}

fn fraction(entry: &Entry) -> Checked<f64> {
    let value = match &entry.value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    value.filter(|value| (0.0..=1.0).contains(value)).ok_or_else(|| FRACTION.to_owned())
}

fn weights(reader: &mut Reader<'_>) -> Weights {
    let [relevance, freshness, authority] = WEIGHTS.map(|key| reader.optional(key, fraction));
    let (Some(relevance), Some(freshness), Some(authority)) = (relevance, freshness, authority) else {
        return Weights::ALL_RELEVANCE;
    };
    Weights::new(relevance, freshness, authority).unwrap_or_else(|| {
        // Report a weight that is not a default, because the defaults sum to 1.
        let set = |key: &&str| reader.keys.get(*key).is_some_and(|entry| entry.location.origin != Origin::Default);
        let key = WEIGHTS.iter().find(|key| set(key)).unwrap_or(&WEIGHTS[0]);
        if let Some(entry) = reader.keys.get(*key) {
            let message = format!(
                "{key} = {}: the weights must sum to 1: relevance {relevance} + freshness {freshness} + authority {authority}",
                entry.shown()
            );
            reader.errors.push(ConfigError::at(&entry.location, message));
        }
        Weights::ALL_RELEVANCE
    })
}

/// Parses a domain as the host of a URL, so that a Chinese domain matches its ASCII form.
fn domain(text: &str) -> Option<String> {
    // `Host::parse` decodes `%` escapes. Here they are mistakes.
    let plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "%/:@".contains(c));
    match Host::parse(text).ok().filter(|_| plain)? {
        Host::Domain(name) => {
            let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            name.split('.').all(|label| !label.is_empty() && label.bytes().all(valid)).then_some(name)
        }
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

fn domains(reader: &mut Reader<'_>, key: &str) -> HashSet<String> {
    reader.optional(key, |entry| check::list(entry, DOMAIN, domain)).unwrap_or_default().into_iter().collect()
}

fn words(reader: &mut Reader<'_>, key: &str) -> Vec<String> {
    let word = |text: &str| Some(text.trim().to_lowercase()).filter(|word| !word.is_empty());
    reader.optional(key, |entry| check::list(entry, "expected words", word)).unwrap_or_default()
}

fn authority(reader: &mut Reader<'_>) -> HashMap<String, f64> {
    let Some(rows) = reader.optional(AUTHORITY, rows) else { return HashMap::new() };
    let mut table = HashMap::new();
    for (name, entry) in &rows {
        let row = match domain(name) {
            Some(domain) => fraction(entry).map(|value| (domain, value)),
            None => Err(DOMAIN.to_owned()),
        };
        match row {
            Ok((domain, value)) => drop(table.insert(domain, value)),
            Err(why) => {
                let message = format!("{AUTHORITY}.{name:?} = {}: {why}", entry.shown());
                reader.errors.push(ConfigError::at(&entry.location, message));
            }
        }
    }
    table
}

/// Reads the rows of a table: a TOML table in a file, `a.example=0.9,b.example=0.2` in the environment.
pub(super) fn rows(entry: &Entry) -> Checked<BTreeMap<String, Entry>> {
    const EXPECTED: &str = "expected a table such as { \"example.com\" = 0.8 }";
    let mut rows = BTreeMap::new();
    match &entry.value {
        Value::Map(map) => flatten("", map, &mut rows),
        Value::Text(text) => {
            for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').ok_or("expected pairs such as example.com=0.8")?;
                let value = Value::Text(value.trim().to_owned());
                rows.insert(name.trim().to_owned(), Entry { location: entry.location.clone(), value });
            }
        }
        _ => return Err(EXPECTED.to_owned()),
    }
    Ok(rows)
}

/// Joins nested keys with dots. TOML reads an unquoted `gov.cn` as a nested table.
fn flatten(prefix: &str, map: &BTreeMap<String, Entry>, rows: &mut BTreeMap<String, Entry>) {
    for (name, entry) in map {
        let name = format!("{prefix}{name}");
        match &entry.value {
            Value::Map(inner) => flatten(&format!("{name}."), inner, rows),
            _ => drop(rows.insert(name, entry.clone())),
        }
    }
}

/// Merges the rows of two layers. A value that is not a table is returned as it is, for `resolve` to report.
pub(super) fn merge_authority(lower: Option<Entry>, higher: Entry) -> Entry {
    let (Some(Ok(mut table)), Ok(overrides)) = (lower.as_ref().map(rows), rows(&higher)) else { return higher };
    table.extend(overrides);
    Entry { location: higher.location, value: Value::Map(table) }
}
