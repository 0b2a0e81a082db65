use super::{super::*, error, errors_of, file, shown, vars};
use crate::citation::score::Weights;

fn rules(text: &str) -> crate::citation::Rules {
    let loaded = file(text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
    (*loaded.config.rules).clone()
}

#[test]
fn weights_must_be_fractions_that_sum_to_one() {
    let set = rules("[scores.weights]\nrelevance = 1\nfreshness = 0\nauthority = 0.0");
    assert_eq!(Some(set.scores.weights), Weights::new(1.0, 0.0, 0.0));
    assert_eq!(
        error("[scores.weights]\nfreshness = 0.5"),
        "citetap.toml:2:13: scores.weights.freshness = 0.5: the weights must sum to 1: relevance 0.6 + freshness 0.5 + authority 0.2"
    );
    for value in ["1.5", "-0.1", "2", "\"half\"", "nan"] {
        let message = error(&format!("[scores.weights]\nrelevance = {value}"));
        assert!(message.starts_with("citetap.toml:2:13: scores.weights.relevance = "), "{message}");
        assert!(message.ends_with("expected a number from 0 to 1"), "{message}");
    }
}

#[test]
fn invalid_domains_are_refused() {
    let set = rules("[scores]\nallow = [\"Example.com\", \"中国政府网.政务\"]\ndeny = [\"t.me\"]");
    assert!(set.scores.allow.contains("example.com") && set.scores.deny.contains("t.me"));
    assert!(set.scores.allow.iter().any(|domain| domain.starts_with("xn--")), "{:?}", set.scores.allow);
    for value in
        ["https://example.com", "example.com/a", ".gov", "*.gov", "a..b", "", "10.0.0.1", "a b", "example.com:80"]
    {
        let message = error(&format!("[scores]\ndeny = [{value:?}]"));
        assert!(message.ends_with(&format!("{value:?}: expected a domain such as example.com")), "{message}");
    }
}

#[test]
fn authority_rows_are_added_or_replaced() {
    let count = rules("").scores.authority.len();
    let set = rules("[scores.authority]\n\"wiki.example.com\" = 0.9\nwikipedia.org = 1\n").scores.authority;
    assert_eq!((set.len(), set["wiki.example.com"], set["wikipedia.org"]), (count + 1, 0.9, 1.0));
    let location = "citetap.toml:2:17: scores.authority";
    assert_eq!(
        error("[scores.authority]\n\"example.com\" = 3"),
        format!("{location}.\"example.com\" = 3: expected a number from 0 to 1")
    );
    assert_eq!(
        error("[scores.authority]\n\"http://a.b\"  = 0.3"),
        format!("{location}.\"http://a.b\" = 0.3: expected a domain such as example.com")
    );
    assert!(error("[scores]\nauthority = 0.3").contains("scores.authority = 0.3: expected a table such as"));
}

#[test]
fn environment_sets_scores_and_authority() {
    let up = ("CITETAP_UPSTREAM", "https://a.example");
    let table = ("CITETAP__SCORES__AUTHORITY", "a.example=0.9, wikipedia.org=0.2");
    let loaded = vars(&[up, table, ("CITETAP__SCORES__MINIMUM", "0.4"), ("CITETAP__INTENTS__TECH", "Rust,编译")]);
    let loaded = loaded.unwrap();
    let rules = &loaded.config.rules;
    assert_eq!((rules.scores.authority["a.example"], rules.scores.authority["wikipedia.org"]), (0.9, 0.2));
    assert!(rules.scores.authority.contains_key("gov.cn"));
    assert_eq!((rules.scores.minimum, rules.intents.tech.join(" ")), (0.4, "rust 编译".to_owned()));
    assert_eq!(shown(&loaded, "scores.authority.a.example"), ("0.9".into(), "env CITETAP__SCORES__AUTHORITY".into()));
    assert!(shown(&loaded, "scores.authority").0.ends_with(" rows"));
    let errors = errors_of(vars(&[up, ("CITETAP__SCORES__AUTHORITY", "a.example")]));
    assert!(errors[0].contains("expected pairs such as example.com=0.8"), "{errors:?}");
}

#[test]
fn thresholds_and_word_lists_load() {
    let set = rules("[corroboration]\ndomains = 3\nofficial = [\"Confirms\"]\npositive = []\nnegative = []");
    assert_eq!(
        (set.corroboration.min_domains, set.corroboration.words.lists()),
        (3, &[vec!["confirms".to_owned()], vec![], vec![]])
    );
    assert!(error("[corroboration]\ndomains = 0").contains("must be at least 1"));
    assert!(error("[corroboration]\nofficial = [\" \"]").contains("expected words"));
    assert!(error("[scores]\nhalf_life = \"1s\"").contains("must be at least 3600s"));
    assert!(error("[intents]\nmarkets = []").contains("did you mean \"market\"?"));
}

/// Checks that the authority of well-known sites decreases in this order.
#[test]
fn default_authority_ranks_known_sites() {
    let scores = default_rules().scores.clone();
    let of = |host: &str| {
        let mut rest = Some(host);
        let found = std::iter::from_fn(|| {
            let here = rest?;
            rest = here.split_once('.').map(|(_, parent)| parent);
            Some(here)
        });
        found.into_iter().find_map(|part| scores.authority.get(part)).copied().unwrap_or(0.5)
    };
    let falling = [
        "www.mee.gov.cn",
        "www.tsinghua.edu.cn",
        "www.xinhuanet.com",
        "zh.wikipedia.org",
        "github.com",
        "www.zhihu.com",
        "weibo.com",
        "t.me",
    ];
    let values = falling.map(of);
    assert!(values.windows(2).all(|pair| pair[0] > pair[1]), "{values:?}");
    assert!(of("ec.europa.eu") > of("www.bbc.co.uk") && of("www.ox.ac.uk") > of("medium.com"));
    assert!(of("baike.baidu.com") > of("tieba.baidu.com") && of("mp.weixin.qq.com") < of("news.qq.com"));
}
