use std::{fs, path::PathBuf};

use super::{super::*, errors_of, only, shown, vars};

const UP: (&str, &str) = ("CITETAP_UPSTREAM", "https://www.doubao.com");

#[test]
fn upstream_alone_creates_a_route() {
    let loaded = vars(&[UP]).unwrap();
    let [route] = &loaded.config.routes[..] else { panic!("one route") };
    assert_eq!((route.name.as_str(), route.prefix.as_str()), ("default", "/"));
    assert_eq!(route.upstream.as_str(), "https://www.doubao.com/");
    assert_eq!((route.provider, route.inject), (Provider::AUTO, Inject::Final));
    assert_eq!(shown(&loaded, "routes.default.upstream").1, "env CITETAP_UPSTREAM");
    assert_eq!(shown(&loaded, "routes.default.prefix").1, "env CITETAP_UPSTREAM");
    assert_eq!(shown(&loaded, "routes.default.inject"), ("final".into(), "default".into()));
}

#[test]
fn sidecar_variables_describe_its_route() {
    let loaded = vars(&[
        UP,
        ("CITETAP_PROVIDER", "tencent"),
        ("CITETAP_LISTEN", "127.0.0.1:1"),
        ("CITETAP_STORE", "memory:"),
        ("CITETAP_LINK_BASE", "https://lexiangla.com"),
        ("CITETAP_PROFILE", "native"),
        ("CITETAP_MARKERS", "keep"),
        ("CITETAP_INJECT", "live"),
        ("PATH", "/bin"),
    ]);
    let config = loaded.unwrap().config;
    assert_eq!((config.listen.tcp().unwrap().port(), config.store), (1, StoreUrl::Memory));
    let route = &config.routes[0];
    assert_eq!(
        (route.name.as_str(), route.provider, route.inject),
        ("tencent", crate::provider::tencent::PROVIDER, Inject::Live)
    );
    assert_eq!(route.link_base.as_ref().unwrap().as_str(), "https://lexiangla.com/");
}

#[test]
fn sidecar_variables_without_upstream_are_refused() {
    let errors = errors_of(vars(&[("CITETAP_PROVIDER", "doubao")]));
    assert_eq!(
        errors,
        [
            "env CITETAP_PROVIDER: describes the route of CITETAP_UPSTREAM (or --upstream), which is not set; a route of the file is described in the file",
            "no route: set CITETAP_UPSTREAM=https://… or add [[routes]] to citetap.toml",
        ]
    );
    assert_eq!(only(vars(&[])), errors[1]);
}

#[test]
fn values_are_validated_as_in_the_file() {
    let with = |name, value| only(vars(&[UP, (name, value)]));
    assert_eq!(
        with("CITETAP_PROVIDER", "dubao"),
        "env CITETAP_PROVIDER: routes.provider = \"dubao\": expected \"doubao\", \"tencent\", \"openai\", \"openai-responses\", \"anthropic\", \"gemini\" or \"auto\"; did you mean \"doubao\"?"
    );
    assert_eq!(
        with("CITETAP_PROFILE", "open-ai"),
        "env CITETAP_PROFILE: routes.profile = \"open-ai\": expected \"native\", \"openai\", \"ai-sdk\" or \"open-webui\"; did you mean \"openai\"?"
    );
    assert_eq!(
        with("CITETAP_MARKERS", "on"),
        "env CITETAP_MARKERS: routes.markers = \"on\": expected \"keep\", \"link\", \"sup\", \"footnote\" or \"strip\""
    );
    assert!(with("CITETAP__LIMITS__STREAMS", "many").ends_with("limits.streams = \"many\": expected a whole number"));
}

#[test]
fn long_names_set_any_key() {
    let loaded = vars(&[
        UP,
        ("CITETAP__LISTEN", "127.0.0.1:2"),
        ("CITETAP__TIMEOUTS__DRAIN", "5s"),
        ("CITETAP__LIMITS__STREAMS", "7"),
        ("CITETAP__LIMITS__REQUEST_HEADER_BYTES", "9000"),
        ("CITETAP__LIMITS__REQUESTS", "60/m"),
        ("CITETAP__TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
        ("CITETAP__RECORDS__TTL", ""),
    ])
    .unwrap();
    assert_eq!(loaded.config.limits.streams, 7);
    assert_eq!(loaded.config.limits.request_header_bytes, 9000);
    assert_eq!(shown(&loaded, "limits.requests"), ("60/m".into(), "env CITETAP__LIMITS__REQUESTS".into()));
    assert_eq!(loaded.config.limits.requests.unwrap().to_string(), "60/m");
    assert_eq!(loaded.config.trusted_proxies.len(), 2);
    assert_eq!(shown(&loaded, "timeouts.drain"), ("5s".into(), "env CITETAP__TIMEOUTS__DRAIN".into()));
    assert_eq!(shown(&loaded, "records.ttl").1, "default");
}

#[test]
fn unknown_variable_is_refused_with_a_suggestion() {
    for (name, hint) in [
        ("CITETAP_UPSTEAM", "did you mean CITETAP_UPSTREAM?"),
        ("CITETAP_STORR_FILE", "did you mean CITETAP_STORE_FILE?"),
        ("CITETAP__TIMEOUTS__DRIAN", "did you mean CITETAP__TIMEOUTS__DRAIN?"),
        ("CITETAP_LOG_LEVEL", "did you mean CITETAP__LOG__LEVEL?"),
        ("CITETAP_TIMEOUTS_DRAIN", "did you mean CITETAP__TIMEOUTS__DRAIN?"),
        ("CITETAP_PORT", "did you mean PORT or CITETAP_LISTEN?"),
        ("CITETAP_ZZZ", "CITETAP__SECTION__KEY sets a key, `citetap check` lists them"),
    ] {
        assert_eq!(only(vars(&[UP, (name, "1")])), format!("env {name}: unknown variable; {hint}"));
    }
    assert_eq!(
        only(vars(&[UP, ("CITETAP__ROUTES__0__NAME", "x")])),
        "env CITETAP__ROUTES__0__NAME: routes and tenants are set in the file; one route by CITETAP_UPSTREAM"
    );
}

/// Kubernetes sets these variables in every pod of a namespace that has a Service named `citetap`.
#[test]
fn kubernetes_service_variables_are_ignored() {
    for (name, value) in [
        ("CITETAP_SERVICE_HOST", "10.0.0.1"),
        ("CITETAP_SERVICE_PORT_HTTP", "8787"),
        ("CITETAP_PORT", "tcp://10.0.0.1:8787"),
        ("CITETAP_PORT_8787_TCP_ADDR", "10.0.0.1"),
    ] {
        assert!(vars(&[UP, (name, value)]).is_ok(), "{name}");
    }
}

#[test]
fn two_variables_for_one_setting_are_refused() {
    assert_eq!(
        only(vars(&[UP, ("CITETAP_LISTEN", "127.0.0.1:1"), ("CITETAP__LISTEN", "127.0.0.1:2")])),
        "env CITETAP_LISTEN: CITETAP__LISTEN sets the same; keep one"
    );
}

#[test]
fn port_sets_the_port_unless_an_address_is_given() {
    let loaded = vars(&[UP, ("PORT", "9000")]).unwrap();
    assert_eq!(loaded.config.listen.to_string(), "127.0.0.1:9000");
    assert_eq!(shown(&loaded, "listen"), ("127.0.0.1:9000".into(), "env PORT".into()));
    for name in ["CITETAP_LISTEN", "CITETAP__LISTEN"] {
        let loaded = vars(&[UP, ("PORT", "9000"), (name, "127.0.0.1:1")]).unwrap();
        assert_eq!(loaded.config.listen.tcp().unwrap().port(), 1);
    }
    let flags = Flags { listen: Some("127.0.0.1:2".into()), ..Flags::default() };
    let dir = tempfile::tempdir().unwrap();
    let loaded = load(&flags, [UP, ("PORT", "9000")], dir.path()).unwrap();
    assert_eq!(loaded.config.listen.tcp().unwrap().port(), 2);

    fs::write(dir.path().join("citetap.toml"), "listen = \"[::1]:5\"").unwrap();
    let loaded = load(&Flags::default(), [UP, ("PORT", "65535")], dir.path()).unwrap();
    assert_eq!(loaded.config.listen.to_string(), "[::1]:65535");
    assert_eq!(only(vars(&[UP, ("PORT", "65536")])), "env PORT: PORT = \"65536\": expected a port, 0 to 65535");
}

#[test]
fn value_from_a_file_is_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let load = |vars: &[(&str, &str)]| load(&Flags::default(), vars.iter().copied(), dir.path());
    write("up", "\n https://a.example \r\n");
    write("drain", "7s\n");
    let loaded = load(&[("CITETAP_UPSTREAM_FILE", "up"), ("CITETAP__TIMEOUTS__DRAIN_FILE", "drain")]).unwrap();
    assert_eq!(loaded.config.routes[0].upstream.as_str(), "https://a.example/");
    assert_eq!(shown(&loaded, "timeouts.drain"), ("7s".into(), "env CITETAP__TIMEOUTS__DRAIN_FILE".into()));

    let store = |name: &str| only(load(&[UP, ("CITETAP_STORE_FILE", name)]));
    write("empty", "\n");
    assert_eq!(store("empty"), "env CITETAP_STORE_FILE: empty is empty");
    assert_eq!(store("none"), "env CITETAP_STORE_FILE: none does not exist");
    write("cap", &format!("memory:{}", " ".repeat(64 * 1024 - 7)));
    assert!(load(&[UP, ("CITETAP_STORE_FILE", "cap")]).is_ok());
    write("over", &format!("memory:{}", " ".repeat(64 * 1024 - 6)));
    assert_eq!(store("over"), "env CITETAP_STORE_FILE: over is larger than 65536 bytes");
    assert_eq!(
        only(load(&[UP, ("CITETAP_STORE", "memory:"), ("CITETAP_STORE_FILE", "cap")])),
        "env CITETAP_STORE_FILE: CITETAP_STORE is set as well; keep one"
    );
    assert!(load(&[UP, ("CITETAP_STORE", ""), ("CITETAP_STORE_FILE", "cap")]).is_ok());
}

#[cfg(unix)]
#[test]
fn non_utf8_is_refused_in_citetap_variables_only() {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt};
    let odd = OsString::from_vec(vec![0xff]);
    let dir = PathBuf::from("/nonexistent");
    let load =
        |name: &str| load(&Flags::default(), [(UP.0.into(), UP.1.into()), (OsString::from(name), odd.clone())], &dir);
    assert!(load("LESSOPEN").is_ok());
    assert_eq!(only(load("CITETAP_STORE")), "env CITETAP_STORE: is not UTF-8 text");
}
