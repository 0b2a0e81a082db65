//! The environment as a layer. Names that begin with `CITETAP_` are ours: one that is not known is a typo.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::Path,
};

use super::{
    error::{ConfigError, Place},
    input::{self, MAX_VALUE_BYTES, Refusal},
    layer::Settings,
    mapping, suggest,
    value::{Entry, Value},
};

const PREFIX: &str = "CITETAP_";

/// Short names of settings.
const SHORT: &[(&str, &str)] = &[("CITETAP_LISTEN", "listen"), ("CITETAP_STORE", "store")];

/// Names that are not ours and that other tools read too: they yield to ours.
const FOREIGN: &[(&str, &str)] = &[("TAVILY_API_KEY", "search.key")];

/// Short names of the sidecar route's keys.
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
    /// Platforms set it for every process, so it yields to whoever names an address for us.
    pub port: Option<String>,
}

/// What a variable sets.
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
    // Sorted, so that errors come in the same order on every run.
    let vars: BTreeMap<String, OsString> =
        vars.into_iter().filter_map(|(name, value)| Some((name.into().into_string().ok()?, value.into()))).collect();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (name, value) in &vars {
        let is_foreign = FOREIGN.iter().any(|(foreign, _)| name.strip_suffix("_FILE").unwrap_or(name) == *foreign);
        if name != "PORT" && !is_foreign && !name.starts_with(PREFIX) {
            continue;
        }
        let base = name.strip_suffix("_FILE").filter(|_| !targets.contains_key(name)).unwrap_or(name);
        let target = targets.get(base);
        if name != "PORT" && target.is_none() {
            // Kubernetes puts these into every pod beside a Service of our name: not the operator's words.
            if is_service_link(name, &value.to_string_lossy()) {
                continue;
            }
            let message = unknown(name, &targets);
            errors.push(ConfigError::at(&Place::env(name), message));
            continue;
        }
        let Some(value) = value.to_str() else {
            errors.push(ConfigError::at(&Place::env(name), "is not UTF-8 text"));
            continue;
        };
        if value.is_empty() {
            continue;
        }
        let Some(target) = target else {
            env.port = Some(value.to_owned());
            continue;
        };
        // `vars` is sorted, and so are ours before these.
        if let Target::Setting(key) = target
            && is_foreign
            && env.settings.get(key).is_some_and(|entry| !is_foreign_place(&entry.place))
        {
            continue;
        }
        // `vars` is sorted: NAME comes before NAME_FILE.
        if !seen.insert(base) {
            errors.push(ConfigError::at(&Place::env(name), format!("{base} is set as well; keep one")));
            continue;
        }
        let value = if base == name { Ok(value.to_owned()) } else { from_file(&cwd.join(value), value) };
        match value {
            Ok(value) => env.put(name, value, target, errors),
            Err(why) => errors.push(ConfigError::at(&Place::env(name), why)),
        }
    }
    env
}

impl Env {
    fn put(&mut self, name: &str, value: String, target: &Target, errors: &mut Vec<ConfigError>) {
        let entry = Entry { place: Place::env(name), value: Value::Text(value) };
        let clash = match target {
            Target::Setting(key) => self.settings.insert(key.clone(), entry),
            Target::Sidecar(key) => self.sidecar.insert((*key).to_owned(), entry),
        };
        if let Some(other) = clash {
            errors.push(ConfigError::at(&other.place, format!("{name} sets the same; keep one")));
        }
    }
}

fn targets(known: &[String]) -> BTreeMap<String, Target> {
    let long = known.iter().map(|key| {
        let name = format!("CITETAP__{}", key.replace('.', "__").to_ascii_uppercase());
        (name, Target::Setting(key.clone()))
    });
    let short = SHORT.iter().chain(FOREIGN).map(|(name, key)| ((*name).to_owned(), Target::Setting((*key).to_owned())));
    let sidecar = SIDECAR.iter().map(|(name, key)| ((*name).to_owned(), Target::Sidecar(key)));
    long.chain(short).chain(sidecar).collect()
}

fn is_foreign_place(place: &Place) -> bool {
    !place.to_string().starts_with(&format!("env {PREFIX}"))
}

fn from_file(path: &Path, shown: &str) -> Result<String, String> {
    let text = input::read(path, MAX_VALUE_BYTES).map_err(|refusal| match refusal {
        Refusal::Missing => format!("{shown} does not exist"),
        Refusal::Because(why) => format!("{shown} {why}"),
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
    // Without the prefix, which all have in common and which would make any two names look alike.
    let known = targets.keys().filter_map(|name| name.strip_prefix(PREFIX));
    match suggest::nearest(base.strip_prefix(PREFIX).unwrap_or(base), known) {
        Some(known) => format!("unknown variable; did you mean {PREFIX}{known}{suffix}?"),
        None => "unknown variable; CITETAP__SECTION__KEY sets a key, `citetap check` lists them".to_owned(),
    }
}

/// `CITETAP_SERVICE_HOST`, `CITETAP_PORT_8787_TCP_ADDR`, …: nobody typed these, so a spelling hint would mislead.
fn is_service_link(name: &str, value: &str) -> bool {
    let protocol = |protocol: &&str| name.contains("_PORT_") && name.contains(*protocol);
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && value.contains("://"))
        || ["_TCP", "_UDP", "_SCTP"].iter().any(protocol)
}
