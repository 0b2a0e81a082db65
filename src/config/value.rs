//! An unvalidated value with its source location, and how it is printed without secrets.

use std::{borrow::Cow, collections::BTreeMap};

use super::error::Location;

/// Replaces text that may be a secret, in errors and in `citetap check`.
pub(super) const REDACTED: &str = "•••";

/// Maximum number of characters of a value that an error repeats.
const SHOWN_CHARS: usize = 80;

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub location: Location,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    /// Untyped text from the environment or a flag. The setting's parser decides the type.
    Text(String),
    /// A TOML string.
    Str(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Entry>),
    /// A table whose keys the operator chooses, as in `set = {…}`.
    Map(BTreeMap<String, Entry>),
    /// A TOML type that no setting has. Holds its name for the error.
    Other(&'static str),
}

impl Entry {
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Formats the value for an error: quoted, truncated, without passwords.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) | Value::Str(text) => quoted(text),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::List(_) => "an array".to_owned(),
            Value::Map(_) => "a table".to_owned(),
            Value::Other(kind) => (*kind).to_owned(),
        }
    }

    /// Like [`shown`](Self::shown), but also hides the query of a path, which may contain a key.
    pub fn shown_without_query(&self) -> String {
        match self.text().and_then(|text| text.split_once('?')) {
            Some((path, _)) => quoted(&format!("{path}?{REDACTED}")),
            None => self.shown(),
        }
    }

    /// Formats the value for `citetap check`: unquoted, without passwords.
    pub fn effective(&self) -> String {
        match &self.value {
            Value::Text(text) | Value::Str(text) => redact(text).into_owned(),
            Value::List(items) => {
                let items: Vec<_> = items.iter().map(Self::effective).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Map(items) => {
                let items: Vec<_> = items.iter().map(|(name, item)| format!("{name} = {}", item.effective())).collect();
                format!("{{{}}}", items.join(", "))
            }
            _ => self.shown(),
        }
    }
}

pub(super) fn quoted(text: &str) -> String {
    let text = redact(text);
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Removes user, password and query from a URL. Other text is returned as it is.
fn redact(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Cow::Borrowed(text);
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let at = authority.rfind('@').or_else(|| {
        // An unescaped "/", "?" or "#" in a password ends the authority early, so that the "port" is not a number.
        let port = authority.rsplit_once(':')?.1;
        if port.bytes().all(|b| b.is_ascii_digit()) { None } else { rest.rfind('@') }
    });
    let (user, host) = match at {
        Some(at) => (format!("{REDACTED}@"), &rest[at + 1..]),
        None => (String::new(), rest),
    };
    match host.split_once('?') {
        Some((host, _)) => Cow::Owned(format!("{scheme}://{user}{host}?{REDACTED}")),
        None if user.is_empty() => Cow::Borrowed(text),
        None => Cow::Owned(format!("{scheme}://{user}{host}")),
    }
}
