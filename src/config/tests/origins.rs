use std::{fs, path::PathBuf};

use super::{super::*, only, shown};

const FILE: &str = "listen = \"127.0.0.1:1\"\nstore = \"memory:\"\n[log]\nlevel = \"warn\"\n[[routes]]\nname = \"a\"\nprefix = \"/a\"\nupstream = \"https://a.example\"\n";

fn dir_with(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("citetap.toml"), text).unwrap();
    dir
}

#[test]
fn each_layer_overrides_lower_ones() {
    let dir = dir_with(FILE);
    let env = [("CITETAP_STORE", "sqlite:env.db"), ("CITETAP_LISTEN", "127.0.0.1:2")];
    let flags = Flags { listen: Some("127.0.0.1:3".into()), ..Flags::default() };
    let loaded = load(&flags, env, dir.path()).unwrap();
    for (key, value, origin) in [
        ("listen", "127.0.0.1:3", "flag --listen"),
        ("store", "sqlite:env.db", "env CITETAP_STORE"),
        ("log.level", "warn", "citetap.toml:4"),
        ("log.format", "auto", "default"),
        ("routes.a.upstream", "https://a.example", "citetap.toml:8"),
        ("routes.a.provider", "auto", "default"),
    ] {
        assert_eq!(shown(&loaded, key), (value.to_owned(), origin.to_owned()), "{key}");
    }
    assert_eq!(loaded.config.store, StoreUrl::Sqlite(dir.path().join("env.db")));
}

#[test]
fn flags_create_a_sidecar_and_override_variables() {
    let dir = tempfile::tempdir().unwrap();
    let flags = Flags {
        upstream: Some("https://flag.example".into()),
        inject: Some("off".into()),
        log_level: Some("debug".into()),
        ..Flags::default()
    };
    let env = [("CITETAP_UPSTREAM", "https://env.example"), ("CITETAP_PROVIDER", "doubao")];
    let loaded = load(&flags, env, dir.path()).unwrap();
    let route = &loaded.config.routes[0];
    assert_eq!((route.name.as_str(), route.inject), ("doubao", Inject::Off));
    assert_eq!(shown(&loaded, "routes.doubao.upstream"), ("https://flag.example".into(), "flag --upstream".into()));
    assert_eq!(shown(&loaded, "log.level").1, "flag --log-level");

    let flags = Flags { listen: Some("nowhere".into()), ..flags };
    assert!(only(load(&flags, env, dir.path())).starts_with("flag --listen: listen = \"nowhere\": expected"));
}

#[test]
fn named_file_replaces_the_default_and_must_exist() {
    let dir = dir_with("nonsense = 1");
    let named = |name: &str| Flags { config: Some(PathBuf::from(name)), ..Flags::default() };
    let none: [(&str, &str); 0] = [];
    fs::write(dir.path().join("other.toml"), FILE).unwrap();
    let loaded = load(&named("other.toml"), none, dir.path()).unwrap();
    assert_eq!(shown(&loaded, "listen").1, "other.toml:1");
    assert_eq!(only(load(&named("gone.toml"), none, dir.path())), "gone.toml does not exist");

    fs::write(dir.path().join("bytes.toml"), [0xff, 0xfe]).unwrap();
    assert_eq!(only(load(&named("bytes.toml"), none, dir.path())), "bytes.toml is not UTF-8 text");
    let cap = 1024 * 1024;
    let padded = |size: usize| format!("{FILE}{}", "#".repeat(size - FILE.len()));
    fs::write(dir.path().join("cap.toml"), padded(cap)).unwrap();
    assert!(load(&named("cap.toml"), none, dir.path()).is_ok());
    fs::write(dir.path().join("over.toml"), padded(cap + 1)).unwrap();
    assert_eq!(only(load(&named("over.toml"), none, dir.path())), "over.toml is larger than 1048576 bytes");
}

#[test]
fn secrets_are_in_no_output() {
    let hash = "ab".repeat(32);
    let text = format!(
        "{FILE}[routes.request_headers]\nremove = [\"cookie\"]\n[routes.request_headers.set]\nauthorization = \"Bearer hunter2\"\n[[tenants]]\nname = \"t\"\nkey_sha256 = \"{hash}\"\n"
    );
    let loaded = from_toml(&text, "/".as_ref()).unwrap();
    assert_eq!(shown(&loaded, "routes.a.request_headers.remove").0, "[cookie]");
    assert_eq!(shown(&loaded, "routes.a.request_headers.set.authorization"), ("•••".into(), "citetap.toml:12".into()));
    assert_eq!(shown(&loaded, "tenants.t.key_sha256").0, "•••");
    let everything = format!("{loaded:?}");
    assert!(!everything.contains("hunter2") && !everything.contains(&hash) && !everything.contains("171, 171"));
}

#[test]
fn flags_are_valid_for_clap() {
    use clap::Args;
    Flags::augment_args(clap::Command::new("serve")).debug_assert();
}
