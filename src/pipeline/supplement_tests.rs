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

fn run(supplement: Supplement, inject: Inject, chunks: &[&str], end: End, outcome: &SearchOutcome) -> OfflineOutput {
    let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
    let settings = Settings { supplement, ..settings(inject, 1 << 20) };
    offline::run_with_search(context(), settings, chunks, end, true, outcome)
}

fn origins(output: &OfflineOutput) -> Vec<CitationOrigin> {
    output.record.iter().flat_map(|record| &record.citations).map(|citation| citation.origin).collect()
}

#[test]
fn when_empty_adds_sources_to_a_message_without_any() {
    let output = run(Supplement::WhenEmpty, Inject::Final, &[TEXT, END], End::Clean, &found());
    assert_eq!(shape(&output), format!("{} * {}", TEXT.len(), END.len()));
    assert_eq!(origins(&output), [CitationOrigin::Supplemental]);
    assert_eq!(output.upstream_bytes(), [TEXT, END].concat().as_bytes());
    let event = output.injected()[0].clone();
    let data = Event::read(&event).data.map(|data| data.into_owned()).unwrap();
    assert!(data.contains("\"supplemental\"") && !data.contains("user text"), "{data}");
    assert!(output.stream_stats.injected);
}

#[test]
fn when_empty_does_not_search_if_a_source_exists() {
    let output = run(Supplement::WhenEmpty, Inject::Final, &[CARD, END], End::Clean, &found());
    assert_eq!(origins(&output), [CitationOrigin::Upstream]);
    assert_eq!(output.record.unwrap().stats.supplement, None);
    let output = run(Supplement::Always, Inject::Final, &[CARD, END], End::Clean, &found());
    assert_eq!(origins(&output), [CitationOrigin::Upstream, CitationOrigin::Supplemental]);
    assert_eq!(shape(&output), format!("{} * {}", CARD.len(), END.len()));
}

#[test]
fn clean_end_without_finish_awaits_the_search() {
    let output = run(Supplement::Always, Inject::Final, &[TEXT], End::Clean, &found());
    assert_eq!(shape(&output), format!("{} *", TEXT.len()));
    let record = output.record.unwrap();
    assert_eq!((record.complete, record.citations.len()), (false, 1));
}

#[test]
fn failed_answer_is_not_supplemented() {
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
    // A stream without an answer is not supplemented either.
    let output = run(Supplement::Always, Inject::Final, &[END], End::Clean, &found());
    assert_eq!(shape(&output), END.len().to_string());
}

#[test]
fn output_is_held_until_the_search_replies() {
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
                        assert_eq!(out, TEXT.as_bytes(), "everything before the finish is emitted");
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
fn supplement_without_injection_is_marked_pending() {
    let output = run(Supplement::Always, Inject::Off, &[CARD, END], End::Clean, &found());
    assert_eq!((output.out(), origins(&output)), ([CARD, END].concat().into_bytes(), vec![CitationOrigin::Upstream]));
    assert_eq!(output.record.unwrap().stats.supplement, Some(SupplementStatus::Pending));
    let output = run(Supplement::WhenEmpty, Inject::Off, &[CARD, END], End::Clean, &found());
    assert_eq!(output.record.unwrap().stats.supplement, None);
    let output = run(Supplement::Always, Inject::Off, &[CARD], End::Cut, &found());
    assert_eq!(output.record.unwrap().stats.supplement, None);
}

#[test]
fn abandon_during_the_search_marks_it_pending() {
    let settings = Settings { supplement: Supplement::Always, ..settings(Inject::Final, 1 << 20) };
    let mut pipeline = Pipeline::new(Some(context()), settings.clone());
    pipeline.push(Bytes::from([CARD, END].concat()));
    let abandoned = pipeline.abandon().map(|record| (record.complete, record.stats.supplement));
    assert_eq!(abandoned, Some((true, Some(SupplementStatus::Pending))));
    let mut pipeline = Pipeline::new(Some(context()), settings);
    pipeline.push(Bytes::from_static(CARD.as_bytes()));
    let abandoned = pipeline.abandon().map(|record| (record.complete, record.stats.supplement));
    assert_eq!(abandoned, Some((false, None)), "no search is awaited before the finish");
}

#[test]
fn late_upstream_source_replaces_the_supplemental_one() {
    let late = CARD.replace("a.example", "s.example");
    let output = run(Supplement::WhenEmpty, Inject::Final, &[TEXT, END, &late], End::Clean, &found());
    assert_eq!(output.injected().len(), 1);
    let record = output.record.unwrap();
    let kept: Vec<_> = record.citations.iter().map(|c| (c.number, c.origin, c.title.as_deref())).collect();
    assert_eq!(kept, [(1, CitationOrigin::Upstream, Some("T"))], "the same page is the upstream's source");
    assert!(record.late);
}
