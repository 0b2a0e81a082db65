//! Parses TOML into dotted keys with their source locations. Rejects unknown keys.
//!
//! Called by `load` for the embedded defaults and for the operator's file.

use std::{collections::BTreeMap, ops::Range, path::Path};

use toml::de::{DeTable, DeValue};

use super::{
    Origin,
    error::{ConfigError, Location},
    route, rules, search, suggest, tenant,
    value::{Entry, Value},
};

const EMBEDDED: &str = include_str!("../../config/citetap.toml");

/// Dotted key, such as `timeouts.drain` -> value.
pub(super) type Settings = BTreeMap<String, Entry>;

/// One `[[routes]]` or `[[tenants]]` table, flattened to dotted keys.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub location: Location,
    pub keys: Settings,
}

#[derive(Debug, Default)]
pub(super) struct Layer {
    pub settings: Settings,
    pub routes: Vec<Table>,
    pub tenants: Vec<Table>,
}

/// Parses the embedded file. Returns the default values and the known keys in file order.
pub(super) fn defaults() -> (Settings, Vec<String>) {
    let source = Source { path: None, text: EMBEDDED };
    let (document, _) = DeTable::parse_recoverable(EMBEDDED);
    let mut found = Vec::new();
    source.collect_leaves(document.get_ref(), "", &mut found);
    found.sort_by_key(|(start, ..)| *start);
    let known = found.iter().map(|(_, key, _)| key.clone()).collect();
    (found.into_iter().map(|(_, key, entry)| (key, entry)).collect(), known)
}

/// Parses the operator's file.
///
/// Returns `None` if it is not TOML or if its routes or tenants are not tables. The caller then stops, because errors
/// about missing keys would be misleading.
pub(super) fn parse(path: &Path, text: &str, known: &[String], errors: &mut Vec<ConfigError>) -> Option<Layer> {
    let source = Source { path: Some(path), text };
    let (document, faults) = DeTable::parse_recoverable(text);
    if !faults.is_empty() {
        errors.extend(faults.iter().map(|fault| {
            let location = source.location(fault.span().unwrap_or_default());
            ConfigError::at(&location, fault.message())
        }));
        return None;
    }

    let mut layer = Layer::default();
    let mut known: Vec<&str> = known.iter().map(String::as_str).collect();
    known.extend(["routes", "tenants"]);
    source.flatten(document.get_ref(), "", "", &known, &mut layer.settings, errors);
    for (name, keys, tables) in
        [("routes", route::KEYS, &mut layer.routes), ("tenants", tenant::KEYS, &mut layer.tenants)]
    {
        layer.settings.remove(name);
        if let Some(value) = document.get_ref().get(name) {
            *tables = source.tables(name, value.get_ref(), value.span(), keys, errors)?;
        }
    }
    Some(layer)
}

/// A TOML text and the path of its file. Without a path it is the embedded file.
struct Source<'a> {
    path: Option<&'a Path>,
    text: &'a str,
}

impl Source<'_> {
    fn location(&self, span: Range<usize>) -> Location {
        let Some(path) = self.path else {
            return Location::new(Origin::Default);
        };
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1;
        Location { origin: Origin::File { path: path.to_owned(), line }, column }
    }

    fn entry(&self, value: &DeValue<'_>, span: Range<usize>) -> Entry {
        let inner = match value {
            DeValue::String(text) => Value::Str(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Int(number),
                Err(_) => Value::Other("an integer beyond 64 bits"),
            },
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Array(items) => {
                Value::List(items.iter().map(|item| self.entry(item.get_ref(), item.span())).collect())
            }
            DeValue::Table(table) => Value::Map(
                table
                    .iter()
                    .map(|(key, item)| (key.get_ref().to_string(), self.entry(item.get_ref(), item.span())))
                    .collect(),
            ),
            DeValue::Float(number) => match number.as_str().replace('_', "").parse() {
                Ok(number) => Value::Float(number),
                Err(_) => Value::Other("a float"),
            },
            DeValue::Datetime(_) => Value::Other("a date or time"),
        };
        Entry { location: self.location(span), value: inner }
    }

    fn collect_leaves(&self, table: &DeTable<'_>, prefix: &str, found: &mut Vec<(usize, String, Entry)>) {
        for (key, value) in table {
            let path = format!("{prefix}{}", key.get_ref());
            match value.get_ref() {
                // The operator chooses the keys of this table, so the table as a whole is the value.
                table @ DeValue::Table(_) if path == search::EVENT_TYPES => {
                    found.push((key.span().start, path, self.entry(table, value.span())));
                }
                DeValue::Table(inner) if path != rules::AUTHORITY => {
                    self.collect_leaves(inner, &format!("{path}."), found);
                }
                other => found.push((key.span().start, path, self.entry(other, value.span()))),
            }
        }
    }

    /// Adds the known keys of `table` to `settings` and reports unknown ones.
    ///
    /// `prefix` is `timeouts.` inside `[timeouts]`. `table_name` is the table's name in errors (`routes` for a route).
    fn flatten(
        &self,
        table: &DeTable<'_>,
        table_name: &str,
        prefix: &str,
        known: &[&str],
        settings: &mut Settings,
        errors: &mut Vec<ConfigError>,
    ) {
        for (key, value) in table {
            let path = format!("{prefix}{}", key.get_ref());
            let section = format!("{path}.");
            if known.contains(&path.as_str()) {
                settings.insert(path, self.entry(value.get_ref(), value.span()));
            } else if known.iter().any(|name| name.starts_with(&section)) {
                match value.get_ref() {
                    DeValue::Table(inner) => self.flatten(inner, table_name, &section, known, settings, errors),
                    other => {
                        let entry = self.entry(other, value.span());
                        let name = join(table_name, &path);
                        let message = format!("{name} = {}: expected a table, written [{name}]", entry.shown());
                        errors.push(ConfigError::at(&entry.location, message));
                    }
                }
            } else {
                let message = unknown_key(key.get_ref(), table_name, prefix, known);
                errors.push(ConfigError::at(&self.location(key.span()), message));
            }
        }
    }

    fn tables(
        &self,
        name: &str,
        value: &DeValue<'_>,
        span: Range<usize>,
        known: &[&str],
        errors: &mut Vec<ConfigError>,
    ) -> Option<Vec<Table>> {
        let not_tables =
            |span| ConfigError::at(&self.location(span), format!("{name}: expected tables, each written [[{name}]]"));
        let DeValue::Array(items) = value else {
            errors.push(not_tables(span));
            return None;
        };
        let mut tables = Vec::new();
        for item in items {
            let DeValue::Table(inner) = item.get_ref() else {
                errors.push(not_tables(item.span()));
                return None;
            };
            let mut keys = Settings::new();
            self.flatten(inner, name, "", known, &mut keys, errors);
            tables.push(Table { location: self.location(item.span()), keys });
        }
        Some(tables)
    }
}

/// Formats an error such as `unknown key "drian" in [timeouts]; did you mean "drain"?`.
fn unknown_key(key: &str, table_name: &str, prefix: &str, known: &[&str]) -> String {
    let inside = join(table_name, prefix.trim_end_matches('.'));
    let inside = match (inside.is_empty(), table_name.is_empty(), prefix.is_empty()) {
        (true, ..) => String::new(),
        (_, false, true) => format!(" in [[{inside}]]"),
        _ => format!(" in [{inside}]"),
    };
    let mut here: Vec<&str> = Vec::new();
    for name in known.iter().filter_map(|name| name.strip_prefix(prefix)) {
        let name = name.split('.').next().unwrap_or(name);
        if !here.contains(&name) {
            here.push(name);
        }
    }
    let hint = if let Some(name) = suggest::nearest(key, here.iter().copied()) {
        format!("did you mean {name:?}?")
    } else if let Some(hint) = misplaced_key_hint(key, table_name, known) {
        hint
    } else {
        format!("known here: {}", here.join(", "))
    };
    format!("unknown key {key:?}{inside}; {hint}")
}

/// Hint for a known key in the wrong section, most often a top-level key written below a `[section]`.
fn misplaced_key_hint(key: &str, table_name: &str, known: &[&str]) -> Option<String> {
    if known.contains(&key) {
        return Some(match table_name {
            "" => format!("{key:?} belongs above the first [section]"),
            name => format!("{key:?} belongs right below [[{name}]]"),
        });
    }
    let section = known.iter().find_map(|name| name.strip_suffix(key)?.strip_suffix('.'))?;
    Some(format!("{key:?} belongs in [{}]", join(table_name, section)))
}

fn join(table_name: &str, path: &str) -> String {
    match (table_name, path) {
        ("", path) => path.to_owned(),
        (name, "") => name.to_owned(),
        (name, path) => format!("{name}.{path}"),
    }
}
