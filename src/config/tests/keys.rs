use std::path::Path;

use super::{super::*, error, errors_of, only};

#[test]
fn unknown_key_is_reported_with_location_and_suggestion() {
    assert_eq!(
        error("# a\n\nlisen = \"127.0.0.1:1\""),
        "citetap.toml:3:1: unknown key \"lisen\"; did you mean \"listen\"?"
    );
    assert_eq!(
        error("[timeouts]\n  drian = \"5s\""),
        "citetap.toml:2:3: unknown key \"drian\" in [timeouts]; did you mean \"drain\"?"
    );
    assert_eq!(
        error("[timeout]\ndrain = \"5s\""),
        "citetap.toml:1:2: unknown key \"timeout\"; did you mean \"timeouts\"?"
    );
    assert_eq!(
        error("timeouts.conect = \"5s\""),
        "citetap.toml:1:10: unknown key \"conect\" in [timeouts]; did you mean \"connect\"?"
    );
}

#[test]
fn unknown_key_in_routes_and_tenants_is_reported() {
    let route = "[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"https://a.example\"\n";
    let with = |rest: &str| only(from_toml(&format!("{route}{rest}"), Path::new("/")));
    assert_eq!(
        with("upsteam = \"x\""),
        "citetap.toml:5:1: unknown key \"upsteam\" in [[routes]]; did you mean \"upstream\"?"
    );
    assert_eq!(
        with("[routes.request_header]\nremove = []"),
        "citetap.toml:5:9: unknown key \"request_header\" in [[routes]]; did you mean \"request_headers\"?"
    );
    assert_eq!(
        with("[routes.response_headers]\nremoved = []"),
        "citetap.toml:6:1: unknown key \"removed\" in [routes.response_headers]; did you mean \"remove\"?"
    );
    let hash = "0".repeat(64);
    assert_eq!(
        with(&format!("[[tenants]]\nname = \"t\"\nkey_sha256 = \"{hash}\"\nkey = \"k\"")),
        "citetap.toml:8:1: unknown key \"key\" in [[tenants]]; known here: name, key_sha256, requests"
    );
}

#[test]
fn known_key_in_the_wrong_section_names_its_section() {
    assert_eq!(
        error("[log]\nstore = \"memory:\""),
        "citetap.toml:2:1: unknown key \"store\" in [log]; \"store\" belongs above the first [section]"
    );
    assert_eq!(
        error("heartbeat = \"5s\""),
        "citetap.toml:1:1: unknown key \"heartbeat\"; \"heartbeat\" belongs in [timeouts]"
    );
    let misplaced = "[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"https://a.example\"\n[routes.request_headers]\ninject = \"off\"";
    assert_eq!(
        only(from_toml(misplaced, Path::new("/"))),
        "citetap.toml:6:1: unknown key \"inject\" in [routes.request_headers]; \"inject\" belongs right below [[routes]]"
    );
    assert!(error("zzz = 1").starts_with(
        "citetap.toml:1:1: unknown key \"zzz\"; known here: listen, allowed_hosts, admin_listen, socket_mode, store, auth, "
    ));
}

#[test]
fn values_instead_of_tables_are_refused() {
    assert_eq!(error("log = 5"), "citetap.toml:1:7: log = 5: expected a table, written [log]");
    let routes = |text: &str| only(from_toml(text, Path::new("/")));
    assert!(routes("[routes]\nname = \"a\"\n").contains("routes: expected tables, each written [[routes]]"));
    assert!(
        routes("tenants = [1]\n[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"https://a.example\"")
            .starts_with("citetap.toml:1:12: tenants: expected tables")
    );
}

#[test]
fn all_errors_are_reported_in_file_order() {
    let text = "listn = 1\nstore = \"mysql:x\"\n[log]\nlevel = \"loud\"\n[limits]\nstreams = 0\n[[routes]]\nname = \"A\"\nprefix = \"x\"\n";
    let errors = errors_of(from_toml(text, Path::new("/")));
    let places: Vec<&str> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
    let expected = ["1:1", "2:9", "4:9", "6:11", "7:1", "8:8", "9:10"].map(|at| format!("citetap.toml:{at}"));
    assert_eq!(places, expected, "{errors:#?}");
}

#[test]
fn columns_count_characters_after_bom_and_chinese() {
    assert_eq!(error("\u{feff}lisen = 1"), "citetap.toml:1:1: unknown key \"lisen\"; did you mean \"listen\"?");
    assert_eq!(
        error("log = { level = \"响=info\", fromat = 1 }"),
        "citetap.toml:1:27: unknown key \"fromat\" in [log]; did you mean \"format\"?"
    );
    assert!(error("# 注释\r\nlisen = 1").starts_with("citetap.toml:2:1: "));
}

#[test]
fn invalid_toml_is_the_only_error() {
    let errors = errors_of(from_toml("listen = 127.0.0.1:8787\n", Path::new("/")));
    assert!(errors[0].starts_with("citetap.toml:1:"), "{errors:#?}");
    assert!(errors.iter().all(|error| !error.contains("no route")), "{errors:#?}");
    let twice = only(from_toml("store = \"memory:\"\nstore = \"memory:\"\n", Path::new("/")));
    assert!(twice.starts_with("citetap.toml:2:1: duplicate key"), "{twice}");
}
