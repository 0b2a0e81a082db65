//! Configuration errors and the source location of a value.

use std::{fmt, path::PathBuf};

/// The layer that supplied a value.
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

/// Source location of a value: its origin, and the column in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub origin: Origin,
    /// Column in characters, starting at 1. Zero outside files.
    pub column: usize,
}

impl Location {
    pub fn new(origin: Origin) -> Self {
        Self { origin, column: 0 }
    }

    pub fn env(name: &str) -> Self {
        Self::new(Origin::Env(name.to_owned()))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            0 => self.origin.fmt(f),
            column => write!(f, "{}:{column}", self.origin),
        }
    }
}

/// One invalid setting. Displays as `citetap.toml:3:1: what is wrong`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    location: Option<Location>,
    message: String,
}

impl ConfigError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { location: None, message: message.into() }
    }

    pub(super) fn at(location: &Location, message: impl Into<String>) -> Self {
        Self { location: Some(location.clone()), message: message.into() }
    }

    /// Sort key: errors of the file by position, then of the environment and flags, then those without a location.
    fn sort_key(&self) -> (u8, usize, usize) {
        match self.location.as_ref().map(|location| (&location.origin, location.column)) {
            Some((Origin::File { line, .. }, column)) => (0, *line, column),
            Some(_) => (1, 0, 0),
            None => (2, 0, 0),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// All errors of a configuration. Displays one per line. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(ConfigError::sort_key);
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
