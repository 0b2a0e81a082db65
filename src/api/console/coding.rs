//! Which of the codings that there are a client gets (RFC 9110 section 12.5.3).

use http::{HeaderMap, header};

use crate::app::negotiate;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Brotli,
    Gzip,
    Identity,
}

impl Coding {
    /// The smallest first: of those that a client likes equally it gets this one.
    const ALL: [Self; 3] = [Self::Brotli, Self::Gzip, Self::Identity];

    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }

    /// Each coding is a representation of its own, and so is its entity tag.
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

/// The one that `asked` weighs most, among those that there are. Who refuses all of them gets the plain one.
pub fn chosen(asked: &HeaderMap, has: impl Fn(Coding) -> bool) -> Coding {
    let weighed: Vec<(&str, u16)> = negotiate::weighed(asked, header::ACCEPT_ENCODING).collect();
    let weight = |coding: Coding| {
        let named = weighed.iter().find(|(name, _)| coding.is(name));
        let other = || weighed.iter().find(|(name, _)| *name == "*");
        // What is not named is refused, but for the plain one, which is then liked least.
        let unnamed = if coding == Coding::Identity { Some(0) } else { None };
        named.or_else(other).map_or(unnamed, |(_, weight)| (*weight > 0).then_some(*weight))
    };
    let offered = Coding::ALL.into_iter().filter(|coding| has(*coding));
    // The first of equals: max_by_key would take the last.
    let best = offered.filter_map(|coding| Some((coding, weight(coding)?))).rev().max_by_key(|(_, weight)| *weight);
    best.map_or(Coding::Identity, |(coding, _)| coding)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(lists: &[&'static str]) -> Coding {
        of_some(lists, |_| true)
    }

    fn of_some(lists: &[&'static str], has: impl Fn(Coding) -> bool) -> Coding {
        let mut headers = HeaderMap::new();
        for list in lists {
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(list));
        }
        chosen(&headers, has)
    }

    #[test]
    fn the_smallest_of_those_that_are_liked_most() {
        for (asked, coding) in [
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
            assert_eq!(of(&[asked]), coding, "{asked}");
        }
        assert_eq!(of(&[]), Coding::Identity);
        assert_eq!(of(&["gzip;q=0.2", "br;q=0.1"]), Coding::Gzip, "two headers are one list");
    }

    #[test]
    fn what_is_refused_is_not_sent() {
        for (asked, coding) in [
            ("br;q=0, gzip", Coding::Gzip),
            ("br;q=0.000, *", Coding::Gzip),
            ("gzip;q=0, br;q=0", Coding::Identity),
            ("*;q=0, br", Coding::Brotli),
            ("br;q=high, gzip;q=0.1", Coding::Gzip),
            ("br;q=2, gzip;q=-1", Coding::Identity),
            ("identity;q=0, gzip;q=0.1", Coding::Gzip),
            // Nothing is left: better a page than an error.
            ("*;q=0", Coding::Identity),
        ] {
            assert_eq!(of(&[asked]), coding, "{asked}");
        }
    }

    #[test]
    fn what_there_is_not_is_not_sent() {
        assert_eq!(of_some(&["br, gzip"], |coding| coding != Coding::Brotli), Coding::Gzip);
        assert_eq!(of_some(&["br, gzip"], |coding| coding == Coding::Identity), Coding::Identity);
    }
}
