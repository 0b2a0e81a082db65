//! Where a value came from, and what is wrong with it.

use std::{fmt, path::PathBuf};

/// The layer that a value in force was taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Env(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// An origin as an error points at it: in a file also the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub origin: Origin,
    /// In characters, from 1. Zero outside files.
    pub column: usize,
}

impl Place {
    pub fn new(origin: Origin) -> Self {
        Self { origin, column: 0 }
    }

    pub fn env(name: &str) -> Self {
        Self::new(Origin::Env(name.to_owned()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            0 => self.origin.fmt(f),
            column => write!(f, "{}:{column}", self.origin),
        }
    }
}

/// One thing to mend. Displays as `citetap.toml:3:1: what is wrong`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    place: Option<Place>,
    message: String,
}

impl ConfigError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }

    pub(super) fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), message: message.into() }
    }

    /// The file's errors from top to bottom, then the environment's and the flags', then what concerns the whole.
    fn order(&self) -> (u8, usize, usize) {
        match self.place.as_ref().map(|place| (&place.origin, place.column)) {
            Some((Origin::File { line, .. }, column)) => (0, *line, column),
            Some(_) => (1, 0, 0),
            None => (2, 0, 0),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Everything to mend, one line each. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(ConfigError::order);
        errors.dedup();
        Self(errors)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
