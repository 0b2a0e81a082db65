//! Command line options: `--name value` pairs.

use std::collections::HashMap;
use std::str::FromStr;

pub struct Options(HashMap<String, String>);

impl Options {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = HashMap::new();
        while let Some(name) = args.next() {
            let name = name.strip_prefix("--").ok_or_else(|| format!("not an option: {name}"))?.to_owned();
            let value = args.next().ok_or_else(|| format!("--{name} takes a value"))?;
            options.insert(name, value);
        }
        Ok(Self(options))
    }

    pub fn get<T: FromStr>(&self, name: &str) -> Result<T, String> {
        let value = self.0.get(name).ok_or_else(|| format!("--{name} is missing"))?;
        value.parse().map_err(|_| format!("--{name} cannot be {value}"))
    }

    pub fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        if self.0.contains_key(name) { self.get(name) } else { Ok(default) }
    }
}
