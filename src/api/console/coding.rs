//! Content coding of the console's files: brotli, gzip or none.

use http::{HeaderMap, header};

use crate::app::negotiate::weighed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Brotli,
    Gzip,
    Identity,
}

impl Coding {
    /// Smallest first: of codings with equal weight the first is chosen.
    const ALL: [Self; 3] = [Self::Brotli, Self::Gzip, Self::Identity];

    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }

    /// Suffix of the entity tag, because each coding is a representation of its own (RFC 9110 section 8.8.3).
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => "-br",
            Self::Gzip => "-gz",
            Self::Identity => "",
        }
    }

    fn is(self, name: &str) -> bool {
        let names: &[&str] = match self {
            Self::Brotli => &["br"],
            Self::Gzip => &["gzip", "x-gzip"],
            Self::Identity => &["identity"],
        };
        names.iter().any(|one| name.eq_ignore_ascii_case(one))
    }
}

/// Chooses the available coding with the highest weight in `Accept-Encoding` (RFC 9110 section 12.5.3). If the client
/// refuses all of them, the file is sent without coding.
pub fn negotiate(headers: &HeaderMap, has: impl Fn(Coding) -> bool) -> Coding {
    let accepted: Vec<(&str, u16)> = weighed(headers, header::ACCEPT_ENCODING).collect();
    let weight = |coding: Coding| {
        let named = accepted.iter().find(|(name, _)| coding.is(name));
        let wildcard = || accepted.iter().find(|(name, _)| *name == "*");
        // A coding that is not listed is refused, except identity, which then has the lowest weight.
        let unnamed = if coding == Coding::Identity { Some(0) } else { None };
        named.or_else(wildcard).map_or(unnamed, |(_, weight)| (*weight > 0).then_some(*weight))
    };
    let offered = Coding::ALL.into_iter().filter(|coding| has(*coding));
    // Reversed, because max_by_key returns the last of equal items.
    let best = offered.filter_map(|coding| Some((coding, weight(coding)?))).rev().max_by_key(|(_, weight)| *weight);
    best.map_or(Coding::Identity, |(coding, _)| coding)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn negotiated(lists: &[&'static str]) -> Coding {
        negotiated_among(lists, |_| true)
    }

    fn negotiated_among(lists: &[&'static str], has: impl Fn(Coding) -> bool) -> Coding {
        let mut headers = HeaderMap::new();
        for list in lists {
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(list));
        }
        negotiate(&headers, has)
    }

    #[test]
    fn smallest_of_the_preferred_codings_is_chosen() {
        for (accepted, coding) in [
            ("gzip, deflate, br, zstd", Coding::Brotli),
            ("gzip, deflate", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("GZIP;Q=1.0, br;q=0.9", Coding::Gzip),
            ("br ; q=0.001", Coding::Brotli),
            ("*", Coding::Brotli),
            ("*;q=0.5, identity", Coding::Identity),
            ("identity, br;q=0.5", Coding::Identity),
            ("deflate", Coding::Identity),
            ("", Coding::Identity),
        ] {
            assert_eq!(negotiated(&[accepted]), coding, "{accepted}");
        }
        assert_eq!(negotiated(&[]), Coding::Identity);
        assert_eq!(negotiated(&["gzip;q=0.2", "br;q=0.1"]), Coding::Gzip, "two headers are one list");
    }

    #[test]
    fn refused_coding_is_not_chosen() {
        for (accepted, coding) in [
            ("br;q=0, gzip", Coding::Gzip),
            ("br;q=0.000, *", Coding::Gzip),
            ("gzip;q=0, br;q=0", Coding::Identity),
            ("*;q=0, br", Coding::Brotli),
            ("br;q=high, gzip;q=0.1", Coding::Gzip),
            ("br;q=2, gzip;q=-1", Coding::Identity),
            ("identity;q=0, gzip;q=0.1", Coding::Gzip),
            // All are refused: a page is better than an error.
            ("*;q=0", Coding::Identity),
        ] {
            assert_eq!(negotiated(&[accepted]), coding, "{accepted}");
        }
    }

    #[test]
    fn unavailable_coding_is_not_chosen() {
        assert_eq!(negotiated_among(&["br, gzip"], |coding| coding != Coding::Brotli), Coding::Gzip);
        assert_eq!(negotiated_among(&["br, gzip"], |coding| coding == Coding::Identity), Coding::Identity);
    }
}
