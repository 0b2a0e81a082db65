//! A value as an operator wrote it, before anyone knows what it should be, and how it may be shown.

use std::{borrow::Cow, collections::BTreeMap};

use super::error::Place;

/// Stands for whatever may be a secret, in errors and in `citetap check`.
pub(super) const REDACTED: &str = "•••";

/// Longest piece of an operator's value that an error repeats.
const SHOWN_CHARS: usize = 80;

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub place: Place,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    /// From the environment or a flag, where everything is text: its reader decides the type.
    Text(String),
    Str(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Entry>),
    /// Only where keys are the operator's own, as in `set = {…}`.
    Map(BTreeMap<String, Entry>),
    /// A type that no setting has, by name.
    Other(&'static str),
}

impl Entry {
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// For an error: quoted, cut, without passwords.
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

    /// The same of a path, whose query may hold a key.
    pub fn shown_without_query(&self) -> String {
        match self.text().and_then(|text| text.split_once('?')) {
            Some((path, _)) => quoted(&format!("{path}?{REDACTED}")),
            None => self.shown(),
        }
    }

    /// For the list of settings in force: bare, without passwords.
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

/// Takes user, password and query out of a URL; other text stays.
fn redact(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Cow::Borrowed(text);
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let at = authority.rfind('@').or_else(|| {
        // A password with a raw "/", "?" or "#" ends the authority early: what looks like a port is no number then.
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
