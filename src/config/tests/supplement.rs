use std::{path::Path, time::Duration};

use super::{super::*, errors_of, only, shown, vars};
use crate::config::pointer::Pointer;

const KEY: &str = "[search]\nkey = \"test-key\"\n";
const TYPES: &str = "[search.event_types]\nhack = [\"coin.example\"]\nany = []\n";

/// Loads a route with these keys, which start on line 5, followed by `more`.
fn route(keys: &str, more: &str) -> Result<Loaded, ConfigErrors> {
    let head = "[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"https://a.example\"\n";
    from_toml(&format!("{head}{keys}\n{more}"), Path::new("/"))
}

fn supplement(keys: &str, more: &str) -> Supplementing {
    (*route(keys, more).unwrap().config.routes[0].supplement).clone()
}

#[test]
fn supplement_is_off_by_default() {
    let off = supplement("", "");
    let max_wait = Duration::from_millis(300);
    assert_eq!(off, Supplementing { when: Supplement::Off, query: None, domains: Vec::new(), max_wait });
    let keys =
        "supplement = \"when-empty\"\nsupplement_query = \"/q\"\nsupplement_event_type = \"hack\"\nmax_wait_ms = 0";
    let on = supplement(keys, &format!("{KEY}{TYPES}"));
    assert_eq!((on.when, on.query, on.max_wait), (Supplement::WhenEmpty, Pointer::parse("/q"), Duration::ZERO));
    assert_eq!(on.domains, ["coin.example"]);
    let any = supplement("supplement = \"always\"\nsupplement_event_type = \"any\"", &format!("{KEY}{TYPES}"));
    assert_eq!((any.when, any.domains.len()), (Supplement::Always, 0));
}

#[test]
fn supplement_without_key_is_refused_with_advice() {
    for when in ["when-empty", "always"] {
        let told = only(route(&format!("supplement = {when:?}"), ""));
        assert_eq!(
            told,
            format!(
                "citetap.toml:5:14: routes.supplement = {when:?}: no search service is configured: set TAVILY_API_KEY or \
                 TAVILY_API_KEY_FILE, or `key` in [search]"
            )
        );
    }
    assert!(route("supplement = \"off\"\nsupplement_event_type = \"hack\"", "").is_ok());
    // An invalid API key is reported once.
    assert!(only(route("supplement = \"always\"", "[search]\nkey = \"a b\"")).contains("search.key: expected a key"));
}

#[test]
fn errors_have_a_location() {
    let keys = "supplement = \"allways\"\nsupplement_query = \"messages\"\nmax_wait_ms = 10001";
    assert_eq!(
        errors_of(route(keys, KEY)),
        [
            "citetap.toml:5:14: routes.supplement = \"allways\": expected \"off\", \"when-empty\" or \"always\"; did you mean \"always\"?",
            "citetap.toml:6:20: routes.supplement_query = \"messages\": expected a JSON pointer into the request, such as /messages/-/content",
            "citetap.toml:7:15: routes.max_wait_ms = 10001: must be at most 10000",
        ]
    );
    let keys = "supplement = \"always\"\nsupplement_event_type = \"hck\"";
    assert!(only(route(keys, KEY)).ends_with("supplement_event_type = \"hck\": there is none in [search.event_types]"));
    let told = only(route(keys, &format!("{KEY}{TYPES}")));
    assert!(told.ends_with("expected \"any\" or \"hack\"; did you mean \"hack\"?"), "{told}");
}

#[test]
fn environment_sets_it_for_a_sidecar() {
    let up = ("CITETAP_UPSTREAM", "https://www.doubao.com");
    let loaded = vars(&[up, ("CITETAP_SUPPLEMENT", "always"), ("TAVILY_API_KEY", "test-key")]).unwrap();
    assert_eq!(loaded.config.routes[0].supplement.when, Supplement::Always);
    assert_eq!(shown(&loaded, "routes.default.supplement"), ("always".into(), "env CITETAP_SUPPLEMENT".into()));
    assert_eq!(shown(&loaded, "routes.default.max_wait_ms"), ("300".into(), "default".into()));
    let told = only(vars(&[up, ("CITETAP_SUPPLEMENT", "always")]));
    assert!(told.starts_with("env CITETAP_SUPPLEMENT: routes.supplement = \"always\": no search service"), "{told}");
}
