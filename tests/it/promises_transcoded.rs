//! The promises in transcoded dialects, as properties over random streams, chunkings and providers.

use bytes::Bytes;
use citetap::{
    citation::{Record, record::CitationStatus},
    pipeline::{End, Inject},
    profile::{Form, Profile},
    provider::{Provider, Signal, Sink},
    sse::Event,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::{
    client::{Got, client},
    promises::{cut, end, frames, inject, kind, stream},
    support::{NONCE, bytewise},
    transcoded::{PROFILES, output_format, transcode},
};

/// The upstream's answer up to its end, read by its adapter alone.
#[derive(Default)]
struct UpstreamAnswer {
    text: String,
    /// The full answer, sent at the end.
    answer: String,
    thinking: String,
    ended: bool,
}

impl Sink for UpstreamAnswer {
    fn signal(&mut self, signal: Signal<'_>) {
        match signal {
            Signal::Text(text, _) => self.text.push_str(text),
            Signal::FullText(text, _) => self.answer = text.to_owned(),
            Signal::Thinking(text) => self.thinking.push_str(text),
            Signal::Finish(_) | Signal::Fault { .. } => self.ended = true,
            _ => {}
        }
    }
}

fn upstream_answer(kind: Provider, stream: &[u8], end: End) -> UpstreamAnswer {
    let mut adapter = kind.adapter();
    let mut answer = UpstreamAnswer::default();
    let whole = frames(stream);
    let tail =
        whole.last().map_or(stream, |last| &stream[last.as_ptr() as usize - stream.as_ptr() as usize + last.len()..]);
    let tail = (end == End::Clean).then_some(tail);
    for frame in whole.into_iter().chain(tail) {
        let event = Event::read(frame);
        if event.data.is_some() && !answer.ended && !adapter.gave_up() {
            let _ = adapter.frame(&event, &mut answer);
        }
    }
    if answer.text.is_empty() {
        answer.text = std::mem::take(&mut answer.answer);
    }
    answer
}

/// Numbers by which the text may cite a source.
fn numbers(record: &Record) -> impl Iterator<Item = (u32, &citetap::citation::Citation)> {
    let kept = record.citations.iter().filter(|citation| citation.status == CitationStatus::Ok);
    kept.flat_map(|citation| citation.aliases.iter().copied().chain([citation.number]).map(move |n| (n, citation)))
}

/// Annotations cover the marker in the text, counted in code points, or are 0, 0.
fn annotations_fit(got: &Got, record: &Record) -> Result<(), TestCaseError> {
    let text: Vec<char> = got.text.chars().collect();
    for (url, start, end) in &got.annotations {
        prop_assert!(start <= end && *end <= text.len(), "{start}..{end} of {}", text.len());
        if (*start, *end) == (0, 0) {
            continue;
        }
        let marker: String = text[*start..*end].iter().collect();
        // An annotation of the upstream itself need not cover a marker.
        let of_url = |citation: &&citetap::citation::Citation| citation.url.as_deref() == Some(url);
        if record.citations.iter().filter(of_url).any(|citation| citation.metadata.contains_key("startIndex")) {
            continue;
        }
        let named = numbers(record)
            .any(|(number, citation)| citation.url.as_deref() == Some(url) && marker.contains(&number.to_string()));
        prop_assert!(named, "{marker:?} does not name {url}");
        prop_assert!(!marker.contains(char::is_whitespace), "{marker:?}");
    }
    Ok(())
}

/// `[N]` in Open WebUI is the Nth source of its list. It must open the source with that number in the record.
fn open_webui_markers_open_their_sources(got: &Got, record: &Record) -> Result<(), TestCaseError> {
    let names: std::collections::HashSet<_> = got.sources.iter().map(|(name, _)| name).collect();
    prop_assert_eq!(names.len(), got.sources.len(), "the page drops a repeated name");
    let at = |number: u32| got.sources.get(usize::try_from(number).ok()?.checked_sub(1)?);
    for (number, citation) in numbers(record).filter(|(number, citation)| citation.cited && *number > 0) {
        let found = at(number);
        prop_assert!(found.is_some(), "no {}th of {:?}", number, got.sources);
        prop_assert_eq!(found.and_then(|(_, url)| url.as_deref()), citation.url.as_deref(), "{:?}", number);
    }
    for number in &record.stats.dangling_markers {
        let found = at(*number);
        prop_assert!(found.is_none_or(|(name, url)| *name == format!("[{number}]") && url.is_none()), "{found:?}");
    }
    for citation in record.citations.iter().filter(|citation| citation.status == CitationStatus::Ok) {
        let listed = got.sources.iter().any(|(_, url)| *url == citation.url);
        prop_assert!(listed, "{citation:?} is in no place");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_dialect_has_the_answer_and_its_sources_once(
        stream in stream(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        kind in kind(),
        inject in inject(),
        end in end(),
    ) {
        let answer = upstream_answer(kind, &stream, end);
        for profile in PROFILES {
            let passed = transcode(kind, output_format(profile, Form::Stream), inject, cut(&stream, &places), end);
            let got = client(profile, &passed.out());
            prop_assert_eq!(&got.text, &answer.text, "{:?}", profile);
            prop_assert_eq!(&got.thinking, &answer.thinking, "{:?}", profile);
            prop_assert!(got.records.iter().all(|record| record.nonce == NONCE));

            // Exactly one end, or none after a cut in the middle of the answer.
            let ends = got.finishes + usize::from(got.error.is_some());
            prop_assert_eq!(ends, usize::from(answer.ended || end == End::Clean), "{:?}", profile);
            prop_assert_eq!(got.done, end == End::Clean);

            // One final record before the end. Earlier ones are not stored.
            let finals = got.records.iter().filter(|record| record.stored).count();
            prop_assert_eq!(finals == 1, passed.stream_stats.injected, "{:?}", profile);
            prop_assert!(finals <= 1 && got.records.iter().rev().skip(1).all(|record| !record.stored));
            if inject == Inject::Off {
                prop_assert!(got.records.is_empty() && got.sources.is_empty());
            }
            if let Some(record) = got.record.as_ref().filter(|record| record.stored) {
                annotations_fit(&got, record)?;
                if profile == Profile::OpenWebUi {
                    open_webui_markers_open_their_sources(&got, record)?;
                }
            }
        }
    }

    #[test]
    fn transcoded_stream_is_the_same_in_every_chunking(
        stream in stream(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        kind in kind(),
        inject in inject(),
        end in end(),
    ) {
        for (profile, form) in
            [(Profile::OpenAi, Form::Stream), (Profile::AiSdk, Form::Stream), (Profile::OpenWebUi, Form::Stream), (Profile::OpenWebUi, Form::Document)]
        {
            let whole = transcode(kind, output_format(profile, form), inject, vec![Bytes::from(stream.clone())], end);
            for chunks in [cut(&stream, &places), bytewise(&stream)] {
                let other = transcode(kind, output_format(profile, form), inject, chunks, end);
                prop_assert_eq!(other.out(), whole.out(), "{:?} {:?}", profile, form);
                prop_assert_eq!(&other.record, &whole.record);
            }
        }
    }

    #[test]
    fn document_has_the_text_of_its_stream(stream in stream(), kind in kind(), inject in inject(), end in end()) {
        let answer = upstream_answer(kind, &stream, end);
        let out = transcode(kind, output_format(Profile::OpenAi, Form::Document), inject, vec![Bytes::from(stream)], end).out();
        if end == End::Cut {
            prop_assert!(out.is_empty(), "no document at all");
        } else {
            let json: Value = serde_json::from_slice(&out).unwrap();
            match json.get("error") {
                Some(error) => prop_assert!(error["message"].is_string()),
                None => prop_assert_eq!(json["choices"][0]["message"]["content"].as_str(), Some(&*answer.text)),
            }
        }
    }
}
