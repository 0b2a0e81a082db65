//! Tests of the configuration as an operator writes it: text in, [`Config`](super::Config) or errors out.

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

/// Loads `text` followed by one valid route.
fn file(text: &str) -> Result<Loaded, ConfigErrors> {
    from_toml(&format!("{text}\n{ROUTE}"), Path::new("/srv/app"))
}

fn errors_of(loaded: Result<Loaded, ConfigErrors>) -> Vec<String> {
    match loaded {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the only error of `text` followed by one valid route.
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

/// Loads these environment variables without a file.
fn vars(vars: &[(&str, &str)]) -> Result<Loaded, ConfigErrors> {
    let empty = tempfile::tempdir().unwrap();
    load(&Flags::default(), vars.iter().copied(), empty.path())
}

/// Returns an effective value and its origin as `citetap check` prints them.
#[track_caller]
fn shown(loaded: &Loaded, key: &str) -> (String, String) {
    let setting = loaded.effective.iter().find(|setting| setting.key == key);
    let setting = setting.unwrap_or_else(|| panic!("{key} is not among {:#?}", loaded.effective));
    (setting.value.clone(), setting.origin.to_string())
}
