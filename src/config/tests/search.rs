use std::fs;

use super::{super::*, error, file, only, shown, vars};

const UP: (&str, &str) = ("CITETAP_UPSTREAM", "https://www.doubao.com");

fn key(loaded: &Loaded) -> Option<String> {
    let header = loaded.config.search.authorization.as_ref()?;
    assert!(header.is_sensitive());
    Some(header.to_str().unwrap().to_owned())
}

#[test]
fn key_comes_from_any_layer_and_citetap_name_wins() {
    assert_eq!(key(&file("").unwrap()), None);
    assert_eq!(key(&file("[search]\nkey = \"test-key\"").unwrap()).as_deref(), Some("Bearer test-key"));
    let loaded = vars(&[UP, ("TAVILY_API_KEY", "test-key")]).unwrap();
    assert_eq!(key(&loaded).as_deref(), Some("Bearer test-key"));
    assert_eq!(shown(&loaded, "search.key"), ("•••".into(), "env TAVILY_API_KEY".into()));
    let loaded = vars(&[UP, ("TAVILY_API_KEY", "theirs"), ("CITETAP__SEARCH__KEY", "ours")]).unwrap();
    assert_eq!(key(&loaded).as_deref(), Some("Bearer ours"));
    assert_eq!(key(&vars(&[UP, ("TAVILY_API_KEY", "")]).unwrap()), None);

    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("key"), "test-key\n").unwrap();
    for name in ["TAVILY_API_KEY_FILE", "CITETAP__SEARCH__KEY_FILE"] {
        let loaded = load(&Flags::default(), [UP, (name, "key")], dir.path()).unwrap();
        assert_eq!(key(&loaded).as_deref(), Some("Bearer test-key"), "{name}");
        let (search, ..) = load_search(None, [(name, "key")], dir.path()).unwrap();
        assert!(search.authorization.is_some(), "a search needs no route");
    }
}

#[test]
fn key_is_never_printed() {
    let loaded = file("[search]\nkey = \"test-key\"").unwrap();
    assert!(!format!("{loaded:?}").contains("test-key"));
    assert_eq!(
        error("[search]\nkey = \"test key\""),
        "citetap.toml:2:7: search.key: expected a key: visible ASCII characters without spaces"
    );
    assert_eq!(error("[search]\nkey = 1234"), "citetap.toml:2:7: search.key: expected a text in quotes");
    let told = only(vars(&[UP, ("TAVILY_API_KEY", "test\u{7f}key")]));
    assert!(told.starts_with("env TAVILY_API_KEY: search.key: ") && !told.contains("key\u{7f}"), "{told}");
}

#[test]
fn event_types_must_be_lists_of_domains() {
    let loaded = file("[search.event_types]\nhack = [\"Coin.example\", \"例子.中国\"]\nany = []").unwrap();
    let types = &loaded.config.search.event_types;
    assert_eq!(types["hack"], ["coin.example", "xn--fsqu00a.xn--fiqs8s"]);
    assert!(types["any"].is_empty());
    assert_eq!(shown(&loaded, "search.event_types").0, "2 rows");
    assert_eq!(shown(&loaded, "search.event_types.hack").0, "[Coin.example, 例子.中国]");
    for (toml, why) in [
        ("hack = \"coin.example\"", "hack: expected a list of domains"),
        ("hack = [\"https://coin.example\"]", "hack: \"https://coin.example\": expected a domain such as example.com"),
        ("Hack = []", "\"Hack\": expected names of 1 to 32 of a-z, 0-9, - and _"),
    ] {
        let told = error(&format!("[search.event_types]\n{toml}"));
        assert!(told.ends_with(why), "{told}");
    }
    assert!(only(vars(&[UP, ("CITETAP__SEARCH__EVENT_TYPES", "hack")])).contains("expected a table in the file"));
}

#[test]
fn keywords_and_numbers_are_validated() {
    assert!(
        error("[search]\ntopic = \"new\"")
            .ends_with(r#"expected "general", "news" or "finance"; did you mean "news"?"#)
    );
    assert!(error("[search]\nsearch_depth = \"deep\"").contains(r#""fast" or "ultra-fast""#));
    assert!(error("[search]\nmax_results = 21").ends_with("must be at most 20"));
    assert!(error("[search]\nbase_url = \"ftp://x\"").contains("expected http:// or https://"));
    assert!(error("[search]\ntimeout = \"0s\"").ends_with("must be at least 1ms"));
}
