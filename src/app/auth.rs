//! Whose request is it? Keys are compared by their hashes, in constant time.

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::Problem;
use crate::config::{Auth, Tenant};

/// The tenant of everybody where no keys are configured.
pub const SINGLE_TENANT: &str = "default";
const KEY_HEADER: &str = "x-citetap-key";

/// Says whose request it is, and takes our key out of its headers: the upstream never sees it.
pub fn tenant(auth: Auth, tenants: &[Tenant], headers: &mut HeaderMap) -> Result<String, Problem> {
    let own = headers.remove(KEY_HEADER);
    if auth == Auth::Open {
        return Ok(SINGLE_TENANT.to_owned());
    }
    // Also beside the other header: sent both ways, our key still goes no further.
    let bearer = take_bearer(tenants, headers);
    let name = match own {
        Some(key) => find(tenants, key.as_bytes()),
        None => bearer,
    };
    name.ok_or_else(Problem::unauthorized)
}

/// Takes our keys out of `Authorization`, and says whose the first one is. Other values stay.
fn take_bearer(tenants: &[Tenant], headers: &mut HeaderMap) -> Option<String> {
    let ours = |value: &HeaderValue| bearer(value).and_then(|key| find(tenants, key));
    let name = headers.get_all(AUTHORIZATION).iter().find_map(ours)?;
    let theirs: Vec<HeaderValue> =
        headers.get_all(AUTHORIZATION).iter().filter(|value| ours(value).is_none()).cloned().collect();
    headers.remove(AUTHORIZATION);
    for value in theirs {
        headers.append(AUTHORIZATION, value);
    }
    Some(name)
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, key) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
}

/// Looks at every tenant, whichever fits, and at every byte of its hash: time tells neither whose key it is nor how near
/// a wrong one comes. Hashes, as keys have different lengths, and as none is then in the configuration.
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

    fn ask(auth: Auth, pairs: &[(&'static str, &'static str)]) -> (Result<String, u16>, HeaderMap) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let result = tenant(auth, &tenants(), &mut headers).map_err(|problem| problem.status.as_u16());
        (result, headers)
    }

    #[test]
    fn a_key_names_its_tenant_and_goes_no_further() {
        let (tenant, headers) =
            ask(Auth::Keys, &[("x-citetap-key", "beta-key"), ("authorization", "Bearer upstreams")]);
        assert_eq!(tenant, Ok("beta".to_owned()));
        assert_eq!(headers.len(), 1, "the upstream's own authorization passes");
        let (tenant, headers) = ask(Auth::Keys, &[("authorization", "bearer alpha-key")]);
        assert_eq!(tenant, Ok("alpha".to_owned()));
        assert!(headers.is_empty());
        let (tenant, headers) =
            ask(Auth::Keys, &[("x-citetap-key", "beta-key"), ("authorization", "Bearer alpha-key")]);
        assert_eq!(tenant, Ok("beta".to_owned()));
        assert!(headers.is_empty(), "sent both ways");
    }

    #[test]
    fn the_first_the_last_and_any_key_between_are_found_alike() {
        let names: Vec<String> = (0..100).map(|n| format!("t-{n}")).collect();
        let key = |name: &str| format!("{name}-key");
        let tenants: Vec<Tenant> = names
            .iter()
            .map(|name| Tenant { name: name.clone(), key_sha256: Sha256::digest(key(name)).into(), requests: None })
            .collect();
        for name in &names {
            let right = key(name);
            assert_eq!(find(&tenants, right.as_bytes()).as_ref(), Some(name));
            for near in [&right[1..], &right[..right.len() - 1], &format!("{right} "), &right.to_uppercase()] {
                assert_eq!(find(&tenants, near.as_bytes()), None, "{near:?}");
            }
            let hash: [u8; 32] = Sha256::digest(&right).into();
            assert_eq!(find(&tenants, &hash), None, "the hash is no key");
        }
        assert_eq!(find(&tenants, b""), None);
        assert_eq!(find(&[], b"t-0-key"), None);
    }

    #[test]
    fn without_a_known_key_there_is_no_tenant() {
        for pairs in [
            &[][..],
            &[("x-citetap-key", "wrong")],
            &[("authorization", "Bearer upstreams")],
            &[("authorization", "x")],
        ] {
            assert_eq!(ask(Auth::Keys, pairs).0, Err(401));
        }
        assert_eq!(ask(Auth::Open, &[]).0, Ok(SINGLE_TENANT.to_owned()));
    }
}
