//! `[cors]`: which pages of other origins may ask.

use http::HeaderValue;
use url::Url;

use super::{
    check::{self, Checked},
    value::Entry,
};

pub(super) const ORIGINS: &str = "cors.origins";
/// More is a slip: an operator who means everybody says `*`.
const MAX_ORIGINS: usize = 256;
const EXPECTED: &str = r#"expected an origin such as "https://app.example", or "*""#;

/// Nobody by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cors {
    /// Everybody may.
    pub any: bool,
    /// As browsers write them.
    pub origins: Vec<HeaderValue>,
}

pub(super) fn cors(entry: &Entry) -> Checked<Cors> {
    let named = check::list(entry, EXPECTED, |text| if text == "*" { Some(None) } else { origin(text).map(Some) })?;
    if named.len() > MAX_ORIGINS {
        return Err(format!("expected {MAX_ORIGINS} origins at most"));
    }
    let any = named.contains(&None);
    Ok(Cors { any, origins: named.into_iter().flatten().collect() })
}

/// Only as a browser writes it: anything else would never match, and nobody would see why.
fn origin(text: &str) -> Option<HeaderValue> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    (url.origin().ascii_serialization() == text).then(|| HeaderValue::from_str(text).ok()).flatten()
}
