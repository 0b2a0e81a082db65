//! Finds the tenant of a request by its key. Keys are compared by their hashes, in constant time.

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::Problem;
use crate::config::{Auth, Tenant};

/// The tenant of every request if no keys are configured.
pub const SINGLE_TENANT: &str = "default";
const KEY_HEADER: &str = "x-citetap-key";

/// Returns the tenant and removes citetap's keys from the headers, so that the upstream never sees them.
pub fn tenant(auth: Auth, tenants: &[Tenant], headers: &mut HeaderMap) -> Result<String, Problem> {
    let own = headers.remove(KEY_HEADER);
    if auth == Auth::Open {
        return Ok(SINGLE_TENANT.to_owned());
    }
    // Also if the other header is present: a key sent in both must be removed from both.
    let bearer = take_bearer(tenants, headers);
    let name = match own {
        Some(key) => find(tenants, key.as_bytes()),
        None => bearer,
    };
    name.ok_or_else(Problem::unauthorized)
}

/// Removes citetap's keys from `Authorization` and returns the tenant of the first. Other values stay.
fn take_bearer(tenants: &[Tenant], headers: &mut HeaderMap) -> Option<String> {
    let owner = |value: &HeaderValue| bearer(value).and_then(|key| find(tenants, key));
    let name = headers.get_all(AUTHORIZATION).iter().find_map(owner)?;
    let others: Vec<HeaderValue> =
        headers.get_all(AUTHORIZATION).iter().filter(|value| owner(value).is_none()).cloned().collect();
    headers.remove(AUTHORIZATION);
    for value in others {
        headers.append(AUTHORIZATION, value);
    }
    Some(name)
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
