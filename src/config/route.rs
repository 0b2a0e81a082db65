//! `[[routes]]`, and the sidecar route that `CITETAP_UPSTREAM` or `--upstream` defines.

use std::{collections::BTreeMap, net::SocketAddr};

use http::{HeaderName, HeaderValue, header};

use super::{
    HeaderRules, Inject, Origin, OutputFormat, Profile, Provider, Route, Style, check,
    error::{ConfigError, Location},
    layer::{Settings, Table},
    mapping,
    questions::questions,
    resolve::Reader,
    supplement::{self, SearchService},
    url_check,
    value::{Entry, Value},
};
use crate::{mapping::UpstreamFormat, provider::REGISTRY};

pub(super) const KEYS: &[&str] = &[
    "name",
    "prefix",
    "upstream",
    "provider",
    "tap",
    "link_base",
    "relay_cors",
    "profile",
    "markers",
    "inject",
    "emit_empty",
    "supplement",
    "supplement_query",
    "supplement_event_type",
    "max_wait_ms",
    "questions",
    mapping::MODELS,
    mapping::REQUEST,
    mapping::PATH,
    mapping::UPSTREAM_MODEL,
    mapping::TEMPLATE,
    "request_headers.remove",
    "request_headers.set",
    "response_headers.remove",
    "response_headers.set",
];

/// Defaults of a route's keys. The embedded file has no route, so they are defined here.
///
/// A test compares them with the commented example in the file.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("provider", "auto"),
    ("tap", "on"),
    ("profile", "native"),
    ("markers", "keep"),
    ("inject", "final"),
    ("relay_cors", "false"),
    ("emit_empty", "false"),
    ("supplement", "off"),
    ("max_wait_ms", "300"),
];

/// Headers that no rule may change. They frame the message on one connection (RFC 9110, section 7.6.1), and a changed one
/// could desynchronise client and upstream.
const FRAMING: &[HeaderName] = &[
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Adds the default of each key that the table does not have.
pub(super) fn fill_defaults(table: &mut Table) {
    for (key, value) in DEFAULTS {
        table.keys.entry((*key).to_owned()).or_insert_with(|| Entry {
            location: Location::new(Origin::Default),
            value: Value::Text((*value).to_owned()),
        });
    }
}

/// Builds the sidecar route. Its other variables and flags are errors without an upstream.
pub(super) fn sidecar(mut keys: Settings, errors: &mut Vec<ConfigError>) -> Option<Table> {
    let Some(location) = keys.get("upstream").map(|upstream| upstream.location.clone()) else {
        for entry in keys.values() {
            let message = "describes the route of CITETAP_UPSTREAM (or --upstream), which is not set; \
                           a route of the file is described in the file";
            errors.push(ConfigError::at(&entry.location, message));
        }
        return None;
    };
    let provider = keys.get("provider").and_then(Entry::text).and_then(|text| text.parse().ok());
    let name = provider.filter(|provider| *provider != Provider::AUTO).map_or("default", Provider::as_str);
    for (key, value) in [("name", name), ("prefix", "/")] {
        keys.insert(key.to_owned(), Entry { location: location.clone(), value: Value::Text(value.to_owned()) });
    }
    Some(Table { location, keys })
}

pub(super) fn resolve(
    tables: &[Table],
    own_addresses: [Option<SocketAddr>; 2],
    search: SearchService<'_>,
    errors: &mut Vec<ConfigError>,
) -> Vec<Route> {
    let mut routes = Vec::new();
    let mut used: BTreeMap<(&str, String), Location> = BTreeMap::new();
    for table in tables {
        let mut reader = Reader { table: "routes", keys: &table.keys, errors };
        let name = reader.required("name", &table.location, check::name);
        let prefix = reader.required("prefix", &table.location, url_check::prefix);
        let upstream = reader.required("upstream", &table.location, |entry| {
            let url = url_check::http_url(entry)?;
            match own_addresses.into_iter().flatten().find(|listen| url_check::is_self(&url, *listen)) {
                Some(listen) => Err(format!("is citetap's own address ({listen}); requests would go round for ever")),
                None => Ok(url),
            }
        });
        let profile = reader.optional("profile", |e| check::keyword(e, Profile::NAMES, |text| text.parse().ok()));
        let markers = reader.optional("markers", |e| check::keyword(e, Style::NAMES, |text| text.parse().ok()));
        let provider =
            reader.optional("provider", |e| check::keyword(e, &REGISTRY.route_names(), |text| text.parse().ok()));
        let tap = reader.optional("tap", |e| {
            check::keyword(e, &["on", "off"], |text| match text {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            })
        });
        let inject = reader.optional("inject", |e| check::keyword(e, Inject::NAMES, |text| text.parse().ok()));
        let emit_empty = reader.optional("emit_empty", check::boolean);
        let relay_cors = reader.optional("relay_cors", check::boolean);
        let supplement = supplement::resolve(&mut reader, search);
        let link_base = reader.optional("link_base", url_check::http_url);
        let questions = reader.optional("questions", questions).unwrap_or_default();
        let mapping = mapping::resolve(&mut reader, &table.location);
        let request_headers = header_rules(&mut reader, "request_headers.remove", "request_headers.set");
        let response_headers = header_rules(&mut reader, "response_headers.remove", "response_headers.set");

        let models = mapping.iter().flat_map(|mapping| &mapping.models).map(|model| (mapping::MODELS, "model", model));
        let names = [("name", &name), ("prefix", &prefix)].into_iter();
        for (key, what, value) in names.filter_map(|(key, value)| Some((key, key, value.as_ref()?))).chain(models) {
            let location = table.keys.get(key).map_or(&table.location, |entry| &entry.location);
            match used.get(&(key, value.clone())) {
                Some(first) => {
                    let message = format!("routes.{key} = {value:?}: another route has this {what} ({first})");
                    errors.push(ConfigError::at(location, message));
                }
                None => drop(used.insert((key, value.clone()), location.clone())),
            }
        }
        // Lexiang answers in one dialect only.
        let is_lexiang = mapping.as_ref().is_some_and(|mapping| matches!(mapping.to, UpstreamFormat::Lexiang));
        let provider = provider.map(|named| {
            if is_lexiang && named == Provider::AUTO { crate::provider::tencent::PROVIDER } else { named }
        });
        let words = (tap, profile, markers, inject, relay_cors, emit_empty);
        if let (
            Some(name),
            Some(prefix),
            Some(upstream),
            Some(provider),
            (Some(tap), Some(profile), Some(markers), Some(inject), Some(relay_cors), Some(emit_empty)),
            Some(supplement),
        ) = (name, prefix, upstream, provider, words, supplement)
        {
            routes.push(Route {
                name,
                prefix,
                upstream,
                provider,
                tap,
                link_base,
                output_format: OutputFormat { profile, markers, ..OutputFormat::default() },
                inject,
                relay_cors,
                emit_empty,
                supplement,
                questions,
                mapping,
                request_headers,
                response_headers,
            });
        }
    }
    // Longest prefix first, so that the first match is the longest.
    routes.sort_by(|a, b| b.prefix.len().cmp(&a.prefix.len()).then_with(|| a.prefix.cmp(&b.prefix)));
    routes
}

fn header_rules(reader: &mut Reader<'_>, remove: &str, set: &str) -> HeaderRules {
    let mut rules = HeaderRules::default();
    if let Some(names) = reader.optional(remove, |e| check::list(e, "expected header names", check::header_name)) {
        rules.remove = names;
    }
    match reader.keys.get(set).map(|entry| (&entry.value, entry)) {
        None => {}
        Some((Value::Map(values), _)) => {
            for (name, entry) in values {
                match header(name, entry) {
                    Ok((header, _)) if rules.set.iter().any(|(other, _)| *other == header) => {
                        reader.refuse(&format!("{set}.{name}"), &entry.location, "the same header is set twice");
                    }
                    Ok(pair) => rules.set.push(pair),
                    Err(why) => reader.refuse(&format!("{set}.{name}"), &entry.location, why),
                }
            }
        }
        Some((_, entry)) => reader.refuse(set, &entry.location, "expected a table such as { x-team = \"search\" }"),
    }
    for name in FRAMING {
        let key = if rules.remove.contains(name) {
            remove
        } else if rules.set.iter().any(|(other, _)| other == name) {
            set
        } else {
            continue;
        };
        if let Some(entry) = reader.keys.get(key) {
            reader.refuse(key, &entry.location, &format!("{name} belongs to the connection and cannot have a rule"));
        }
    }
    rules
}

fn header(name: &str, entry: &Entry) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = check::header_name(name).ok_or("is not a header name")?;
    let text = entry.text().ok_or("expected a text")?;
    let mut value = HeaderValue::from_str(text).map_err(|_| "expected visible ASCII characters")?;
    value.set_sensitive(true);
    Ok((name, value))
}
