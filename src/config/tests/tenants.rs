use std::path::Path;

use super::{super::*, ROUTE, error, errors_of, file, only};

fn tenant(name: &str, hash: &str) -> String {
    format!("[[tenants]]\nname = {name:?}\nkey_sha256 = {hash:?}\n")
}

fn with(top: &str, tenants: &[String]) -> Result<Loaded, ConfigErrors> {
    from_toml(&format!("{top}\n{ROUTE}{}", tenants.concat()), Path::new("/"))
}

#[test]
fn tenants_require_keys_and_allow_any_address() {
    let config =
        with("listen = \"0.0.0.0:1\"", &[tenant("a", &"aB".repeat(32)), tenant("b", &"0".repeat(64))]).unwrap().config;
    assert_eq!(config.auth, Auth::Keys);
    assert_eq!(config.tenants[0].key_sha256, [0xab; 32]);
    assert_eq!(config.tenants[1].name, "b");
}

#[test]
fn exposed_address_without_auth_is_refused() {
    let refused = "can be reached from other machines and nobody needs a key: add [[tenants]], listen on 127.0.0.1, or say auth = \"none\" (CITETAP__AUTH=none) if the network is yours alone";
    for address in ["0.0.0.0:8787", "[::]:8787", "192.0.2.1:8787"] {
        assert_eq!(error(&format!("listen = {address:?}")), format!("listen = {address} {refused}"));
        assert_eq!(file(&format!("listen = {address:?}\nauth = \"none\"")).unwrap().config.auth, Auth::Open);
    }
    for address in ["127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(file(&format!("listen = {address:?}")).unwrap().config.auth, Auth::Open);
    }
}

#[test]
fn contradictory_auth_and_tenants_are_refused() {
    assert_eq!(
        error("auth = \"keys\""),
        "citetap.toml:1:8: auth = \"keys\": nobody could ask without [[tenants]]; add one"
    );
    let some = [tenant("a", &"0".repeat(64))];
    assert_eq!(with("auth = \"keys\"", &some).unwrap().config.auth, Auth::Keys);
    assert_eq!(
        only(with("auth = \"none\"", &some)),
        "citetap.toml:1:8: auth = \"none\": would open every tenant's records to everyone; remove it, or the [[tenants]]"
    );
    assert_eq!(
        error("auth = \"key\""),
        "citetap.toml:1:8: auth = \"key\": expected \"auto\", \"keys\" or \"none\"; did you mean \"keys\"?"
    );
}

#[test]
fn invalid_key_hash_is_refused_and_not_printed() {
    let expected =
        "tenants.key_sha256: expected the SHA-256 of the key, 64 hexadecimal digits: printf %s \"$KEY\" | sha256sum";
    for hash in ["0".repeat(63), "0".repeat(65), "g".repeat(64), "+f".repeat(32), "my-plain-key".to_owned()] {
        assert_eq!(only(with("", &[tenant("a", &hash)])), format!("citetap.toml:8:14: {expected}"));
    }
}

#[test]
fn duplicate_tenant_names_and_keys_are_refused() {
    let (one, two) = ("1".repeat(64), "2".repeat(64));
    assert_eq!(
        only(with("", &[tenant("a", &one), tenant("a", &two)])),
        "citetap.toml:9:1: tenants.name: another tenant is named \"a\""
    );
    assert_eq!(
        only(with("", &[tenant("a", &one), tenant("b", &one)])),
        "citetap.toml:9:1: tenants.key_sha256: tenants \"a\" and \"b\" have the same key"
    );
    assert!(errors_of(with("", &[tenant("a", &one), tenant("b", &two)])).is_empty());
    // An invalid tenant must not count as no tenant, because the error would then advise to add one.
    assert!(only(with("listen = \"0.0.0.0:1\"", &[tenant("A", &one)])).contains("tenants.name = \"A\""));
    assert_eq!(
        only(with("", &[format!("[[tenants]]\nkey_sha256 = {one:?}\n")])),
        "citetap.toml:6:1: [[tenants]] without \"name\""
    );
}

#[test]
fn tenant_rate_overrides_the_default_rate() {
    let of = |name: &str, digit: &str, more: &str| tenant(name, &digit.repeat(64)) + more;
    let tenants = [of("a", "1", ""), of("b", "2", "requests = \"5/s\"\n"), of("c", "3", "requests = \"off\"\n")];
    let loaded = with("limits.requests = \"600/m\"", &tenants).unwrap();
    let rates = loaded.config.tenants.iter().map(|tenant| tenant.requests.map(|rate| rate.to_string()));
    assert_eq!(rates.collect::<Vec<_>>(), [Some("600/m".to_owned()), Some("5/s".to_owned()), None]);
    let shown = loaded.effective.iter().find(|setting| setting.key == "tenants.b.requests").unwrap();
    assert_eq!((shown.value.as_str(), shown.origin.to_string()), ("5/s", "citetap.toml:12".to_owned()));
    assert!(
        only(with("", &[of("a", "1", "requests = \"many\"\n")]))
            .starts_with("citetap.toml:9:12: tenants.requests = \"many\": expected a number of requests and a time")
    );
}
