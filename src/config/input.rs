//! Reads a file that the operator named, up to a size limit.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Maximum size of a configuration file.
pub(super) const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// Maximum size of a file that a `…_FILE` variable names.
pub(super) const MAX_VALUE_BYTES: u64 = 64 * 1024;

pub(super) enum ReadError {
    NotFound,
    /// The reason, as the predicate of a sentence that starts with the path.
    Other(String),
}

pub(super) fn read(path: &Path, max_bytes: u64) -> Result<String, ReadError> {
    let read_error = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ReadError::NotFound,
        io::ErrorKind::InvalidData => ReadError::Other("is not UTF-8 text".to_owned()),
        _ => ReadError::Other(format!("cannot be read: {error}")),
    };
    let mut text = String::new();
    // Read one byte more than the limit instead of asking for the size, which devices and pipes do not have.
    let size =
        File::open(path).and_then(|file| file.take(max_bytes + 1).read_to_string(&mut text)).map_err(read_error)?;
    if size as u64 > max_bytes {
        return Err(ReadError::Other(format!("is larger than {max_bytes} bytes")));
    }
    Ok(text)
}
