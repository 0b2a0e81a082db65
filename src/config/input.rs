//! Files an operator names: read whole, up to a cap.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Largest configuration file; larger is refused.
pub(super) const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// Largest file that a `…_FILE` variable may name; larger is refused.
pub(super) const MAX_VALUE_BYTES: u64 = 64 * 1024;

pub(super) enum Refusal {
    Missing,
    Because(String),
}

pub(super) fn read(path: &Path, cap: u64) -> Result<String, Refusal> {
    let because = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::Missing,
        io::ErrorKind::InvalidData => Refusal::Because("is not UTF-8 text".to_owned()),
        _ => Refusal::Because(format!("cannot be read: {error}")),
    };
    let mut text = String::new();
    // One byte beyond the cap tells "at" from "over", and the size of a device or pipe is never believed.
    let size = File::open(path).and_then(|file| file.take(cap + 1).read_to_string(&mut text)).map_err(because)?;
    if size as u64 > cap {
        return Err(Refusal::Because(format!("is larger than {cap} bytes")));
    }
    Ok(text)
}
