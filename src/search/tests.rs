use std::path::Path;

use super::*;
use crate::config;

fn search(toml: &str) -> Search {
    let route = "[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"https://a.example\"\n";
    config::from_toml(&format!("{toml}\n{route}"), Path::new(".")).unwrap().config.search
}

fn ask(query: &str) -> Ask {
    Ask { query: query.to_owned(), ..Ask::default() }
}

#[test]
fn domain_is_a_host_without_url_parts() {
    assert_eq!(domain(" Example.COM. ").as_deref(), Some("example.com"));
    assert_eq!(domain("例子.中国").as_deref(), Some("xn--fsqu00a.xn--fiqs8s"));
    for text in
        ["", "https://a.example", "a.example/x", "a.example:80", "u@a.example", "*.a.example", "10.0.0.1", "a b"]
    {
        assert_eq!(domain(text), None, "{text:?}");
    }
}

#[test]
fn is_within_matches_subdomains_only() {
    let domains = ["coin.example".to_owned()];
    for (host, expected) in [
        ("coin.example", true),
        ("www.coin.example", true),
        ("coin.example.", true),
        ("evilcoin.example", false),
        ("coin.example.evil.example", false),
        ("example", false),
        ("", false),
    ] {
        assert_eq!(is_within(host, &domains), expected, "{host}");
    }
}

#[test]
fn query_without_a_value_gets_the_configured_one() {
    let search = search("[search]\nmax_results = 9\ntopic = \"finance\"\nsearch_depth = \"advanced\"");
    let query = Query::new(ask("q"), &search).unwrap();
    assert_eq!((query.max_results, query.topic, query.search_depth), (9, Topic::Finance, Depth::Advanced));
    let request = Ask { max_results: Some(20), topic: Some(Topic::News), ..ask("q") };
    let query = Query::new(request, &search).unwrap();
    assert_eq!((query.max_results, query.topic, query.search_depth), (20, Topic::News, Depth::Advanced));
    for max_results in [0, 21] {
        assert!(Query::new(Ask { max_results: Some(max_results), ..ask("q") }, &search).is_err());
    }
}

#[test]
fn wider_domain_is_narrowed_to_the_enforced_one() {
    let search = search("[search.event_types]\nnews = [\"news.a.example\", \"b.example\"]");
    let request = Ask {
        event_type: Some("news".to_owned()),
        include_domains: vec!["a.example".to_owned(), "x.b.example".to_owned(), "c.example".to_owned()],
        ..ask("q")
    };
    assert_eq!(Query::new(request, &search).unwrap().include_domains, ["news.a.example", "x.b.example"]);
}
