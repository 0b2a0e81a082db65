//! Finds the tenant of a request by its key, and removes citetap's keys from what is relayed. Keys are compared by their
//! hashes, in constant time.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::Problem;
use crate::config::{Auth, Tenant};

/// The tenant of every request if no keys are configured.
pub const SINGLE_TENANT: &str = "default";
const KEY_HEADER: &str = "x-citetap-key";

/// Returns the tenant and removes citetap's keys from all headers, so that the upstream never sees them.
pub fn tenant(auth: Auth, tenants: &[Tenant], headers: &mut HeaderMap) -> Result<String, Problem> {
    let own = headers.remove(KEY_HEADER);
    let name = match own {
        Some(key) => find(tenants, key.as_bytes()),
        None => headers.get_all(AUTHORIZATION).iter().find_map(|value| find(tenants, bearer(value)?)),
    };
    remove_keys(tenants, headers);
    if auth == Auth::Open {
        return Ok(SINGLE_TENANT.to_owned());
    }
    name.ok_or_else(Problem::unauthorized)
}

/// Returns the query without the parameters whose value is one of citetap's keys. Some clients can send a key only there.
pub fn query_without_keys<'q>(tenants: &[Tenant], query: &'q str) -> Cow<'q, str> {
    let is_kept = |pair: &&str| {
        let value = pair.split_once('=').map_or(*pair, |(_, value)| value);
        !is_key(tenants, &Cow::from(percent_decode_str(value)))
    };
    if tenants.is_empty() || query.split('&').all(|pair| is_kept(&pair)) {
        return Cow::Borrowed(query);
    }
    Cow::Owned(query.split('&').filter(is_kept).collect::<Vec<_>>().join("&"))
}

/// Removes every header value that contains one of citetap's keys. Clients put keys into many headers (`x-api-key`,
/// `Authorization: Token K`), and one that citetap does not read must not leave the process either.
fn remove_keys(tenants: &[Tenant], headers: &mut HeaderMap) {
    if tenants.is_empty() {
        return;
    }
    let is_kept = |value: &&HeaderValue| !contains_key(tenants, value.as_bytes());
    let names: Vec<HeaderName> =
        headers.iter().filter(|(_, value)| !is_kept(value)).map(|(name, _)| name.clone()).collect();
    for name in names {
        let others: Vec<HeaderValue> = headers.get_all(&name).iter().filter(is_kept).cloned().collect();
        headers.remove(&name);
        for value in others {
            headers.append(name.clone(), value);
        }
    }
}

/// Whether a header value is a key or has one as a word, as a quoted text, after `=` or `:`, or in `Basic` credentials.
fn contains_key(tenants: &[Tenant], value: &[u8]) -> bool {
    let words = value.split(|b| b.is_ascii_whitespace());
    let mut is_basic = false;
    for word in words.chain([value.trim_ascii()]) {
        let decoded = if is_basic { BASE64_STANDARD.decode(word).unwrap_or_default() } else { Vec::new() };
        if [word, &decoded].into_iter().any(|text| has_key_in_parts(tenants, text)) {
            return true;
        }
        is_basic = word.eq_ignore_ascii_case(b"basic");
    }
    false
}

/// Whether the text, what follows its first `=` or `:`, or a part between separators is a key. A key may contain separators.
fn has_key_in_parts(tenants: &[Tenant], text: &[u8]) -> bool {
    const SEPARATORS: &[u8] = b"\"',;=:";
    let is_separator = |b: &u8| SEPARATORS.contains(b);
    let after = |separator: u8| text.iter().position(|b| *b == separator).and_then(|at| text.get(at + 1..));
    let wholes = [Some(text), after(b'='), after(b':')].into_iter().flatten();
    let trimmed = |text: &[u8]| {
        let start = text.iter().position(|b| !is_separator(b))?;
        let end = text.iter().rposition(|b| !matches!(b, b'"' | b'\'' | b',' | b';'))?;
        text.get(start..=end).map(<[u8]>::to_vec)
    };
    wholes.clone().any(|text| is_key(tenants, text))
        || wholes.filter_map(trimmed).any(|text| is_key(tenants, &text))
        || text.split(is_separator).any(|part| is_key(tenants, part))
}

fn is_key(tenants: &[Tenant], text: &[u8]) -> bool {
    !text.is_empty() && find(tenants, text).is_some()
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, key) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
}

/// Finds the tenant with this key. Compares every byte of every tenant's hash, so that the time reveals neither which
/// tenant matches nor how close a wrong key is. Hashes have one length, and keep the keys out of the configuration.
fn find(tenants: &[Tenant], key: &[u8]) -> Option<String> {
    let hash = Sha256::digest(key);
    let mut found = None;
    for tenant in tenants {
        if bool::from(tenant.key_sha256.as_slice().ct_eq(hash.as_slice())) {
            found = Some(tenant.name.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants() -> Vec<Tenant> {
        ["alpha", "beta"]
            .map(|name| Tenant {
                name: name.to_owned(),
                key_sha256: Sha256::digest(format!("{name}-key")).into(),
                requests: None,
            })
            .to_vec()
    }

    fn authenticate(auth: Auth, pairs: &[(&'static str, &'static str)]) -> (Result<String, u16>, HeaderMap) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let result = tenant(auth, &tenants(), &mut headers).map_err(|problem| problem.status.as_u16());
        (result, headers)
    }

    #[test]
    fn key_selects_tenant_and_is_removed() {
        let (tenant, headers) =
            authenticate(Auth::Keys, &[("x-citetap-key", "beta-key"), ("authorization", "Bearer upstreams")]);
        assert_eq!(tenant, Ok("beta".to_owned()));
        assert_eq!(headers.len(), 1, "the upstream's own authorization passes");
        let (tenant, headers) = authenticate(Auth::Keys, &[("authorization", "bearer alpha-key")]);
        assert_eq!(tenant, Ok("alpha".to_owned()));
        assert!(headers.is_empty());
        let (tenant, headers) =
            authenticate(Auth::Keys, &[("x-citetap-key", "beta-key"), ("authorization", "Bearer alpha-key")]);
        assert_eq!(tenant, Ok("beta".to_owned()));
        assert!(headers.is_empty(), "sent both ways");
    }

    #[test]
    fn keys_are_removed_from_every_header() {
        for (name, value) in [
            ("authorization", "Bearer\talpha-key"),
            ("authorization", "Token token=\"alpha-key\""),
            ("authorization", "alpha-key"),
            ("authorization", "Bearer: alpha-key"),
            ("authorization", "Basic YWxwaGEta2V5Og=="),
            ("authorization", "basic OmFscGhhLWtleQ=="),
            ("x-api-key", "alpha-key"),
            ("x-anything", "a, alpha-key"),
            ("cookie", "a=1; session=alpha-key"),
        ] {
            let (tenant, headers) = authenticate(Auth::Keys, &[("x-citetap-key", "beta-key"), (name, value)]);
            assert_eq!((tenant, headers.len()), (Ok("beta".to_owned()), 0), "{name}: {value}");
            let (_, headers) = authenticate(Auth::Open, &[(name, value)]);
            assert!(headers.is_empty(), "also if no key is needed");
        }
        let (_, headers) = authenticate(
            Auth::Keys,
            &[("x-citetap-key", "beta-key"), ("authorization", "Basic dXNlcjpwYXNz"), ("x-api-key", "alpha-keys")],
        );
        assert_eq!(headers.len(), 2, "other credentials are relayed");
    }

    #[test]
    fn key_that_contains_separators_is_removed() {
        let key = "a=b:c==";
        let tenant = Tenant { name: "a".to_owned(), key_sha256: Sha256::digest(key).into(), requests: None };
        for value in [format!("Bearer {key}"), format!("token=\"{key}\""), format!("x: {key};")] {
            assert!(contains_key(std::slice::from_ref(&tenant), value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn keys_are_removed_from_the_query() {
        for (query, rest) in [
            ("a=1&key=alpha-key&b", "a=1&b"),
            ("key=alpha%2Dkey", ""),
            ("alpha-key&a=%20", "a=%20"),
            ("a=1&&b=%zz", "a=1&&b=%zz"),
        ] {
            assert_eq!(query_without_keys(&tenants(), query), rest);
        }
    }

    #[test]
    fn find_matches_the_key_at_any_position() {
        let names: Vec<String> = (0..100).map(|n| format!("t-{n}")).collect();
        let key = |name: &str| format!("{name}-key");
        let tenants: Vec<Tenant> = names
            .iter()
            .map(|name| Tenant { name: name.clone(), key_sha256: Sha256::digest(key(name)).into(), requests: None })
            .collect();
        for name in &names {
            let right = key(name);
            assert_eq!(find(&tenants, right.as_bytes()).as_ref(), Some(name));
            for similar in [&right[1..], &right[..right.len() - 1], &format!("{right} "), &right.to_uppercase()] {
                assert_eq!(find(&tenants, similar.as_bytes()), None, "{similar:?}");
            }
            let hash: [u8; 32] = Sha256::digest(&right).into();
            assert_eq!(find(&tenants, &hash), None, "the hash is no key");
        }
        assert_eq!(find(&tenants, b""), None);
        assert_eq!(find(&[], b"t-0-key"), None);
    }

    #[test]
    fn unknown_key_is_refused_unless_auth_is_open() {
        for pairs in [
            &[][..],
            &[("x-citetap-key", "wrong")],
            &[("authorization", "Bearer upstreams")],
            &[("authorization", "x")],
        ] {
            assert_eq!(authenticate(Auth::Keys, pairs).0, Err(401));
        }
        assert_eq!(authenticate(Auth::Open, &[]).0, Ok(SINGLE_TENANT.to_owned()));
    }
}
