//! What an operator writes, and what comes of it.

mod defaults;
mod env;
mod examples;
mod headers;
mod keys;
mod mapping;
mod origins;
mod routes;
mod rules;
mod search;
mod supplement;
mod tenants;
mod values;

use std::path::Path;

use super::{ConfigErrors, Flags, Loaded, from_toml, load};

const ROUTE: &str = "[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"https://a.example\"\n";

/// `text` and one valid route below it.
fn file(text: &str) -> Result<Loaded, ConfigErrors> {
    from_toml(&format!("{text}\n{ROUTE}"), Path::new("/srv/app"))
}

fn errors_of(loaded: Result<Loaded, ConfigErrors>) -> Vec<String> {
    match loaded {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

/// The one error of `text` with a valid route.
#[track_caller]
fn error(text: &str) -> String {
    only(file(text))
}

#[track_caller]
fn only(loaded: Result<Loaded, ConfigErrors>) -> String {
    let mut errors = errors_of(loaded);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors.remove(0)
}

/// No file, only these variables.
fn vars(vars: &[(&str, &str)]) -> Result<Loaded, ConfigErrors> {
    let empty = tempfile::tempdir().unwrap();
    load(&Flags::default(), vars.iter().copied(), empty.path())
}

/// A value in force and its origin, as `citetap check` prints them.
#[track_caller]
fn shown(loaded: &Loaded, key: &str) -> (String, String) {
    let setting = loaded.effective.iter().find(|setting| setting.key == key);
    let setting = setting.unwrap_or_else(|| panic!("{key} is not among {:#?}", loaded.effective));
    (setting.value.clone(), setting.origin.to_string())
}
