//! Content negotiation for `api` and `ops`: weights in `Accept` headers, and `If-None-Match`.

use http::{HeaderMap, HeaderName, header};

/// The items of a list such as `Accept`, each with its weight in thousandths (RFC 9110 section 12.4.2). An invalid
/// weight counts as 0, which refuses the item.
pub fn weighed(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = (&str, u16)> {
    let lists = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).filter_map(item)
}

fn item(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let weight: f32 = weight.map_or(Ok(1.0), str::parse).ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    Some((name, (weight * 1000.0).round() as u16))
}

/// True if the client has the representation with this entity tag. Compares weakly (RFC 9110 section 13.1.2), because
/// intermediaries that compress make tags weak.
pub fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = lists.flat_map(|list| list.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}
