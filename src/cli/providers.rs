//! `citetap providers`: which providers there are, and what each can be used for.

use super::{Failure, print, table};
use crate::provider::{REGISTRY, Registry};

pub fn run() -> Result<(), Failure> {
    print(listed(&REGISTRY).as_bytes())
}

fn listed(registry: &Registry) -> String {
    table::align(&registry.rows().map(|row| row.map(str::to_owned).to_vec()).collect::<Vec<_>>())
}
