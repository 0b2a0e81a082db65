use std::{fs, path::Path};

use super::{super::*, errors_of, only, shown};

fn routes(text: &str) -> Result<Loaded, ConfigErrors> {
    from_toml(text, Path::new("/"))
}

fn route(name: &str, prefix: &str, rest: &str) -> String {
    format!("[[routes]]\nname = {name:?}\nprefix = {prefix:?}\nupstream = \"https://a.example\"\n{rest}\n")
}

#[track_caller]
fn prefix(text: &str) -> Result<String, String> {
    match routes(&route("a", text, "")) {
        Ok(loaded) => Ok(loaded.config.routes[0].prefix.clone()),
        Err(errors) => Err(errors.to_string()),
    }
}

#[test]
fn prefixes_are_normalized_or_refused() {
    for (given, normal) in
        [("/", "/"), ("/a", "/a"), ("/a/", "/a"), ("/a/b.c~d_e-f", "/a/b.c~d_e-f"), ("/v1beta", "/v1beta")]
    {
        assert_eq!(prefix(given).as_deref(), Ok(normal));
    }
    for (given, why) in [
        ("", "must begin with \"/\""),
        ("a", "must begin with \"/\""),
        ("//", "must not contain empty segments"),
        ("/a//", "must not contain empty, \".\" or \"..\" segments"),
        ("/a//b", "must not contain empty, \".\" or \"..\" segments"),
        ("/a/../b", "must not contain empty, \".\" or \"..\" segments"),
        ("/豆包", "may contain only A-Z a-z 0-9 - . _ ~ and /"),
        ("/a%20b", "may contain only A-Z a-z 0-9 - . _ ~ and /"),
        ("/a?b", "may contain only A-Z a-z 0-9 - . _ ~ and /"),
    ] {
        assert_eq!(prefix(given), Err(format!("citetap.toml:3:10: routes.prefix = {given:?}: {why}")));
    }
}

#[test]
fn prefixes_of_the_api_are_refused() {
    for own in [
        "citations",
        "component.js",
        "console",
        "healthz",
        "readyz",
        "metrics",
        "version",
        "tasks",
        "search",
        "normalize",
        "render",
        "stats",
        "v1",
        "openapi.json",
    ] {
        for given in [format!("/{own}"), format!("/{own}/"), format!("/{own}/x")] {
            let why = format!("/{own} is citetap's own path; choose another prefix");
            assert_eq!(prefix(&given), Err(format!("citetap.toml:3:10: routes.prefix = {given:?}: {why}")));
        }
    }
}

#[test]
fn route_names_are_validated() {
    let name = |name: &str| routes(&route(name, "/", ""));
    assert!(name("a").is_ok() && name(&"a-9".repeat(10)).is_ok() && name(&"a".repeat(32)).is_ok());
    for bad in ["", "A", "a b", "a_b", "豆", &"a".repeat(33)] {
        assert_eq!(
            only(name(bad)),
            format!("citetap.toml:2:8: routes.name = {bad:?}: expected 1 to 32 of a-z, 0-9 and -")
        );
    }
}

#[test]
fn duplicate_names_and_prefixes_are_refused() {
    let text = route("a", "/x", "") + &route("a", "/x/", "");
    assert_eq!(
        errors_of(routes(&text)),
        [
            "citetap.toml:7:8: routes.name = \"a\": another route has this name (citetap.toml:2:8)",
            "citetap.toml:8:10: routes.prefix = \"/x\": another route has this prefix (citetap.toml:3:10)",
        ]
    );
    let dir = tempfile::tempdir().unwrap();
    let with_env = |text: String| {
        fs::write(dir.path().join("citetap.toml"), text).unwrap();
        load(&Flags::default(), [("CITETAP_UPSTREAM", "https://b.example")], dir.path())
    };
    assert_eq!(
        only(with_env(route("a", "/", ""))),
        "env CITETAP_UPSTREAM: routes.prefix = \"/\": another route has this prefix (citetap.toml:3:10)"
    );
    assert_eq!(
        only(with_env(route("default", "/x", ""))),
        "env CITETAP_UPSTREAM: routes.name = \"default\": another route has this name (citetap.toml:2:8)"
    );
    let both = with_env(route("a", "/x", "")).unwrap().config.routes;
    assert_eq!(both.iter().map(|route| route.name.as_str()).collect::<Vec<_>>(), ["a", "default"]);
}

#[test]
fn routes_are_sorted_by_longest_prefix() {
    let text = route("a", "/", "") + &route("b", "/x", "") + &route("c", "/x/y", "") + &route("d", "/w", "");
    let sorted: Vec<String> = routes(&text).unwrap().config.routes.into_iter().map(|route| route.prefix).collect();
    assert_eq!(sorted, ["/x/y", "/w", "/x", "/"]);
}

#[test]
fn missing_required_keys_are_reported() {
    assert_eq!(
        errors_of(routes("\n[[routes]]\n")),
        [
            "citetap.toml:2:1: [[routes]] without \"name\"",
            "citetap.toml:2:1: [[routes]] without \"prefix\"",
            "citetap.toml:2:1: [[routes]] without \"upstream\"",
        ]
    );
}

#[test]
fn upstream_urls_are_validated() {
    let upstream = |url: &str| {
        routes(&format!("[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = {url:?}"))
            .map(|loaded| loaded.config.routes[0].upstream.to_string())
    };
    assert_eq!(upstream("http://a.example:81/x").unwrap(), "http://a.example:81/x");
    assert_eq!(upstream("https://例子.测试").unwrap(), "https://xn--fsqu00a.xn--0zwm56d/");
    for (url, shown, why) in [
        ("a.example", "a.example", "expected a URL such as https://api.example.com/path"),
        ("https:a.example", "https:a.example", "expected a URL such as https://api.example.com/path"),
        ("https://a.exa mple", "https://a.exa mple", "expected a URL such as https://api.example.com/path"),
        ("ftp://a.example", "ftp://a.example", "expected http:// or https:// and a host"),
        ("unix:///run/x", "unix:///run/x", "expected http:// or https:// and a host"),
        (
            "https://u:p@a.example",
            "https://•••@a.example",
            "must not contain a user or password; set an authorization header in request_headers",
        ),
        ("https://a.example?key=1", "https://a.example?•••", "must not contain a query or fragment"),
        ("https://a.example#x", "https://a.example#x", "must not contain a query or fragment"),
    ] {
        assert_eq!(only(upstream_error(url)), format!("citetap.toml:4:12: routes.upstream = {shown:?}: {why}"));
        let link = only(routes(&route("a", "/", &format!("link_base = {url:?}"))));
        assert_eq!(link, format!("citetap.toml:5:13: routes.link_base = {shown:?}: {why}"));
    }
}

fn upstream_error(url: &str) -> Result<Loaded, ConfigErrors> {
    routes(&format!("[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = {url:?}"))
}

#[test]
fn upstream_that_is_citetap_itself_is_refused() {
    let with = |listen: &str, url: &str| {
        routes(&format!(
            "listen = {listen:?}\nauth = \"none\"\n[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = {url:?}"
        ))
    };
    for (listen, url) in [
        ("127.0.0.1:8787", "http://127.0.0.1:8787"),
        ("127.0.0.1:8787", "http://localhost:8787/x"),
        ("0.0.0.0:80", "http://127.0.0.1"),
        ("[::]:8787", "http://[::1]:8787"),
    ] {
        assert!(only(with(listen, url)).contains("is citetap's own address"), "{listen} {url}");
    }
    for (listen, url) in [
        ("127.0.0.1:8787", "http://127.0.0.1:8788"),
        ("127.0.0.1:8787", "http://127.0.0.2:8787"),
        ("0.0.0.0:443", "https://a.example"),
        ("127.0.0.1:0", "http://127.0.0.1:80"),
    ] {
        assert!(with(listen, url).is_ok(), "{listen} {url}");
    }
}

#[test]
fn unknown_keywords_are_refused() {
    let with = |rest: &str| only(routes(&route("a", "/", rest)));
    assert_eq!(
        with("profile = \"ai_sdk\""),
        "citetap.toml:5:11: routes.profile = \"ai_sdk\": expected \"native\", \"openai\", \"ai-sdk\" or \"open-webui\"; did you mean \"ai-sdk\"?"
    );
    assert_eq!(
        with("markers = \"links\""),
        "citetap.toml:5:11: routes.markers = \"links\": expected \"keep\", \"link\", \"sup\", \"footnote\" or \"strip\"; did you mean \"link\"?"
    );
    assert_eq!(
        with("inject = \"finl\""),
        "citetap.toml:5:10: routes.inject = \"finl\": expected \"final\", \"live\" or \"off\"; did you mean \"final\"?"
    );
    assert_eq!(
        with("tap = \"offf\""),
        "citetap.toml:5:7: routes.tap = \"offf\": expected \"on\" or \"off\"; did you mean \"off\"?"
    );
    assert_eq!(with("emit_empty = \"yes\""), "citetap.toml:5:14: routes.emit_empty = \"yes\": expected true or false");
}

#[test]
fn questions_are_trimmed_and_capped() {
    let with = |questions: &str| routes(&route("a", "/", &format!("questions = {questions}")));
    let loaded = with(r#"["What is new?", " 有什么新闻？ "]"#).unwrap();
    assert_eq!(loaded.config.routes[0].questions, ["What is new?", "有什么新闻？"]);
    assert_eq!(shown(&loaded, "routes.a.questions").0, "[What is new?,  有什么新闻？ ]");
    assert!(routes(&route("a", "/", "")).unwrap().config.routes[0].questions.is_empty());

    let list = |count: usize, len: usize| format!("{:?}", vec!["问".repeat(len); count]);
    assert!(with(&list(16, 500)).is_ok());
    assert!(only(with(&list(17, 1))).ends_with("questions = an array: expected 16 questions at most"));
    for bad in [list(1, 501), list(1, 0), "[7]".to_owned(), "[\" \"]".to_owned()] {
        assert!(only(with(&bad)).ends_with("expected a question of 1 to 500 characters"), "{bad}");
    }
    assert!(only(with("\"What?\"")).contains("expected an array"));
}
