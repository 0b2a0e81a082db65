use std::sync::Arc;

use super::{
    super::{
        offline::{self, OfflineOutput},
        tests::{CARD, END, context, settings, shape},
        *,
    },
    Supplement,
};
use crate::{
    citation::{
        record::{CitationOrigin, SupplementStatus},
        supplement::SearchOutcome,
    },
    sse::Event,
};

const TEXT: &str = "event: CHUNK_DELTA\ndata: {\"text\":\"没有\"}\n\n";
const ERROR: &str = "event: STREAM_ERROR\ndata: {\"error_code\":1}\n\n";

fn found() -> SearchOutcome {
    let json =
        r#"{"query":"user text","results":[{"title":"S","url":"https://s.example.com/","content":"c","score":0.9}]}"#;
    let context = Context { provider: crate::provider::tavily::PROVIDER, ..context() };
    SearchOutcome::Found(Arc::new(*offline::document_record(context, Bytes::from_static(json.as_bytes())).unwrap()))
}

fn pass(supplement: Supplement, inject: Inject, chunks: &[&str], end: End, supply: &SearchOutcome) -> OfflineOutput {
    let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
    let settings = Settings { supplement, ..settings(inject, 1 << 20) };
    offline::run_with_search(context(), settings, chunks, end, true, supply)
}

fn origins(passed: &OfflineOutput) -> Vec<CitationOrigin> {
    passed.record.iter().flat_map(|record| &record.citations).map(|citation| citation.origin).collect()
}

#[test]
fn when_empty_gives_an_event_to_a_message_that_had_none() {
    let passed = pass(Supplement::WhenEmpty, Inject::Final, &[TEXT, END], End::Clean, &found());
    assert_eq!(shape(&passed), format!("{} * {}", TEXT.len(), END.len()));
    assert_eq!(origins(&passed), [CitationOrigin::Supplemental]);
    assert_eq!(passed.upstream_bytes(), [TEXT, END].concat().as_bytes());
    let event = passed.injected()[0].clone();
    let data = Event::read(&event).data.map(|data| data.into_owned()).unwrap();
    assert!(data.contains("\"supplemental\"") && !data.contains("user text"), "{data}");
    assert!(passed.stream_stats.injected);
}

#[test]
fn when_empty_asks_for_nothing_where_there_is_a_source() {
    let passed = pass(Supplement::WhenEmpty, Inject::Final, &[CARD, END], End::Clean, &found());
    assert_eq!(origins(&passed), [CitationOrigin::Upstream]);
    assert_eq!(passed.record.unwrap().stats.supplement, None);
    let passed = pass(Supplement::Always, Inject::Final, &[CARD, END], End::Clean, &found());
    assert_eq!(origins(&passed), [CitationOrigin::Upstream, CitationOrigin::Supplemental]);
    assert_eq!(shape(&passed), format!("{} * {}", CARD.len(), END.len()));
}

#[test]
fn without_a_finish_the_clean_end_asks() {
    let passed = pass(Supplement::Always, Inject::Final, &[TEXT], End::Clean, &found());
    assert_eq!(shape(&passed), format!("{} *", TEXT.len()));
    let record = passed.record.unwrap();
    assert_eq!((record.complete, record.citations.len()), (false, 1));
}

#[test]
fn an_answer_that_failed_is_not_supplemented() {
    for (chunks, end) in [(&[CARD, ERROR][..], End::Clean), (&[CARD], End::Cut), (&[CARD], End::Shutdown)] {
        let mut pipeline = Pipeline::new(
            Some(context()),
            Settings { supplement: Supplement::Always, ..settings(Inject::Final, 1 << 20) },
        );
        for chunk in chunks {
            pipeline.push(Bytes::copy_from_slice(chunk.as_bytes()));
        }
        pipeline.finish(end);
        let mut committed = None;
        while let Some(out) = pipeline.take() {
            assert_ne!(out, Output::AwaitSearch, "{end:?}");
            if let Output::Commit(record) = out {
                committed = record.stats.supplement;
                pipeline.committed(true);
            }
        }
        assert_eq!(committed, None);
    }
    // Nor is a stream that never said anything.
    let passed = pass(Supplement::Always, Inject::Final, &[END], End::Clean, &found());
    assert_eq!(shape(&passed), END.len().to_string());
}

#[test]
fn nothing_comes_out_until_the_answer_is_there() {
    for size in [1, 7, 1 << 20] {
        let settings = Settings { supplement: Supplement::WhenEmpty, ..settings(Inject::Final, 1 << 20) };
        let mut pipeline = Pipeline::new(Some(context()), settings);
        let stream = [TEXT, END, END].concat();
        let mut out = Vec::new();
        for chunk in stream.as_bytes().chunks(size) {
            pipeline.push(Bytes::copy_from_slice(chunk));
            while let Some(next) = pipeline.take() {
                match next {
                    Output::Bytes(bytes) => out.extend_from_slice(&bytes),
                    Output::AwaitSearch => {
                        assert_eq!(out, TEXT.as_bytes(), "all that precedes the finish is out");
                        assert_eq!((pipeline.take(), pipeline.heartbeat()), (None, None));
                        pipeline.supplemented(SearchOutcome::Pending);
                    }
                    Output::Store(record) => assert_eq!(record.stats.supplement, Some(SupplementStatus::Pending)),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(out, stream.as_bytes(), "{size}");
        pipeline.supplemented(found());
        assert_eq!(pipeline.take(), None, "too late for an event");
    }
}

#[test]
fn without_an_event_the_record_says_that_it_is_on_its_way() {
    let passed = pass(Supplement::Always, Inject::Off, &[CARD, END], End::Clean, &found());
    assert_eq!((passed.out(), origins(&passed)), ([CARD, END].concat().into_bytes(), vec![CitationOrigin::Upstream]));
    assert_eq!(passed.record.unwrap().stats.supplement, Some(SupplementStatus::Pending));
    let passed = pass(Supplement::WhenEmpty, Inject::Off, &[CARD, END], End::Clean, &found());
    assert_eq!(passed.record.unwrap().stats.supplement, None);
    let passed = pass(Supplement::Always, Inject::Off, &[CARD], End::Cut, &found());
    assert_eq!(passed.record.unwrap().stats.supplement, None);
}

#[test]
fn who_leaves_while_it_is_awaited_leaves_a_record_that_says_so() {
    let settings = Settings { supplement: Supplement::Always, ..settings(Inject::Final, 1 << 20) };
    let mut pipeline = Pipeline::new(Some(context()), settings.clone());
    pipeline.push(Bytes::from([CARD, END].concat()));
    let left = pipeline.abandon().map(|record| (record.complete, record.stats.supplement));
    assert_eq!(left, Some((true, Some(SupplementStatus::Pending))));
    let mut pipeline = Pipeline::new(Some(context()), settings);
    pipeline.push(Bytes::from_static(CARD.as_bytes()));
    let left = pipeline.abandon().map(|record| (record.complete, record.stats.supplement));
    assert_eq!(left, Some((false, None)), "before the finish there is nothing to wait for");
}

#[test]
fn what_the_upstream_names_after_the_finish_keeps_its_number() {
    let late = CARD.replace("a.example", "s.example");
    let passed = pass(Supplement::WhenEmpty, Inject::Final, &[TEXT, END, &late], End::Clean, &found());
    assert_eq!(passed.injected().len(), 1);
    let record = passed.record.unwrap();
    let kept: Vec<_> = record.citations.iter().map(|c| (c.number, c.origin, c.title.as_deref())).collect();
    assert_eq!(kept, [(1, CitationOrigin::Upstream, Some("T"))], "the same page is the upstream's then");
    assert!(record.late);
}
