//! Conformance cases: filters, pages, and hostile text in both.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;

use super::{entry, ids};
use crate::store::{Cursor, Filter, PAGE_DEFAULT, PAGE_MAX, Store};

pub(super) async fn list_filters_select(store: Arc<dyn Store>) {
    let mut a = entry("t", "doubao", "a", 10);
    a.record.conversation_id = Some("77".to_owned());
    a.record.summary = Some("搜索 2 个关键词，参考 10 篇资料".to_owned());
    let mut b = entry("t", "lke", "b", 20);
    b.record.citations[0].hostname = Some("news.example.co.uk".to_owned());
    b.record.queries = vec!["ÄRGER im Büro".to_owned()];
    let mut c = entry("t", "lke", "c", 30);
    c.record.conversation_id = Some("77".to_owned());
    c.record.citations[0].snippets = vec!["the Second excerpt".to_owned()];
    c.record.citations[0].title = None;
    store.put(&[a, b, c, entry("other", "lke", "d", 25)]).await.unwrap();

    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    for (filter, expected) in [
        (all(), vec!["c", "b", "a"]),
        (Filter { conversation: text("77"), ..all() }, vec!["c", "a"]),
        (Filter { conversation: text("7"), ..all() }, vec![]),
        (Filter { provider: text("lke"), ..all() }, vec!["c", "b"]),
        (Filter { domain: text("www.example.com"), ..all() }, vec!["c", "a"]),
        (Filter { domain: text("Example.COM."), ..all() }, vec!["c", "a"]),
        (Filter { domain: text("example.co.uk"), ..all() }, vec!["b"]),
        (Filter { domain: text("ample.com"), ..all() }, vec![]),
        (Filter { domain: text("com"), ..all() }, vec![]),
        (Filter { domain: text(""), ..all() }, vec![]),
        (Filter { q: text("a title"), ..all() }, vec!["b", "a"]),
        (Filter { q: text("EXCERPT"), ..all() }, vec!["c", "b", "a"]),
        (Filter { q: text("second"), ..all() }, vec!["c"]),
        (Filter { q: text("ärger"), ..all() }, vec!["b"]),
        (Filter { q: text("关键词"), ..all() }, vec!["a"]),
        (Filter { q: text("titlean"), ..all() }, vec![]),
        (Filter { since_ms: Some(20), ..all() }, vec!["c", "b"]),
        (Filter { until_ms: Some(20), ..all() }, vec!["a"]),
        (Filter { since_ms: Some(10), until_ms: Some(11), ..all() }, vec!["a"]),
        (
            Filter {
                conversation: text("77"),
                provider: text("lke"),
                domain: text("example.com"),
                q: text("second"),
                since_ms: Some(30),
                until_ms: Some(31),
                ..all()
            },
            vec!["c"],
        ),
    ] {
        assert_eq!(ids(&store, "t", filter.clone()).await, expected, "{filter:?}");
    }
}

pub(super) async fn list_pages_to_the_end(store: Arc<dyn Store>) {
    // Many entries share a millisecond, so that the cursor's provider and id matter.
    let mut entries = Vec::new();
    for n in 0..60_i64 {
        let mut one = entry("t", ["p", "q", "r"][(n % 3) as usize], &format!("{:02}", n / 2), n / 7);
        one.record.conversation_id = (n % 2 == 0).then(|| "even".to_owned());
        entries.push(one);
    }
    store.put(&entries).await.unwrap();
    let even = Some("even".to_owned());
    let domain = Some("example.com".to_owned());
    for (filter, expected) in [
        (Filter::default(), 60),
        (Filter { conversation: even.clone(), ..Filter::default() }, 30),
        (Filter { domain: domain.clone(), ..Filter::default() }, 60),
        (Filter { provider: Some("q".to_owned()), ..Filter::default() }, 20),
        (
            Filter { domain, conversation: even, q: Some("title".to_owned()), since_ms: Some(0), ..Filter::default() },
            30,
        ),
    ] {
        for limit in [1, 7, 59, 60, 1000] {
            let mut filter = Filter { limit, ..filter.clone() };
            let mut seen = Vec::new();
            loop {
                let page = store.list("t", &filter).await.unwrap();
                assert!(page.entries.len() <= limit);
                seen.extend(
                    page.entries.into_iter().map(|one| (-one.created_ms, one.record.provider, one.record.message_id)),
                );
                let Some(next) = page.next else { break };
                filter.cursor = Some(Cursor::decode(&next.encode()).unwrap());
            }
            assert_eq!(seen.len(), expected, "{filter:?}");
            assert!(seen.is_sorted(), "{filter:?}");
            assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), expected);
        }
    }
}

pub(super) async fn list_page_is_bounded(store: Arc<dyn Store>) {
    let entries: Vec<_> = (0..PAGE_MAX as i64 + 1).map(|n| entry("t", "p", &n.to_string(), n)).collect();
    store.put(&entries).await.unwrap();
    for (limit, expected) in [(0, PAGE_DEFAULT), (PAGE_MAX, PAGE_MAX), (usize::MAX, PAGE_MAX)] {
        let page = store.list("t", &Filter { limit, ..Filter::default() }).await.unwrap();
        assert_eq!(page.entries.len(), expected);
        assert!(page.next.is_some());
    }
}

pub(super) async fn hostile_text_is_stored_as_text(store: Arc<dyn Store>) {
    let texts = [
        "'; DROP TABLE record; --",
        "\"quoted\"",
        "100%",
        "a_b",
        "nul\0inside",
        "🦀🧪",
        "中文标题",
        "back\\slash",
        "\u{202e}rtl",
        "line\r\nbreak",
        "?1",
        "\u{1f}",
        "*",
        "[a-z]",
        // A lone surrogate is not valid text, but its escape is.
        "\\ud83e",
        "\u{1}\u{2}\u{3}",
        "\u{10ffff}\u{feff}",
    ];
    for (n, text) in texts.iter().enumerate() {
        let mut one = entry("t", text, text, n as i64);
        one.record.conversation_id = Some((*text).to_owned());
        one.record.citations[0].title = Some(format!("x{text}y"));
        one.record.citations[0].hostname = Some((*text).to_owned());
        one.record.metadata.insert((*text).to_owned(), json!(text));
        let mut foreign = one.clone();
        foreign.tenant = (*text).to_owned();
        store.put(&[one.clone(), foreign.clone()]).await.unwrap();
        assert_eq!(store.get("t", text, Some(text)).await.unwrap(), Some(one));
        assert_eq!(store.get(text, text, None).await.unwrap(), Some(foreign));
    }
    for text in texts {
        let owned = || Some(text.to_owned());
        assert_eq!(ids(&store, "t", Filter { conversation: owned(), ..Filter::default() }).await, [text]);
        assert_eq!(ids(&store, "t", Filter { provider: owned(), ..Filter::default() }).await, [text]);
        let q = Some(format!("x{text}y"));
        assert_eq!(ids(&store, "t", Filter { q, ..Filter::default() }).await, [text]);
        ids(&store, "t", Filter { domain: owned(), ..Filter::default() }).await;
    }
    for nothing in ["%", "_", "x%y", "%%%"] {
        let found = ids(&store, "t", Filter { q: Some(nothing.to_owned()), ..Filter::default() }).await;
        assert!(found.iter().all(|id| format!("x{id}y").contains(nothing)), "{nothing}: {found:?}");
    }
    let q = Some("long ".repeat(100_000));
    assert!(ids(&store, "t", Filter { q, ..Filter::default() }).await.is_empty());
    assert_eq!(store.delete("t", "%", None).await.unwrap(), 0);
    assert_eq!(store.delete("t", "nul", None).await.unwrap(), 0);
    assert_eq!(store.delete("t", "nul\0inside", None).await.unwrap(), 1);
}
