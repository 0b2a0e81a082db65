//! What the demo's store begins with: answers of the last days, made up from the sources of its captures, so that
//! lists and charts have something to show. The same days give the same answers.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    capture::{Capture, Captured, Format},
    demo::CAPTURES,
    reading::Reading,
};
use crate::{
    citation::{
        Ledger, Record, Rules,
        ledger::{Published, Reference},
        record::Citation,
    },
    pipeline::Inject,
    profile::Manner,
    provider::Provider,
};

/// As long as the demo keeps records.
pub const MAX_DAYS: u16 = 30;
const DAY: i64 = 24 * 60 * 60;
/// Answers begin at seven, are most at two in the afternoon and end at nine, in UTC.
const MORNING: i64 = 7 * 60 * 60;
const HALF_OF_IT: u64 = 7 * 60 * 60;
/// A page may be found again at one of these.
const COPIES: [&str; 5] =
    ["wiki.example", "forum.example", "archive.example.org", "portal.example", "press.example.net"];

/// The answers of the last `days` days, today's until now among them, oldest first.
pub fn history(days: u16, now: Timestamp, rules: &Arc<Rules>) -> Vec<(Timestamp, Record)> {
    let bases: Vec<Base> = CAPTURES.iter().filter_map(|(path, sse)| Base::of(path, sse, rules)).collect();
    let today = now.as_second().div_euclid(DAY);
    let mut answers = Vec::new();
    for day in today - i64::from(days.min(MAX_DAYS)) + 1..=today {
        let mut chance = Chance::of(day, 0);
        // The epoch was a Thursday.
        let weekend = matches!((day + 4).rem_euclid(7), 0 | 6);
        let count = if weekend { 2 + chance.below(3) } else { 6 + chance.below(7) };
        for n in 1..=count {
            let mut chance = Chance::of(day, n);
            let second = i64::try_from(chance.below(HALF_OF_IT) + chance.below(HALF_OF_IT)).unwrap_or_default();
            let base = bases.get(usize::try_from(chance.below(bases.len() as u64)).unwrap_or_default());
            let created = Timestamp::from_second(day * DAY + MORNING + second).ok().filter(|created| *created <= now);
            if let (Some(base), Some(created)) = (base, created) {
                answers.push((created, base.answer(created, &mut chance, rules)));
            }
        }
    }
    answers.sort_by_key(|(created, _)| *created);
    answers
}

/// A capture's record, and those of its sources that lie in domains that nobody has.
struct Base {
    record: Record,
    sources: Vec<Citation>,
}

impl Base {
    fn of(path: &str, sse: &'static [u8], rules: &Arc<Rules>) -> Option<Self> {
        let reading = Reading {
            route: "demo",
            kind: Provider::AUTO,
            link_base: url::Url::parse("https://kb.example.com").ok(),
            inject: Inject::Off,
            manner: Manner::default(),
            frame_cap: sse.len(),
            rules: Arc::clone(rules),
        };
        let capture = Capture { sse: Bytes::from_static(sse), format: Format::Sse, skipped: 0 };
        let passed = reading.pass(Captured::Streams(vec![capture])).ok()?;
        let mut record = *passed.into_iter().next()?.record?;
        record.route = path.trim_start_matches('/').to_owned();
        let mut sources = record.citations.clone();
        sources.retain(|source| source.hostname.as_deref().is_none_or(is_reserved));
        sources.iter_mut().for_each(with_domain_of_its_own);
        Some(Self { record, sources })
    }

    /// Some of the sources, of which some are cited.
    fn answer(&self, created: Timestamp, chance: &mut Chance, rules: &Rules) -> Record {
        let mut ledger = Ledger::new(None);
        ledger.set_provider(self.record.provider.parse().map_or("", Provider::as_str));
        let queries: Vec<Cow<'_, str>> = self
            .record
            .queries
            .iter()
            .filter(|_| chance.in_100(70))
            .map(|query| Cow::Borrowed(query.as_str()))
            .collect();
        if !queries.is_empty() {
            ledger.round("1", None, &queries);
        }
        let (mut text, mut number) = (String::new(), 0);
        let bare = chance.in_100(8);
        for (index, source) in self.sources.iter().enumerate().filter(|_| !bare) {
            // The first are found most often.
            if !chance.in_100(90_u64.saturating_sub(8 * index as u64)) {
                continue;
            }
            number += 1;
            let mut again = chance.clone();
            reference(&mut ledger, source, number, created, chance);
            if chance.in_100(6) {
                number += 1;
                reference(&mut ledger, source, number, created, &mut again);
            }
            if chance.in_100(65) {
                text += &format!("[{number}] ");
            }
        }
        if number > 0 && chance.in_100(5) {
            text += &format!("[{}]", number + 2);
        }
        ledger.text(&text);

        let view = ledger.view(&rules.scores, created);
        Record {
            message_id: fresh_id(&self.record.message_id, chance),
            conversation_id: self.record.conversation_id.as_ref().map(|_| format!("h-{}", chance.below(100_000))),
            complete: !chance.in_100(4),
            stored: true,
            truncated: view.truncated,
            nonce: chance.letters(32, b"0123456789abcdef"),
            created_at: format!("{created:.3}"),
            summary: view.summary,
            queries: view.queries,
            corroboration: rules.corroboration.corroborate(&view.citations),
            rounds: view.rounds,
            citations: view.citations,
            stats: view.stats,
            ..self.record.clone()
        }
    }
}

/// RFC 2606: nobody has them.
fn is_reserved(host: &str) -> bool {
    ["example.com", "example.org", "example.net", ".example"].iter().any(|end| host.ends_with(end))
}

/// `news.example.com` becomes `news.example`: in a list of domains the captures' would all be one.
fn with_domain_of_its_own(source: &mut Citation) {
    let (Some(url), Some(host)) = (&source.url, &source.hostname) else { return };
    let Some((name, _)) = host.split_once('.') else { return };
    let own = format!("{name}.example");
    source.url = Some(url.replacen(host.as_str(), &own, 1));
    source.hostname = Some(own);
}

fn reference(ledger: &mut Ledger, source: &Citation, number: u32, created: Timestamp, chance: &mut Chance) {
    let copy = COPIES.get(usize::try_from(chance.below(25)).unwrap_or_default());
    let url = match (source.url.as_deref(), source.hostname.as_deref(), copy) {
        (Some(url), Some(host), Some(copy)) => Some(url.replacen(host, copy, 1)),
        (url, ..) => url.map(str::to_owned),
    };
    let age = i64::try_from(chance.below(700)).unwrap_or_default() * DAY;
    ledger.reference(&Reference {
        number: Some(number),
        position: None,
        rank: Some(number),
        score: None,
        url: url.as_deref(),
        title: source.title.as_deref(),
        snippet: source.content.as_deref(),
        site_name: source.site_name.as_deref(),
        icon_url: source.icon_url.as_deref(),
        published: Some(Published::Epoch(created.as_second() - age)),
        doc_id: source.metadata.get("docId").and_then(|id| id.as_str()).map(Cow::Borrowed),
        kind: source.kind,
        cited: false,
        metadata: Vec::new(),
    });
}

/// Like the provider's, and none that an answer of the demo can have: those begin with another digit, and have no `h`.
fn fresh_id(of: &str, chance: &mut Chance) -> String {
    match of.rsplit_once('-') {
        _ if of.bytes().all(|byte| byte.is_ascii_digit()) => format!("2{}", chance.letters(16, b"0123456789")),
        Some((prefix, _)) => format!("{prefix}-h{}", chance.letters(15, b"0123456789abcdef")),
        None => format!("h{}", chance.letters(31, b"0123456789abcdef")),
    }
}

/// Numbers that look like chance (SplitMix64) and are the same on every run.
#[derive(Clone)]
struct Chance(u64);

impl Chance {
    fn of(day: i64, n: u64) -> Self {
        Self(day.unsigned_abs().wrapping_mul(1000).wrapping_add(n))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn in_100(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn letters(&mut self, count: usize, alphabet: &[u8]) -> String {
        let letter = |random: u64| alphabet[usize::try_from(random % alphabet.len() as u64).unwrap_or_default()];
        (0..count).map(|_| char::from(letter(self.next()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::config::default_rules;

    /// A Wednesday evening.
    fn of(days: u16) -> Vec<(Timestamp, Record)> {
        history(days, "2026-11-18T20:00:00Z".parse().unwrap(), &default_rules())
    }

    #[test]
    fn a_few_a_day_and_fewer_at_weekends() {
        let all = of(14);
        let mut by_day: BTreeMap<i64, usize> = BTreeMap::new();
        for (created, record) in &all {
            assert_eq!(record.created_at.parse::<Timestamp>().unwrap(), *created);
            *by_day.entry(created.as_second() / DAY).or_default() += 1;
        }
        assert_eq!(by_day.len(), 14);
        assert!(by_day.values().all(|count| (2..=12).contains(count)), "{by_day:?}");
        let weekend = |day: &&i64| matches!((**day + 4) % 7, 0 | 6);
        assert!(by_day.keys().filter(weekend).all(|day| by_day[day] <= 4), "{by_day:?}");
        assert!(all.is_sorted_by_key(|(created, _)| *created));
    }

    #[test]
    fn the_same_days_are_the_same_and_the_number_of_days_has_a_cap() {
        assert_eq!(of(3), of(3));
        assert!(of(0).is_empty());
        let (three, five) = (of(3), of(5));
        assert!(five.ends_with(&three));
        assert_eq!(of(MAX_DAYS), of(MAX_DAYS + 1));
        let midnight = history(1, "2026-11-18T00:00:00Z".parse().unwrap(), &default_rules());
        assert!(midnight.is_empty(), "nothing of what is to come");
    }

    #[test]
    fn they_are_records_like_any_other_in_domains_that_nobody_has() {
        let all = of(MAX_DAYS);
        let ids: BTreeSet<&str> = all.iter().map(|(_, record)| record.message_id.as_str()).collect();
        assert_eq!(ids.len(), all.len());
        let live =
            ["35730705466983426", "35790211840077314", "7e016b24c1b0496dbb74ba4344d8b373", "chatcmpl-5f0c9d2b7a8e4163"];
        assert!(ids.iter().all(|id| crate::citation::record::is_plain_id(id) && !live.contains(id)));
        let records = || all.iter().map(|(_, record)| record);
        for record in records() {
            let stats = &record.stats;
            assert_eq!(stats.total_returned, stats.kept_after_filter + stats.dedup_count, "{record:?}");
            assert!(record.stored && record.citations.iter().all(|citation| citation.scores.is_some()));
            for host in record.citations.iter().filter_map(|citation| citation.hostname.as_deref()) {
                assert!(is_reserved(host), "{host}");
            }
        }
        let providers: BTreeSet<(&str, &str)> =
            records().map(|record| (record.provider.as_str(), record.route.as_str())).collect();
        assert_eq!(providers.len(), 4, "{providers:?}");
        let hosts: BTreeSet<&str> = records()
            .flat_map(|record| &record.citations)
            .filter_map(|citation| citation.hostname.as_deref())
            .collect();
        assert!(hosts.len() > 15, "{hosts:?}");
        for some in [
            |record: &Record| record.citations.is_empty(),
            |record: &Record| !record.complete,
            |record: &Record| record.stats.dedup_count > 0,
            |record: &Record| !record.stats.dangling_markers.is_empty(),
            |record: &Record| record.stats.cited_count < record.stats.kept_after_filter,
        ] {
            let count = records().filter(|record| some(record)).count();
            assert!(count > 0 && count < all.len(), "{count}");
        }
    }
}
