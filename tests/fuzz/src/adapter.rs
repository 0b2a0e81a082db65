//! What a provider's frames become: signals, ledger, record, and the same answer in the other dialects.

use std::sync::Arc;

use bytes::Bytes;
use citetap::{
    citation::record::{CitationStatus, Record},
    config::default_rules,
    marker::Style,
    pipeline::{Budget, End, Inject, Settings, offline, offline::OfflineOutput},
    profile::{Form, OutputFormat, Profile, native::MAX_LINE},
    provider::Provider,
    replay::{self, CaptureReader},
};
use serde_json::Value;

use crate::{
    client::{Got, client},
    input::{choose, chunks, split},
    record,
    stream::{FRAME_CAP, NONCE, Said, context, one, pieces, settings},
};

const PROFILES: &[Profile] = &[Profile::OpenAi, Profile::AiSdk, Profile::OpenWebUi];
const FORMS: &[Form] = &[Form::Stream, Form::Stream, Form::Document];
const STYLES: &[Style] = &[Style::Keep, Style::Keep, Style::Link, Style::Sup, Style::Footnote, Style::Strip];
const INJECTS: &[Inject] = &[Inject::Final, Inject::Live, Inject::Off];
const ENDS: &[End] = &[End::Clean, End::Clean, End::Cut];

fn pass(kind: Provider, settings: Settings, chunks: impl IntoIterator<Item = Bytes>, end: End) -> OfflineOutput {
    let budget = Arc::clone(&settings.budget);
    let passed = offline::run(context(kind), settings, chunks, end, true);
    assert_eq!(budget.used(), 0, "what was held is given back");
    assert!(!passed.stream_stats.panicked, "the tap panicked");
    passed
}

/// A stream of one provider.
pub fn run(kind: Provider, data: &[u8]) {
    let Some((head, stream)) = split(data) else { return };
    let [a, b, _, seed] = head;
    let (profile, form) = (choose(PROFILES, a), choose(FORMS, a >> 2));
    let (inject, end) = (choose(INJECTS, a >> 4), choose(ENDS, a >> 6));
    let markers = choose(STYLES, b);
    let said = Said::read(kind, stream, end == End::Clean, FRAME_CAP);
    let budget = Budget::new(256 << 20);

    let native = pass(kind, settings(inject, OutputFormat::default(), &budget), one(stream), end);
    assert_eq!(native.upstream_bytes(), stream);
    if let Some(kept) = &native.record {
        record::check(kept);
        record::check_said(kept, &said);
    }

    let output_format = OutputFormat { profile, form, markers };
    let told = pass(kind, settings(inject, output_format, &budget), one(stream), end);
    let again = pass(kind, settings(inject, output_format, &budget), chunks(stream, seed), end);
    assert_eq!(String::from_utf8_lossy(&again.out()), String::from_utf8_lossy(&told.out()), "cut otherwise");
    assert_eq!(again.record, told.record);
    if let Some(kept) = &told.record {
        record::check(kept);
    }
    if form == Form::Stream || profile == Profile::AiSdk {
        streamed(profile, markers, inject, end, &told, &said);
    } else {
        document(end, markers, &told.out(), &said);
    }
}

fn streamed(profile: Profile, markers: Style, inject: Inject, end: End, told: &OfflineOutput, said: &Said) {
    // Our own lines are bounded, and the client says so of every line; a text is as long as the upstream's.
    let long = |frame: &&[u8]| frame.len() >= MAX_LINE && !frame.windows(9).any(|part| part == b"messageId");
    let out = told.out();
    if pieces(&out).iter().any(long) {
        return;
    }
    let got = client(profile, &out);
    if markers == Style::Keep {
        assert_eq!(got.text, said.text);
    }
    assert_eq!(got.thinking, said.thinking);
    assert!(got.records.iter().all(|record| record.nonce == NONCE));
    // One end, where there is one; after a cut in mid-answer there is none.
    let ends = got.finishes + usize::from(got.error.is_some());
    assert_eq!(ends, usize::from(said.ended || end == End::Clean));
    assert_eq!(got.done, end == End::Clean);
    let finals = got.records.iter().filter(|record| record.stored).count();
    assert_eq!(finals, usize::from(told.stream_stats.injected));
    assert!(got.records.iter().rev().skip(1).all(|record| !record.stored));
    assert!(inject != Inject::Off || (got.records.is_empty() && got.sources.is_empty()));
    if let Some(record) = got.record.as_ref().filter(|record| record.stored) {
        places_fit(&got, record);
    }
}

/// Annotations are in the text; links are http or https.
fn places_fit(got: &Got, record: &Record) {
    let length = got.text.chars().count();
    for (url, start, end) in &got.annotations {
        assert!(start <= end && *end <= length, "{start}..{end} of {length}");
        assert!(record.citations.iter().any(|citation| citation.url.as_ref() == Some(url)));
    }
    for url in got.sources.iter().filter_map(|(_, url)| url.as_deref()) {
        let url = url::Url::parse(url).unwrap();
        assert!(matches!(url.scheme(), "http" | "https"), "{url}");
    }
    assert!(record.citations.iter().all(|citation| citation.status == CitationStatus::Ok));
}

fn document(end: End, markers: Style, out: &[u8], said: &Said) {
    if end == End::Cut {
        return assert!(out.is_empty(), "no document at all");
    }
    let json: Value = serde_json::from_slice(out).unwrap();
    match json.get("error") {
        Some(error) => assert!(error["message"].is_string()),
        None if markers != Style::Keep => assert!(json["choices"][0]["message"]["content"].is_string()),
        None => assert_eq!(json["choices"][0]["message"]["content"].as_str(), Some(&*said.text)),
    }
}

const HANDED: &[Provider] = &[
    citetap::provider::tavily::PROVIDER,
    citetap::provider::mcp::PROVIDER,
    Provider::AUTO,
    citetap::provider::openai::PROVIDER,
    citetap::provider::tencent::PROVIDER,
    citetap::provider::doubao::PROVIDER,
];

/// What somebody hands in: a JSON body, a capture, or anything else.
pub fn handed(data: &[u8]) {
    let Some((head, body)) = split(data) else { return };
    let [a, b, _, seed] = head;
    let kind = choose(HANDED, a);
    if let Ok(captured) = replay::read(body) {
        let reading = CaptureReader {
            route: "normalize",
            provider: kind,
            link_base: None,
            inject: Inject::Off,
            output_format: OutputFormat::default(),
            frame_cap: body.len(),
            rules: default_rules(),
        };
        for passed in reading.read(captured).unwrap_or_default() {
            assert!(!passed.stream_stats.panicked, "the tap panicked");
            if let Some(kept) = &passed.record {
                record::check(kept);
                assert!(!kept.stored);
            }
        }
    }
    // The same body as an upstream's whole answer.
    let (profile, inject) =
        (choose(&[Profile::Native, Profile::OpenAi, Profile::AiSdk, Profile::OpenWebUi], b), choose(INJECTS, b >> 2));
    let form = if profile == Profile::Native { choose(FORMS, b >> 4) } else { profile.document_form() };
    let output_format = OutputFormat { profile, form, markers: choose(STYLES, a >> 4) };
    let budget = Budget::new(256 << 20);
    let settings = || Settings { single_document: true, ..settings(inject, output_format, &budget) };
    let told = pass(kind, settings(), one(body), End::Clean);
    let again = pass(kind, settings(), chunks(body, seed), End::Clean);
    assert_eq!(String::from_utf8_lossy(&again.out()), String::from_utf8_lossy(&told.out()), "cut otherwise");
    assert_eq!(again.record, told.record);
    if let Some(kept) = &told.record {
        record::check(kept);
    }
    match profile {
        Profile::Native if form == Form::Stream && output_format.markers == Style::Keep => assert_eq!(told.out(), body),
        Profile::AiSdk => assert!(client(profile, &told.out()).done),
        // An answer stays JSON; what is none passes as it is.
        _ if told.out() != body => drop(serde_json::from_slice::<Value>(&told.out()).expect("JSON")),
        _ => {}
    }
    // A document that was cut is none.
    let cut = pass(kind, settings(), one(body), End::Cut);
    assert!(cut.record.is_none() || cut.record.is_some_and(|record| !record.complete));
}
