//! Generates past answers for the demo's store from the sources of its captures, so that lists and charts are not
//! empty. Deterministic: a day always gives the same answers.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    capture::{Capture, CaptureFile, Format},
    capture_reader::CaptureReader,
    demo::CAPTURES,
};
use crate::{
    citation::{
        Ledger, Record, Rules,
        ledger::{Published, Reference},
        record::Citation,
    },
    pipeline::Inject,
    profile::OutputFormat,
    provider::Provider,
};

/// Most days generated; the demo's TTL.
pub const MAX_DAYS: u16 = 30;
const DAY: i64 = 24 * 60 * 60;
/// Answers fall between 07:00 and 21:00 UTC, with a peak at 14:00 (the sum of two uniform halves).
const DAY_START: i64 = 7 * 60 * 60;
const HALF_DAY_SPAN: u64 = 7 * 60 * 60;
/// Hosts on which some pages appear a second time.
const MIRROR_HOSTS: [&str; 5] =
    ["wiki.example", "forum.example", "archive.example.org", "portal.example", "press.example.net"];

/// Answers of the last `days` days up to `now`, oldest first.
pub fn history(days: u16, now: Timestamp, rules: &Arc<Rules>) -> Vec<(Timestamp, Record)> {
    let captures: Vec<SourceCapture> =
        CAPTURES.iter().filter_map(|(path, sse)| SourceCapture::of(path, sse, rules)).collect();
    let today = now.as_second().div_euclid(DAY);
    let mut answers = Vec::new();
    for day in today - i64::from(days.min(MAX_DAYS)) + 1..=today {
        let mut rng = SeededRng::of(day, 0);
        // 1970-01-01 was a Thursday.
        let weekend = matches!((day + 4).rem_euclid(7), 0 | 6);
        let count = if weekend { 2 + rng.below(3) } else { 6 + rng.below(7) };
        for n in 1..=count {
            let mut rng = SeededRng::of(day, n);
            let second = i64::try_from(rng.below(HALF_DAY_SPAN) + rng.below(HALF_DAY_SPAN)).unwrap_or_default();
            let capture = captures.get(usize::try_from(rng.below(captures.len() as u64)).unwrap_or_default());
            let created = Timestamp::from_second(day * DAY + DAY_START + second).ok().filter(|created| *created <= now);
            if let (Some(capture), Some(created)) = (capture, created) {
                answers.push((created, capture.answer(created, &mut rng, rules)));
            }
        }
    }
    answers.sort_by_key(|(created, _)| *created);
    answers
}

/// A capture's record, and its sources on reserved domains.
struct SourceCapture {
    record: Record,
    sources: Vec<Citation>,
}

impl SourceCapture {
    fn of(path: &str, sse: &'static [u8], rules: &Arc<Rules>) -> Option<Self> {
        let reader = CaptureReader {
            route: "demo",
            provider: Provider::AUTO,
            link_base: url::Url::parse("https://kb.example.com").ok(),
            inject: Inject::Off,
            output_format: OutputFormat::default(),
            frame_cap: sse.len(),
            rules: Arc::clone(rules),
        };
        let capture = Capture { sse: Bytes::from_static(sse), format: Format::Sse, skipped: 0 };
        let passed = reader.read(CaptureFile::Streams(vec![capture])).ok()?;
        let mut record = *passed.into_iter().next()?.record?;
        record.route = path.trim_start_matches('/').to_owned();
        let mut sources = record.citations.clone();
        sources.retain(|source| source.hostname.as_deref().is_none_or(is_reserved));
        sources.iter_mut().for_each(move_to_own_domain);
        Some(Self { record, sources })
    }

    /// An answer with a random selection of the sources, some of them cited.
    fn answer(&self, created: Timestamp, rng: &mut SeededRng, rules: &Rules) -> Record {
        let mut ledger = Ledger::new(None);
        ledger.set_provider(self.record.provider.parse().map_or("", Provider::as_str));
        let queries: Vec<Cow<'_, str>> = self
            .record
            .queries
            .iter()
            .filter(|_| rng.percent_chance(70))
            .map(|query| Cow::Borrowed(query.as_str()))
            .collect();
        if !queries.is_empty() {
            ledger.add_round("1", None, &queries);
        }
        let (mut text, mut number) = (String::new(), 0);
        let bare = rng.percent_chance(8);
        for (index, source) in self.sources.iter().enumerate().filter(|_| !bare) {
            // The first sources are selected most often.
            if !rng.percent_chance(90_u64.saturating_sub(8 * index as u64)) {
                continue;
            }
            number += 1;
            let mut again = rng.clone();
            reference(&mut ledger, source, number, created, rng);
            if rng.percent_chance(6) {
                number += 1;
                reference(&mut ledger, source, number, created, &mut again);
            }
            if rng.percent_chance(65) {
                text += &format!("[{number}] ");
            }
        }
        if number > 0 && rng.percent_chance(5) {
            text += &format!("[{}]", number + 2);
        }
        ledger.add_text(&text);

        let view = ledger.snapshot(&rules.scores, created);
        Record {
            message_id: fresh_id(&self.record.message_id, rng),
            conversation_id: self.record.conversation_id.as_ref().map(|_| format!("h-{}", rng.below(100_000))),
            complete: !rng.percent_chance(4),
            stored: true,
            truncated: view.truncated,
            nonce: rng.text(32, b"0123456789abcdef"),
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

/// True for the domains reserved by RFC 2606.
fn is_reserved(host: &str) -> bool {
    ["example.com", "example.org", "example.net", ".example"].iter().any(|end| host.ends_with(end))
}

/// Turns `news.example.com` into `news.example`; otherwise all sources would share one registrable domain.
fn move_to_own_domain(source: &mut Citation) {
    let (Some(url), Some(host)) = (&source.url, &source.hostname) else { return };
    let Some((name, _)) = host.split_once('.') else { return };
    let own = format!("{name}.example");
    source.url = Some(url.replacen(host.as_str(), &own, 1));
    source.hostname = Some(own);
}

fn reference(ledger: &mut Ledger, source: &Citation, number: u32, created: Timestamp, rng: &mut SeededRng) {
    let copy = MIRROR_HOSTS.get(usize::try_from(rng.below(25)).unwrap_or_default());
    let url = match (source.url.as_deref(), source.hostname.as_deref(), copy) {
        (Some(url), Some(host), Some(copy)) => Some(url.replacen(host, copy, 1)),
        (url, ..) => url.map(str::to_owned),
    };
    let age = i64::try_from(rng.below(700)).unwrap_or_default() * DAY;
    ledger.add_reference(&Reference {
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

/// An id in the provider's format that no answer of the demo can have: those start with another digit, or have no `h`.
fn fresh_id(of: &str, rng: &mut SeededRng) -> String {
    match of.rsplit_once('-') {
        _ if of.bytes().all(|byte| byte.is_ascii_digit()) => format!("2{}", rng.text(16, b"0123456789")),
        Some((prefix, _)) => format!("{prefix}-h{}", rng.text(15, b"0123456789abcdef")),
        None => format!("h{}", rng.text(31, b"0123456789abcdef")),
    }
}

/// A deterministic random number generator (SplitMix64).
#[derive(Clone)]
struct SeededRng(u64);

impl SeededRng {
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

    fn percent_chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn text(&mut self, count: usize, alphabet: &[u8]) -> String {
        let letter = |random: u64| alphabet[usize::try_from(random % alphabet.len() as u64).unwrap_or_default()];
        (0..count).map(|_| char::from(letter(self.next()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::config::default_rules;

    /// History as of a Wednesday evening.
    fn history_of(days: u16) -> Vec<(Timestamp, Record)> {
        history(days, "2026-11-18T20:00:00Z".parse().unwrap(), &default_rules())
    }

    #[test]
    fn history_has_fewer_answers_at_weekends() {
        let all = history_of(14);
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
    fn history_is_deterministic_and_capped() {
        assert_eq!(history_of(3), history_of(3));
        assert!(history_of(0).is_empty());
        let (three, five) = (history_of(3), history_of(5));
        assert!(five.ends_with(&three));
        assert_eq!(history_of(MAX_DAYS), history_of(MAX_DAYS + 1));
        let midnight = history(1, "2026-11-18T00:00:00Z".parse().unwrap(), &default_rules());
        assert!(midnight.is_empty(), "nothing of what is to come");
    }

    #[test]
    fn history_records_are_valid_on_reserved_domains() {
        let all = history_of(MAX_DAYS);
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
