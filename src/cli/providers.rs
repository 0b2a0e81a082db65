//! `citetap providers`: lists the supported providers.

use super::{Failure, print, table};
use crate::provider::{REGISTRY, Registry};

pub fn run() -> Result<(), Failure> {
    print(format_rows(&REGISTRY).as_bytes())
}

fn format_rows(registry: &Registry) -> String {
    table::align(&registry.rows().map(|row| row.map(str::to_owned).to_vec()).collect::<Vec<_>>())
}
