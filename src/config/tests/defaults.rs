use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use super::{super::*, file};
use crate::{
    citation::score::Weights,
    config::{layer, route, tenant},
};

const EMBEDDED: &str = include_str!("../../../config/citetap.toml");

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn defaults_match_the_documentation() {
    let config = file("").unwrap().config;
    assert_eq!(config.listen.to_string(), "127.0.0.1:8787");
    assert_eq!(config.store, StoreUrl::Sqlite(PathBuf::from("/srv/app/citetap.db")));
    assert_eq!(config.auth, Auth::Open);
    assert!(config.trusted_proxies.is_empty());
    assert!(config.tenants.is_empty() && config.console);
    assert_eq!(config.cors, Cors::default());
    assert_eq!((config.log.level.as_str(), config.log.format), ("info", LogFormat::Auto));

    let timeouts = config.timeouts;
    assert_eq!(timeouts.connect, 5 * SECOND);
    assert_eq!(timeouts.request_headers, 10 * SECOND);
    assert_eq!(timeouts.first_byte, 120 * SECOND);
    assert_eq!(timeouts.upstream_idle, 300 * SECOND);
    assert_eq!(timeouts.client_stall, 60 * SECOND);
    assert_eq!(timeouts.total, None);
    assert_eq!(timeouts.heartbeat, Some(15 * SECOND));
    assert_eq!(timeouts.commit, Duration::from_millis(250));
    assert_eq!(timeouts.drain_delay, Duration::ZERO);
    assert_eq!(timeouts.drain, 25 * SECOND);

    let limits = config.limits;
    assert_eq!(limits.request_headers, 64);
    assert_eq!(limits.request_header_bytes, 16 * 1024);
    assert_eq!(limits.request_body, 10 * 1024 * 1024);
    assert_eq!(limits.frame, 4 * 1024 * 1024);
    assert_eq!(limits.held_total, 256 * 1024 * 1024);
    assert_eq!(limits.streams, 10_000);
    assert_eq!(limits.requests, None);

    let records = config.records;
    assert_eq!(records.ttl, Some(30 * 24 * 3600 * SECOND));
    assert_eq!(records.sweep, 600 * SECOND);
    assert_eq!(records.queue, 4096);

    let search = &config.search;
    assert!(search.authorization.is_none() && search.event_types.is_empty());
    assert_eq!((search.base_url.as_str(), search.timeout), ("https://api.tavily.com/", 10 * SECOND));
    assert_eq!((search.max_results, search.topic, search.search_depth), (5, Topic::General, Depth::Basic));
    let scores = &config.rules.scores;
    assert_eq!(Some(scores.weights), Weights::new(0.6, 0.2, 0.2));
    assert_eq!((scores.half_life, scores.minimum), (180 * 24 * 3600 * SECOND, 0.0));
    assert!(scores.allow.is_empty() && scores.deny.is_empty() && !scores.has_filters());
    assert!(scores.authority.len() > 100, "{}", scores.authority.len());
    assert_eq!(config.rules.corroboration.min_domains, 2);
    assert_eq!(config.rules, default_rules());

    let route = &config.routes[0];
    assert_eq!((route.provider, route.inject), (Provider::AUTO, Inject::Final));
    assert!(!route.emit_empty && route.link_base.is_none());
    assert!(route.request_headers.remove.is_empty() && route.response_headers.set.is_empty());
}

/// A documented key that no code reads would have no effect.
#[test]
fn every_key_of_the_file_is_used() {
    let (_, known) = layer::defaults();
    for key in &known {
        let error = super::error(&match key.rsplit_once('.') {
            Some((section, key)) => format!("[{section}]\n{key} = 1979-05-27"),
            None => format!("{key} = 1979-05-27"),
        });
        assert!(error.contains(&format!("{key} = a date or time: ")), "{error}");
    }
    assert_eq!(known.len(), 9 + 3 + 2 + 10 + 7 + 3 + 1 + 7 + 8 + 4 + 5);
}

#[test]
fn effective_settings_are_in_file_order() {
    let loaded = file("").unwrap();
    let keys: Vec<&str> = loaded.effective.iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(
        keys[..8],
        ["listen", "allowed_hosts", "admin_listen", "socket_mode", "store", "auth", "trusted_proxies", "console"]
    );
    assert!(keys.contains(&"routes.a.upstream"));
}

/// Uncomments the example of routes and tenants: it must use every known key and state the real defaults.
#[test]
fn commented_example_loads_with_the_defaults() {
    let uncommented: String = EMBEDDED
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()) => setting,
            _ => line,
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut errors = Vec::new();
    let (_, known) = layer::defaults();
    let layer = layer::parse("x".as_ref(), &uncommented, &known, &mut errors).unwrap();
    assert_eq!(errors, []);
    let keys = |table: &layer::Table| table.keys.keys().cloned().collect::<BTreeSet<_>>();
    let all = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(keys(&layer.routes[0]), all(route::KEYS));
    assert_eq!(keys(&layer.tenants[0]), all(tenant::KEYS));
    for (key, value) in route::DEFAULTS {
        assert_eq!(layer.routes[0].keys[*key].effective(), *value, "{key}");
    }
    assert!(from_toml(&uncommented, "/".as_ref()).is_ok());
}
