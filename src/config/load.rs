//! Merges the layers and resolves them to a [`Config`]. Also lists the effective settings for `citetap check`.

use std::{collections::BTreeMap, ffi::OsString, path::Path, sync::Arc, time::Duration};

use super::{
    Config, ConfigError, ConfigErrors, Flags, Listen, Origin, Search, check,
    env::{self, Env},
    error::Location,
    input::{self, MAX_CONFIG_BYTES, ReadError},
    layer::{self, Layer, Settings, Table},
    listen, mapping,
    resolve::{self, Reader},
    route, rules, search, tenant,
    value::{Entry, REDACTED, Value},
};

use crate::citation::Rules;

/// The file that is read without `--config`.
const DEFAULT_FILE: &str = "citetap.toml";

/// A configuration and the origin of each value.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Effective values: settings in the order of `citetap.toml`, then routes and tenants in the order of the file.
    pub effective: Vec<Setting>,
}

/// One line of `citetap check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Dotted key, such as `timeouts.drain` or `routes.doubao.upstream`.
    pub key: String,
    /// The value as written, or `•••` if it may be a secret.
    pub value: String,
    pub origin: Origin,
}

/// Loads the configuration from all layers. Call it again to reload.
///
/// `env` is usually `std::env::vars_os()`. Relative paths (file, store, `…_FILE`) are relative to `cwd`.
pub fn load<K, V>(flags: &Flags, env: impl IntoIterator<Item = (K, V)>, cwd: &Path) -> Result<Loaded, ConfigErrors>
where
    K: Into<OsString>,
    V: Into<OsString>,
{
    let mut errors = Vec::new();
    let (_, known) = layer::defaults();
    let file = read_file(flags.config.as_deref(), cwd, &known, &mut errors);
    let env = env::read(env, cwd, &known, &mut errors);
    // If the file is unreadable, errors about missing keys would be misleading.
    match file {
        Some(file) => merge(file, env, flags, cwd, errors),
        None => Err(ConfigErrors::new(errors)),
    }
}

/// Loads the defaults and `text`, without environment or flags. For `demo` and tests.
///
/// Errors refer to `text` as `citetap.toml`.
pub fn from_toml(text: &str, cwd: &Path) -> Result<Loaded, ConfigErrors> {
    let mut errors = Vec::new();
    let (_, known) = layer::defaults();
    match layer::parse(Path::new(DEFAULT_FILE), text, &known, &mut errors) {
        Some(file) => merge(file, Env::default(), &Flags::default(), cwd, errors),
        None => Err(ConfigErrors::new(errors)),
    }
}

/// Loads what `citetap search` needs: `[search]`, the scoring rules and `timeouts.connect`. Requires no route.
pub fn load_search<K, V>(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (K, V)>,
    cwd: &Path,
) -> Result<(Search, Arc<Rules>, Duration), ConfigErrors>
where
    K: Into<OsString>,
    V: Into<OsString>,
{
    let mut errors = Vec::new();
    let (mut settings, known) = layer::defaults();
    let file = read_file(file, cwd, &known, &mut errors);
    let env = env::read(env, cwd, &known, &mut errors);
    if let Some(file) = file {
        settings.extend(file.settings);
    }
    settings.extend(env.settings);
    let mut reader = Reader { table: "", keys: &settings, errors: &mut errors };
    let search = search::resolve(&mut reader);
    let rules = Arc::new(rules::resolve(&mut reader));
    let connect = reader.optional("timeouts.connect", |entry| check::duration(entry, Duration::from_millis(1)));
    match (search, connect) {
        (Some(search), Some(connect)) if errors.is_empty() => Ok((search, rules, connect)),
        _ => Err(ConfigErrors::new(errors)),
    }
}

/// Reads the operator's file. Returns `None` after an error; a missing default file is an empty layer.
fn read_file(named: Option<&Path>, cwd: &Path, known: &[String], errors: &mut Vec<ConfigError>) -> Option<Layer> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let why = match input::read(&cwd.join(path), MAX_CONFIG_BYTES) {
        Ok(text) => return layer::parse(path, &text, known, errors),
        Err(ReadError::NotFound) if named.is_none() => return Some(Layer::default()),
        Err(ReadError::NotFound) => "does not exist".to_owned(),
        Err(ReadError::Other(why)) => why,
    };
    errors.push(ConfigError::new(format!("{} {why}", path.display())));
    None
}

fn merge(
    file: Layer,
    env: Env,
    flags: &Flags,
    cwd: &Path,
    mut errors: Vec<ConfigError>,
) -> Result<Loaded, ConfigErrors> {
    let (defaults, known) = layer::defaults();
    let mut layer = Layer { settings: defaults, routes: file.routes, tenants: file.tenants };
    override_settings(&mut layer, file.settings);

    let overridden = env.settings.contains_key("listen") || flags.listen.is_some();
    if let Some(port) = env.port.filter(|_| !overridden) {
        set_port(&mut layer, &port, cwd, &mut errors);
    }
    override_settings(&mut layer, env.settings);
    layer.settings.extend(flags.settings().map(|(key, entry)| (key.to_owned(), entry)));

    let mut sidecar = env.sidecar;
    sidecar.extend(flags.sidecar().map(|(key, entry)| (key.to_owned(), entry)));
    layer.routes.extend(route::sidecar(sidecar, &mut errors));
    layer.routes.iter_mut().for_each(route::fill_defaults);

    let config = resolve::resolve(&layer, cwd, &mut errors);
    match config {
        Some(config) if errors.is_empty() => Ok(Loaded { config, effective: effective(&layer, &known) }),
        _ => Err(ConfigErrors::new(errors)),
    }
}

/// Overrides settings of `layer` by those of a higher layer. `[scores.authority]` is merged row by row.
fn override_settings(layer: &mut Layer, mut higher: Settings) {
    if let Some(table) = higher.remove(rules::AUTHORITY) {
        let table = rules::merge_authority(layer.settings.remove(rules::AUTHORITY), table);
        higher.insert(rules::AUTHORITY.to_owned(), table);
    }
    layer.settings.extend(higher);
}

/// Sets the port of `listen` and keeps its host. An invalid `listen` is reported when it is resolved.
fn set_port(layer: &mut Layer, port: &str, cwd: &Path, errors: &mut Vec<ConfigError>) {
    let location = Location::env("PORT");
    let Ok(number) = port.parse::<u16>() else {
        errors.push(ConfigError::at(&location, format!("PORT = {port:?}: expected a port, 0 to 65535")));
        return;
    };
    if let Some(entry) = layer.settings.get_mut("listen")
        && let Ok(Listen::Tcp(mut address)) = listen::listen(entry, cwd)
    {
        address.set_port(number);
        *entry = Entry { location, value: Value::Text(address.to_string()) };
    }
}

fn effective(layer: &Layer, known: &[String]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for key in known {
        let Some(entry) = layer.settings.get(key) else { continue };
        match &entry.value {
            Value::Map(rows) => list_rows(key, entry, rows, &mut settings),
            _ if key == search::KEY && entry.text().is_some_and(|text| !text.is_empty()) => {
                settings.push(hidden(key.clone(), entry));
            }
            _ => settings.push(setting(key.clone(), entry)),
        }
    }
    for (section, keys, tables) in [("routes", route::KEYS, &layer.routes), ("tenants", tenant::KEYS, &layer.tenants)] {
        for table in tables {
            list_table(section, keys, table, &mut settings);
        }
    }
    settings
}

/// Lists the number of rows of a table, and each row that is not a default.
fn list_rows(key: &str, table: &Entry, rows: &BTreeMap<String, Entry>, settings: &mut Vec<Setting>) {
    let origin = table.location.origin.clone();
    settings.push(Setting { key: key.to_owned(), value: format!("{} rows", rows.len()), origin });
    let set = rows.iter().filter(|(_, entry)| entry.location.origin != Origin::Default);
    settings.extend(set.map(|(name, entry)| setting(format!("{key}.{name}"), entry)));
}

/// Lists the settings of one `[[routes]]` or `[[tenants]]` table.
fn list_table(section: &str, keys: &[&str], table: &Table, settings: &mut Vec<Setting>) {
    let name = table.keys.get("name").and_then(Entry::text).unwrap_or_default();
    for (key, entry) in keys.iter().filter_map(|key| Some((key, table.keys.get(*key)?))) {
        let path = format!("{section}.{name}.{key}");
        match &entry.value {
            // Header values may be credentials.
            Value::Map(values) => {
                settings.extend(values.iter().map(|(header, entry)| hidden(format!("{path}.{header}"), entry)));
            }
            _ if matches!(*key, "key_sha256" | mapping::TEMPLATE) => settings.push(hidden(path, entry)),
            _ if *key == mapping::PATH => {
                let mut shown = setting(path, entry);
                if let Some((before, _)) = shown.value.split_once('?') {
                    shown.value = format!("{before}?{REDACTED}");
                }
                settings.push(shown);
            }
            _ => settings.push(setting(path, entry)),
        }
    }
}

fn setting(key: String, entry: &Entry) -> Setting {
    Setting { key, value: entry.effective(), origin: entry.location.origin.clone() }
}

fn hidden(key: String, entry: &Entry) -> Setting {
    Setting { key, value: REDACTED.to_owned(), origin: entry.location.origin.clone() }
}
