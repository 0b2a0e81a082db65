//! Reads settings from environment variables.
//!
//! Called by `load`. An unknown variable with the prefix `CITETAP_` is an error, because it is most likely misspelled.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::Path,
};

use super::{
    error::{ConfigError, Location},
    input::{self, MAX_VALUE_BYTES, ReadError},
    layer::Settings,
    mapping, suggest,
    value::{Entry, Value},
};

const PREFIX: &str = "CITETAP_";

/// Short aliases of top-level settings.
const ALIASES: &[(&str, &str)] =
    &[("CITETAP_LISTEN", "listen"), ("CITETAP_STORE", "store"), ("CITETAP_ALLOWED_HOSTS", "allowed_hosts")];

/// Variables that other tools read too. A `CITETAP_` variable for the same key overrides them.
const THIRD_PARTY: &[(&str, &str)] = &[("TAVILY_API_KEY", "search.key")];

/// Variables for the keys of the sidecar route.
const SIDECAR: &[(&str, &str)] = &[
    ("CITETAP_UPSTREAM", "upstream"),
    ("CITETAP_PROVIDER", "provider"),
    ("CITETAP_LINK_BASE", "link_base"),
    ("CITETAP_PROFILE", "profile"),
    ("CITETAP_MARKERS", "markers"),
    ("CITETAP_INJECT", "inject"),
    ("CITETAP_SUPPLEMENT", "supplement"),
    ("CITETAP_MODELS", mapping::MODELS),
    ("CITETAP_REQUEST", mapping::REQUEST),
];

#[derive(Debug, Default)]
pub(super) struct Env {
    pub settings: Settings,
    pub sidecar: Settings,
    /// Value of `PORT`. Hosting platforms set it for every process, so a `listen` in the environment or a flag overrides it.
    pub port: Option<String>,
}

/// The key that a variable sets.
enum Target {
    Setting(String),
    Sidecar(&'static str),
}

pub(super) fn read<K, V>(
    vars: impl IntoIterator<Item = (K, V)>,
    cwd: &Path,
    known: &[String],
    errors: &mut Vec<ConfigError>,
) -> Env
where
    K: Into<OsString>,
    V: Into<OsString>,
{
    let targets = targets(known);
    let mut env = Env::default();
    // Sorted, so that errors are reported in a stable order.
    let vars: BTreeMap<String, OsString> =
        vars.into_iter().filter_map(|(name, value)| Some((name.into().into_string().ok()?, value.into()))).collect();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (name, value) in &vars {
        let third_party = THIRD_PARTY.iter().any(|(other, _)| name.strip_suffix("_FILE").unwrap_or(name) == *other);
        if name != "PORT" && !third_party && !name.starts_with(PREFIX) {
            continue;
        }
        let base = name.strip_suffix("_FILE").filter(|_| !targets.contains_key(name)).unwrap_or(name);
        let target = targets.get(base);
        if name != "PORT" && target.is_none() {
            // Kubernetes sets these in every pod of a namespace that has a Service named `citetap`.
            if is_service_link(name, &value.to_string_lossy()) {
                continue;
            }
            let message = unknown(name, &targets);
            errors.push(ConfigError::at(&Location::env(name), message));
            continue;
        }
        let Some(value) = value.to_str() else {
            errors.push(ConfigError::at(&Location::env(name), "is not UTF-8 text"));
            continue;
        };
        if value.is_empty() {
            continue;
        }
        let Some(target) = target else {
            env.port = Some(value.to_owned());
            continue;
        };
        // `vars` is sorted, so `CITETAP_` variables have been read before third-party ones.
        if let Target::Setting(key) = target
            && third_party
            && env.settings.get(key).is_some_and(|entry| !is_third_party(&entry.location))
        {
            continue;
        }
        // `vars` is sorted, so NAME comes before NAME_FILE.
        if !seen.insert(base) {
            errors.push(ConfigError::at(&Location::env(name), format!("{base} is set as well; keep one")));
            continue;
        }
        let value = if base == name { Ok(value.to_owned()) } else { from_file(&cwd.join(value), value) };
        match value {
            Ok(value) => env.insert(name, value, target, errors),
            Err(why) => errors.push(ConfigError::at(&Location::env(name), why)),
        }
    }
    env
}

impl Env {
    fn insert(&mut self, name: &str, value: String, target: &Target, errors: &mut Vec<ConfigError>) {
        let entry = Entry { location: Location::env(name), value: Value::Text(value) };
        let previous = match target {
            Target::Setting(key) => self.settings.insert(key.clone(), entry),
            Target::Sidecar(key) => self.sidecar.insert((*key).to_owned(), entry),
        };
        if let Some(other) = previous {
            errors.push(ConfigError::at(&other.location, format!("{name} sets the same; keep one")));
        }
    }
}

fn targets(known: &[String]) -> BTreeMap<String, Target> {
    let long = known.iter().map(|key| {
        let name = format!("CITETAP__{}", key.replace('.', "__").to_ascii_uppercase());
        (name, Target::Setting(key.clone()))
    });
    let short =
        ALIASES.iter().chain(THIRD_PARTY).map(|(name, key)| ((*name).to_owned(), Target::Setting((*key).to_owned())));
    let sidecar = SIDECAR.iter().map(|(name, key)| ((*name).to_owned(), Target::Sidecar(key)));
    long.chain(short).chain(sidecar).collect()
}

fn is_third_party(location: &Location) -> bool {
    !location.to_string().starts_with(&format!("env {PREFIX}"))
}

fn from_file(path: &Path, shown: &str) -> Result<String, String> {
    let text = input::read(path, MAX_VALUE_BYTES).map_err(|error| match error {
        ReadError::NotFound => format!("{shown} does not exist"),
        ReadError::Other(why) => format!("{shown} {why}"),
    })?;
    match text.trim() {
        "" => Err(format!("{shown} is empty")),
        value => Ok(value.to_owned()),
    }
}

fn unknown(name: &str, targets: &BTreeMap<String, Target>) -> String {
    if name.starts_with("CITETAP__ROUTES") || name.starts_with("CITETAP__TENANTS") {
        return "routes and tenants are set in the file; one route by CITETAP_UPSTREAM".to_owned();
    }
    if name == "CITETAP_PORT" {
        return "unknown variable; did you mean PORT or CITETAP_LISTEN?".to_owned();
    }
    let (base, suffix) = match name.strip_suffix("_FILE") {
        Some(base) => (base, "_FILE"),
        None => (name, ""),
    };
    // Compare without the common prefix, which would make all names look similar.
    let known = targets.keys().filter_map(|name| name.strip_prefix(PREFIX));
    match suggest::nearest(base.strip_prefix(PREFIX).unwrap_or(base), known) {
        Some(known) => format!("unknown variable; did you mean {PREFIX}{known}{suffix}?"),
        None => "unknown variable; CITETAP__SECTION__KEY sets a key, `citetap check` lists them".to_owned(),
    }
}

/// True for the variables of a Kubernetes Service: `CITETAP_SERVICE_HOST`, `CITETAP_PORT_8787_TCP_ADDR`, ….
fn is_service_link(name: &str, value: &str) -> bool {
    let protocol = |protocol: &&str| name.contains("_PORT_") && name.contains(*protocol);
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && value.contains("://"))
        || ["_TCP", "_UDP", "_SCTP"].iter().any(protocol)
}
