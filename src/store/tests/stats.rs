//! Statistics: after any sequence of put, replace, delete and sweep they equal those recomputed from the stored
//! records.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{collection::vec, prelude::*};

use super::{entry, minimal_store, redis_store, server, shifted::ShiftedStore};
use crate::{
    citation::record::{CitationOrigin, CitationStatus},
    store::{
        Counts, DayStats, Entry, MemoryStore, RecordStore, STATS_DAYS_MAX, SiteCounts, SiteStats, SqliteStore,
        StatsFilter, StatsReport, Store,
    },
};

const DAY: i64 = 86_400_000;

/// Hostnames and the site of each; the last one is not a hostname.
const HOSTS: [(&str, Option<&str>); 9] = [
    ("www.example.com", Some("example.com")),
    ("Example.COM.", Some("example.com")),
    ("a.b.example.co.uk", Some("example.co.uk")),
    ("one.github.io", Some("one.github.io")),
    ("two.github.io", Some("two.github.io")),
    ("xn--fsqu00a.xn--fiqs8s", Some("xn--fsqu00a.xn--fiqs8s")),
    ("10.0.0.1", Some("10.0.0.1")),
    ("back\\slash\"quoted'", Some("back\\slash\"quoted'")),
    ("nul\0inside", None),
];

/// (index of the host, cited, kind, repetitions)
type Source = (usize, bool, u8, usize);

#[derive(Debug, Clone)]
enum Op {
    Put(Vec<Entry>),
    Delete(&'static str, String, Option<&'static str>),
    Sweep(i64),
}

fn source() -> impl Strategy<Value = Source> {
    // Often many citations of one site on a day, so that the index of top sites is used.
    (0..HOSTS.len(), any::<bool>(), 0_u8..8, prop_oneof![4 => 1_usize..3, 1 => 8_usize..30])
}

fn record() -> impl Strategy<Value = Entry> {
    let key = (prop_oneof![4 => Just("t"), 1 => Just("u")], prop_oneof![Just("p"), Just("q\0")], 0_u8..12);
    let at = (-2_i64..5, prop_oneof![Just(0), Just(1), Just(DAY - 1)]);
    let stats = (0_u32..3, 0_u32..3, 0_usize..3);
    (key, at, vec(source(), 0..6), stats).prop_map(|((tenant, provider, id), (day, ms), sources, stats)| {
        let mut entry = entry(tenant, provider, &id.to_string(), day * DAY + ms);
        let like = entry.record.citations.remove(0);
        for (host, cited, kind, times) in sources {
            let mut citation = like.clone();
            citation.hostname = (kind != 3).then(|| HOSTS[host].0.to_owned());
            citation.cited = cited;
            match kind {
                0 => citation.status = CitationStatus::Filtered,
                1 => citation.status = CitationStatus::Failed,
                2 => citation.origin = CitationOrigin::Supplemental,
                _ => {}
            }
            entry.record.citations.extend(std::iter::repeat_n(citation, times));
        }
        let (failed, dedup, dangling) = stats;
        entry.record.stats.failed_count = failed;
        entry.record.stats.dedup_count = dedup;
        entry.record.stats.dangling_markers = vec![7; dangling];
        entry
    })
}

fn op() -> impl Strategy<Value = Op> {
    let provider = prop_oneof![Just(None), Just(Some("p")), Just(Some("q\0"))];
    prop_oneof![
        6 => vec(record(), 1..9).prop_map(Op::Put),
        2 => (prop_oneof![Just("t"), Just("u")], 0_u8..12, provider).prop_map(|(tenant, id, provider)| Op::Delete(tenant, id.to_string(), provider)),
        1 => (-2_i64..4, 0..2_i64).prop_map(|(day, ms)| Op::Sweep(day * DAY + ms)),
    ]
}

/// The expected report, computed from the records alone.
fn expected_report<'a>(records: impl Iterator<Item = &'a Entry>, tenant: &str, filter: &StatsFilter) -> StatsReport {
    let (mut days, mut totals) =
        (BTreeMap::<_, (Counts, BTreeMap<&str, SiteCounts>)>::new(), BTreeMap::<&str, SiteCounts>::new());
    for Entry { created_ms, record, .. } in records.filter(|entry| entry.tenant == tenant) {
        let day = created_ms.div_euclid(DAY);
        if !filter.days.contains(&day) || filter.provider.as_ref().is_some_and(|asked| *asked != record.provider) {
            continue;
        }
        let (counts, sites) = days.entry((day, record.provider.clone())).or_default();
        let ok = || record.citations.iter().filter(|citation| citation.status == CitationStatus::Ok);
        let own = || ok().filter(|citation| citation.origin == CitationOrigin::Upstream);
        let count = |n: usize| n as i64;
        counts.messages += 1;
        counts.with_sources += i64::from(own().next().is_some());
        counts.citations += count(own().count());
        counts.cited += count(own().filter(|citation| citation.cited).count());
        counts.supplemental += count(ok().filter(|citation| citation.origin == CitationOrigin::Supplemental).count());
        counts.filtered += count(record.citations.iter().filter(|one| one.status == CitationStatus::Filtered).count());
        counts.failed += i64::from(record.stats.failed_count);
        counts.duplicates += i64::from(record.stats.dedup_count);
        counts.dangling_markers += count(record.stats.dangling_markers.len());
        let mut seen = BTreeMap::new();
        for citation in own() {
            let Some(host) = &citation.hostname else { continue };
            let Some(domain) = HOSTS.iter().find(|(known, _)| known == host).unwrap().1 else { continue };
            let first = i64::from(seen.insert(domain, ()).is_none());
            for site in [sites.entry(domain).or_default(), totals.entry(domain).or_default()] {
                site.messages += first;
                site.citations += 1;
                site.cited += i64::from(citation.cited);
            }
        }
    }
    let rank_sites = |sites: BTreeMap<&str, SiteCounts>| {
        let mut sites: Vec<_> =
            sites.into_iter().map(|(domain, site)| SiteStats { domain: domain.to_owned(), site }).collect();
        sites.sort_by_key(|one| -one.site.citations);
        sites
    };
    if let Some(domain) = &filter.domain {
        totals.retain(|site, _| site == domain);
    }
    let mut sites = rank_sites(totals);
    sites.truncate(filter.top);
    let listed = |domain: &str| filter.by_day && sites.iter().any(|site| site.domain == domain);
    let days = days.into_iter().map(|((day, provider), (counts, mut of_day))| {
        of_day.retain(|domain, _| listed(domain));
        DayStats { day, provider, counts, sites: rank_sites(of_day) }
    });
    StatsReport { days: days.collect(), sites }
}

fn filters() -> Vec<StatsFilter> {
    let all = || StatsFilter { days: -9..9, top: 100, by_day: true, ..StatsFilter::default() };
    let mut filters = vec![
        all(),
        StatsFilter { days: 0..2, ..all() },
        StatsFilter { days: 1..2, top: 2, ..all() },
        StatsFilter { days: 3..3, ..all() },
        StatsFilter { provider: Some("q\0".to_owned()), top: 3, ..all() },
        StatsFilter { provider: Some("nobody".to_owned()), ..all() },
        StatsFilter { domain: Some("example.com".to_owned()), ..all() },
        StatsFilter { domain: Some("nowhere.example".to_owned()), ..all() },
        StatsFilter { by_day: false, ..all() },
    ];
    filters.extend((0..5).map(|top| StatsFilter { top, ..all() }));
    filters
}

async fn check_after_each(store: &dyn Store, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut model = BTreeMap::new();
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Put(entries) => {
                store.put(entries).await.unwrap();
                let key =
                    |one: &Entry| (one.tenant.clone(), one.record.provider.clone(), one.record.message_id.clone());
                model.extend(entries.iter().map(|one| (key(one), one.clone())));
            }
            Op::Delete(tenant, id, provider) => {
                store.delete(tenant, id, *provider).await.unwrap();
                model.retain(|(of, by, named), _| {
                    of != tenant || named != id || provider.is_some_and(|provider| by != provider)
                });
            }
            Op::Sweep(before) => {
                store.sweep(*before).await.unwrap();
                model.retain(|_, one| one.created_ms >= *before);
            }
        }
        for (filter, tenant) in filters().iter().flat_map(|filter| [(filter, "t"), (filter, "u")]) {
            let expected = expected_report(model.values(), tenant, filter);
            let found = store.stats(tenant, filter).await.unwrap();
            prop_assert_eq!(found, expected, "{} {:?} after step {}", tenant, filter, at);
        }
    }
    store.sweep(i64::MAX).await.unwrap();
    let all = StatsFilter { days: -9..9, top: 9, ..StatsFilter::default() };
    prop_assert_eq!(store.stats("t", &all).await.unwrap(), StatsReport::default());
    Ok(())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stats_memory_match_the_records(ops in vec(op(), 1..12)) {
        runtime().block_on(check_after_each(&MemoryStore::new(), &ops))?;
    }

    #[test]
    fn stats_default_match_the_records(ops in vec(op(), 1..12)) {
        runtime().block_on(check_after_each(&minimal_store(), &ops))?;
    }

    #[test]
    fn stats_sqlite_match_the_records(ops in vec(op(), 1..12)) {
        let folder = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let store = SqliteStore::open(&folder.path().join("s.db")).await.unwrap();
            let result = check_after_each(&store, &ops).await;
            store.close().await;
            result
        })?;
    }
}

proptest! {
    // Fewer cases: each step makes several round trips to a server.
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stats_redis_match_the_records(ops in vec(op(), 1..12)) {
        runtime().block_on(async { check_after_each(&redis_store(None).await, &ops).await })?;
    }

    #[test]
    fn stats_postgres_overflow_match_the_records(ops in vec(op(), 1..12)) {
        runtime().block_on(async {
            let store = server::postgres().await;
            let result = check_after_each(&store, &ops).await;
            store.close().await;
            result
        })?;
    }

    #[test]
    fn stats_postgres_partitions_match_the_records(ops in vec(op(), 1..12)) {
        runtime().block_on(async {
            let store = ShiftedStore::new().await;
            let result = check_after_each(&store, &ops).await;
            store.close().await;
            result
        })?;
    }
}

pub(super) async fn stats_count_each_kind_of_citation(store: Arc<dyn Store>) {
    let mut one = entry("t", "p", "1", 5);
    let like = one.record.citations[0].clone();
    one.record.citations.extend((0..4).map(|_| like.clone()));
    one.record.citations[1].cited = false;
    one.record.citations[2].status = CitationStatus::Filtered;
    one.record.citations[3].origin = CitationOrigin::Supplemental;
    one.record.citations[4].hostname = None;
    let mut bare = entry("t", "p", "2", 6);
    bare.record.citations.clear();
    bare.record.stats.dangling_markers = vec![1, 9];
    let mut supplemental = entry("t", "p", "3", 7);
    supplemental.record.citations[0].origin = CitationOrigin::Supplemental;
    store.put(&[one, bare, supplemental, entry("other", "p", "1", 5)]).await.unwrap();
    let filter = StatsFilter { days: 0..1, top: 5, by_day: true, ..StatsFilter::default() };
    let counts = Counts {
        messages: 3,
        with_sources: 1,
        citations: 3,
        cited: 2,
        supplemental: 2,
        filtered: 1,
        dangling_markers: 2,
        ..Counts::default()
    };
    let sites =
        vec![SiteStats { domain: "example.com".to_owned(), site: SiteCounts { messages: 1, citations: 2, cited: 1 } }];
    let day = DayStats { day: 0, provider: "p".to_owned(), counts, sites: sites.clone() };
    assert_eq!(store.stats("t", &filter).await.unwrap(), StatsReport { days: vec![day], sites });
    // A hostname selects its site.
    for domain in ["www.example.com", "EXAMPLE.com.", " example.com "] {
        let filter = StatsFilter { domain: Some(domain.to_owned()), ..filter.clone() };
        assert_eq!(store.stats("t", &filter).await.unwrap().sites.len(), 1, "{domain}");
    }
    for domain in ["ample.com", "com", "%", "", "nul\0"] {
        let filter = StatsFilter { domain: Some(domain.to_owned()), ..filter.clone() };
        let report = store.stats("t", &filter).await.unwrap();
        assert_eq!((report.sites.len(), report.days.len()), (0, 1), "{domain}");
    }
}

pub(super) async fn stats_days_are_utc_and_bounded(store: Arc<dyn Store>) {
    let entries: Vec<_> = [-1, 0, DAY - 1, DAY, STATS_DAYS_MAX * DAY - 1, STATS_DAYS_MAX * DAY, i64::MIN, i64::MAX]
        .iter()
        .zip(0..)
        .map(|(ms, id)| entry("t", "p", &id.to_string(), *ms))
        .collect();
    store.put(&entries).await.unwrap();
    let days = async |days| {
        let filter = StatsFilter { days, top: 1, ..StatsFilter::default() };
        let report = store.stats("t", &filter).await.unwrap();
        report.days.iter().map(|one| (one.day, one.counts.messages)).collect::<Vec<_>>()
    };
    assert_eq!(days(0..1).await, [(0, 2)]);
    assert_eq!(days(-1..2).await, [(-1, 1), (0, 2), (1, 1)]);
    assert_eq!(days(0..i64::MAX).await, [(0, 2), (1, 1), (STATS_DAYS_MAX - 1, 1)], "the cap");
    assert_eq!(days(1..i64::MAX).await, [(1, 1), (STATS_DAYS_MAX - 1, 1), (STATS_DAYS_MAX, 1)]);
    assert_eq!(days(i64::MIN..i64::MAX).await, [], "no day is that early");
    assert_eq!(days(3..3).await, []);
}
