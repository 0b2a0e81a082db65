use std::{path::PathBuf, time::Duration};

use super::{super::*, ROUTE, error, file, only};

#[track_caller]
fn ok(text: &str) -> Config {
    file(text).unwrap_or_else(|errors| panic!("{text}: {errors}")).config
}

#[test]
fn durations_parse() {
    for (text, millis) in [("1ms", 1), ("250ms", 250), ("5s", 5_000), ("2m", 120_000), ("3h", 10_800_000)] {
        let config = ok(&format!("timeouts.connect = {text:?}"));
        assert_eq!(config.timeouts.connect, Duration::from_millis(millis), "{text}");
    }
    let expected = "expected a duration such as \"250ms\", \"5s\", \"10m\" or \"30d\"";
    for text in [
        "\"5\"",
        "\"s\"",
        "\"\"",
        "\"5 s\"",
        "\"-5s\"",
        "\"1.5s\"",
        "\"5S\"",
        "\"off\"",
        "5",
        "true",
        "\"99999999999999999999s\"",
        "\"99999999999999999d\"",
    ] {
        assert_eq!(
            error(&format!("timeouts.connect = {text}")),
            format!("citetap.toml:1:20: timeouts.connect = {text}: {expected}")
        );
    }
    assert!(error("timeouts.connect = [\"5s\"]").contains("timeouts.connect = an array: expected a duration"));
}

#[test]
fn durations_at_and_over_their_limits() {
    ok("timeouts.connect = \"3650d\"");
    assert!(error("timeouts.connect = \"3651d\"").ends_with("must be at most 3650d"));
    assert!(error("timeouts.connect = \"0s\"").ends_with("must be at least 1ms"));
    ok("records.sweep = \"1s\"");
    assert!(error("records.sweep = \"999ms\"").ends_with("must be at least 1s"));
    for key in ["commit", "drain_delay", "drain"] {
        ok(&format!("timeouts.{key} = \"0s\""));
    }
}

#[test]
fn off_is_accepted_where_allowed() {
    assert_eq!(ok("timeouts.heartbeat = \"off\"").timeouts.heartbeat, None);
    assert_eq!(ok("timeouts.total = \"1h\"").timeouts.total, Some(Duration::from_secs(3600)));
    assert_eq!(ok("records.ttl = \"off\"").records.ttl, None);
    assert!(error("records.ttl = \"never\"").ends_with("\"10m\" or \"30d\", or \"off\""));
    assert!(error("timeouts.heartbeat = \"0s\"").ends_with("must be at least 1ms, or \"off\""));
}

#[test]
fn sizes_parse() {
    for (text, bytes) in
        [("\"8KiB\"", 8192), ("8192", 8192), ("\"9000B\"", 9000), ("\"9000\"", 9000), ("\"1MiB\"", 1 << 20)]
    {
        assert_eq!(ok(&format!("limits.request_header_bytes = {text}")).limits.request_header_bytes, bytes, "{text}");
    }
    assert_eq!(ok("limits.request_body = \"2GiB\"").limits.request_body, 2 << 30);
    for text in ["\"16KB\"", "\"16 KiB\"", "\"16k\"", "\"\"", "-1", "1.5", "\"99999999999GiB\""] {
        let error = error(&format!("limits.request_body = {text}"));
        assert!(error.ends_with("expected a size such as \"16KiB\" or \"10MiB\", or a number of bytes"), "{error}");
    }
}

#[test]
fn rates_parse() {
    for (text, count, seconds) in
        [("20/s", 20, 1), ("600/m", 600, 60), ("1/h", 1, 3600), ("1000000/d", 1_000_000, 86_400)]
    {
        let rate = ok(&format!("limits.requests = {text:?}")).limits.requests.unwrap();
        assert_eq!(
            (rate.count.get(), rate.per, rate.to_string()),
            (count, Duration::from_secs(seconds), text.to_owned())
        );
    }
    assert_eq!(ok("limits.requests = \"off\"").limits.requests, None);
    let expected =
        "expected a number of requests and a time, such as \"20/s\", \"600/m\", \"10000/h\" or \"50000/d\", or \"off\"";
    for text in
        ["\"\"", "\"600\"", "600", "\"/m\"", "\"600/\"", "\"600/min\"", "\"-1/s\"", "\"1.5/s\"", "\"600 / m\"", "false"]
    {
        assert_eq!(
            error(&format!("limits.requests = {text}")),
            format!("citetap.toml:1:19: limits.requests = {text}: {expected}")
        );
    }
    assert!(error("limits.requests = \"0/m\"").ends_with("limits.requests = \"0/m\": must be at least 1"));
    assert!(error("limits.requests = \"1000001/s\"").ends_with("must be at most 1000000"));
}

#[test]
fn sizes_and_counts_at_and_over_their_limits() {
    assert!(error("limits.request_header_bytes = 8191").ends_with("must be at least 8KiB"));
    ok("limits.request_header_bytes = \"1024KiB\"");
    assert!(error("limits.request_header_bytes = 1048577").ends_with("must be at most 1MiB"));
    ok("limits.frame = 1024");
    assert!(error("limits.frame = 1023").ends_with("must be at least 1KiB"));
    ok("limits.request_body = 1");
    assert!(error("limits.request_body = 0").ends_with("must be at least 1"));
    for (key, max) in [("limits.streams", 1_000_000), ("limits.request_headers", 1024), ("records.queue", 1_000_000)] {
        ok(&format!("{key} = 1"));
        ok(&format!("{key} = {max}"));
        assert!(error(&format!("{key} = 0")).ends_with("must be at least 1"));
        assert!(error(&format!("{key} = {}", max + 1)).ends_with(&format!("must be at most {max}")));
        assert!(error(&format!("{key} = \"1\"")).ends_with("= \"1\": expected a whole number"));
    }
    ok("limits.frame = \"1MiB\"\nlimits.held_total = \"1MiB\"");
    assert_eq!(
        error("limits.held_total = 4194303"),
        "citetap.toml:1:21: limits.held_total = 4194303: must not be below limits.frame (\"4MiB\")"
    );
    assert_eq!(
        error("limits.frame = 268435457"),
        "citetap.toml:1:16: limits.frame = 268435457: must not be above limits.held_total (\"256MiB\")"
    );
}

#[test]
fn listen_addresses_parse() {
    for (text, address) in [("localhost:80", "127.0.0.1:80"), ("[::1]:0", "[::1]:0"), ("127.9.9.9:1", "127.9.9.9:1")] {
        assert_eq!(ok(&format!("listen = {text:?}")).listen.to_string(), address);
    }
    for text in ["8787", "\":8787\"", "\"127.0.0.1\"", "\"example.com:80\"", "\"127.0.0.1:65536\""] {
        let error = error(&format!("listen = {text}"));
        assert!(
            error.starts_with(&format!("citetap.toml:1:10: listen = {text}: expected an IP address and a port")),
            "{error}"
        );
    }
}

#[test]
fn worker_counts_parse() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!([ok("").workers, ok("workers = \"auto\"").workers], [cores, cores]);
    assert_eq!([ok("workers = 1").workers, ok("workers = 1024").workers], [1, 1024]);
    for (text, expected) in [
        ("0", "must be at least 1, or \"auto\""),
        ("1025", "must be at most 1024, or \"auto\""),
        ("\"many\"", "expected a whole number, or \"auto\""),
    ] {
        assert_eq!(error(&format!("workers = {text}")), format!("citetap.toml:1:11: workers = {text}: {expected}"));
    }
}

#[test]
fn store_urls_parse() {
    let path = |text: &str| match ok(&format!("store = {text:?}")).store {
        StoreUrl::Sqlite(path) => path,
        _ => PathBuf::new(),
    };
    assert_eq!(path("memory:"), PathBuf::new());
    assert_eq!(path("sqlite:a.db"), PathBuf::from("/srv/app/a.db"));
    assert_eq!(path("sqlite://a.db"), PathBuf::from("/srv/app/a.db"));
    assert_eq!(path("sqlite:/data/引用.db"), PathBuf::from("/data/引用.db"));
    assert_eq!(path("sqlite:///data/a.db"), PathBuf::from("/data/a.db"));
    for text in ["postgres://citetap:hunter2@db/citetap", "postgresql:///citetap?host=/run/postgresql"] {
        let store = ok(&format!("store = {text:?}")).store;
        assert!(matches!(&store, StoreUrl::Postgres(url) if url.reveal().as_str() == text));
        assert!(!format!("{store:?}").contains("hunter2"));
    }
    for text in ["redis://h", "rediss://:hunter2@h:6380/1", "redis+unix:///run/redis.sock"] {
        assert!(matches!(ok(&format!("store = {text:?}")).store, StoreUrl::Redis(_)));
    }
    assert_eq!(
        error("store = \"postgres:citetap\""),
        "citetap.toml:1:9: store = \"postgres:citetap\": expected a URL such as postgres://user:password@host/0, its parts percent-encoded"
    );
    assert!(!error("store = \"postgres://citetap:hunter2@[db/citetap\"").contains("hunter2"));
    assert!(
        error("store = \"memory\"")
            .ends_with("expected \"sqlite:PATH\", \"postgres://…\", \"redis://…\" or \"memory:\"")
    );
    assert!(error("store = \"sqlite::memory:\"").ends_with("a store in memory is written \"memory:\""));
    assert!(error("store = \"sqlite:\"").ends_with("expected a file name after sqlite:"));
    assert!(error("store = \"sqlite:a.db?mode=rwc\"").ends_with("without parameters after sqlite:"));
}

#[test]
fn log_levels_and_formats_parse() {
    assert_eq!(ok("log.level = \"warn,citetap=debug\"").log.level, "warn,citetap=debug");
    assert_eq!(ok("log.format = \"json\"").log.format, LogFormat::Json);
    assert_eq!(
        error("log.level = \"inof\""),
        "citetap.toml:1:13: log.level = \"inof\": expected \"off\", \"error\", \"warn\", \"info\", \"debug\" or \"trace\"; did you mean \"info\"?"
    );
    assert!(
        error("log.level = \"citetap=loud\"").ends_with("expected a level or a filter such as \"info,citetap=debug\"")
    );
    assert!(error("log.format = \"xml\"").ends_with("expected \"auto\", \"json\" or \"text\""));
}

#[test]
fn trusted_proxies_parse() {
    let nets = ok("trusted_proxies = [\"10.1.2.3/8\", \"::1\", \"192.0.2.7\"]").trusted_proxies;
    let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["10.0.0.0/8", "::1/128", "192.0.2.7/32"]);
    assert!(
        error("trusted_proxies = [\"10.0.0.0/33\"]").ends_with(
            "trusted_proxies = an array: \"10.0.0.0/33\": expected networks such as 10.0.0.0/8 or addresses"
        )
    );
    assert!(error("trusted_proxies = [5]").contains("5: expected networks"));
    assert!(error("trusted_proxies = \"10.0.0.0/8\"").contains("expected an array: expected networks"));
}

#[test]
fn errors_truncate_values_and_hide_secrets() {
    let long = error(&format!("listen = \"{}\"", "长".repeat(81)));
    assert!(long.contains(&format!("\"{}\"…", "长".repeat(80))), "{long}");
    let fits = error(&format!("listen = \"{}\"", "长".repeat(80)));
    assert!(fits.contains(&format!("\"{}\":", "长".repeat(80))), "{fits}");
    for url in
        ["mysql://u:hunter2@db/x", "mysql://u:hun/ter2@db/x", "mysql://hunter2@db", "memcached://h?password=hunter2"]
    {
        let error = error(&format!("store = {url:?}"));
        assert!(!error.contains("ter2") && error.contains("•••"), "{error}");
    }
}

#[test]
fn cors_origins_must_be_as_browsers_send_them() {
    let cors = |list: &str| file(&format!("[cors]\norigins = {list}")).map(|loaded| loaded.config.cors);
    let named = cors(r#"["https://app.example", "http://127.0.0.1:5173"]"#).unwrap();
    assert_eq!((named.any, named.origins.len()), (false, 2));
    assert!(cors(r#"["*"]"#).unwrap().any && cors(r#"["https://app.example", "*"]"#).unwrap().any);
    // A browser never sends an origin in these forms, so they could not match.
    for never in
        ["https://app.example/", "https://APP.example", "https://app.example:443", "app.example", "null", "", "ftp://a"]
    {
        let error = error(&format!("[cors]\norigins = [{never:?}]"));
        assert!(error.ends_with(r#"expected an origin such as "https://app.example", or "*""#), "{error}");
    }
    let many = |count: usize| format!("{:?}", (0..count).map(|n| format!("https://a{n}.example")).collect::<Vec<_>>());
    assert!(cors(&many(256)).is_ok());
    assert!(error(&format!("[cors]\norigins = {}", many(257))).ends_with("expected 256 origins at most"));
    let loaded =
        super::vars(&[("CITETAP_UPSTREAM", "https://a.example"), ("CITETAP__CORS__ORIGINS", "https://b.example, *")]);
    assert!(loaded.unwrap().config.cors.any);
}

#[test]
fn unix_sockets_and_admin_listen_parse() {
    let config = ok("listen = \"unix:run/c.sock\"\nadmin_listen = \"localhost:9187\"");
    assert_eq!(config.listen, Listen::Unix("/srv/app/run/c.sock".into()));
    assert_eq!(config.admin_listen.unwrap().to_string(), "127.0.0.1:9187");
    assert_eq!(config.socket_mode, 0o660);
    assert_eq!(ok("listen = \"unix:///run/c.sock\"").listen, Listen::Unix("/run/c.sock".into()));
    assert_eq!(ok("listen = \"systemd\"").listen, Listen::Systemd);
    assert_eq!(ok("").admin_listen, None);
    for text in ["unix:", "unix:/run/"] {
        assert!(error(&format!("listen = {text:?}")).contains("expected the name of a socket"), "{text}");
    }
    let at = |length: usize| format!("listen = \"unix:/{}\"", "s".repeat(length - 1));
    assert!(from_toml(&format!("{}\n{ROUTE}", at(100)), "/".as_ref()).is_ok());
    assert!(error(&at(101)).contains("at most 100 bytes"));
    assert!(error("admin_listen = \"8787\"").contains("or off"));
    for mode in ["\"66\"", "\"888\"", "\"1777\"", "660"] {
        assert!(error(&format!("socket_mode = {mode}")).contains("expected permissions"), "{mode}");
    }
    let open = error("admin_listen = \"0.0.0.0:9187\"");
    assert!(open.starts_with("admin_listen = 0.0.0.0:9187 can be reached from other machines"), "{open}");
    assert!(file("admin_listen = \"0.0.0.0:9187\"\nauth = \"none\"").unwrap().config.open_to_all);
    let own = "listen = \"127.0.0.1:1\"\nadmin_listen = \"127.0.0.1:2\"\n[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"http://127.0.0.1:2\"";
    assert!(only(from_toml(own, "/".as_ref())).contains("is citetap's own address (127.0.0.1:2)"));
}

#[test]
fn certificate_without_key_is_refused() {
    let config = ok("[tls]\ncert = \"a.crt\"\nkey = \"/etc/a.key\"\nadmin = false");
    let tls = TlsFiles { cert: "/srv/app/a.crt".into(), key: "/etc/a.key".into(), admin: false };
    assert_eq!(config.tls, Some(tls));
    assert_eq!(ok("").tls, None);
    assert!(error("[tls]\ncert = \"a.crt\"").contains("tls.cert without tls.key"));
    assert!(error("[tls]\nkey = \"a.key\"").contains("tls.key without tls.cert"));
    let unused = error("listen = \"unix:/a\"\n[tls]\ncert = \"a.crt\"\nkey = \"a.key\"");
    assert!(unused.contains("a Unix socket has no TLS"), "{unused}");
    ok("listen = \"unix:/a\"\nadmin_listen = \"127.0.0.1:1\"\n[tls]\ncert = \"a.crt\"\nkey = \"a.key\"");
}
