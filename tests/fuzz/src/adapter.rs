//! Targets of one provider: a stream becomes the same record and answer in every dialect and chunking.

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
    stream::{FRAME_CAP, NONCE, UpstreamAnswer, context, one, pieces, settings},
};

const PROFILES: &[Profile] = &[Profile::OpenAi, Profile::AiSdk, Profile::OpenWebUi];
const FORMS: &[Form] = &[Form::Stream, Form::Stream, Form::Document];
const STYLES: &[Style] = &[Style::Keep, Style::Keep, Style::Link, Style::Sup, Style::Footnote, Style::Strip];
const INJECTS: &[Inject] = &[Inject::Final, Inject::Live, Inject::Off];
const ENDS: &[End] = &[End::Clean, End::Clean, End::Cut];

fn pass(kind: Provider, settings: Settings, chunks: impl IntoIterator<Item = Bytes>, end: End) -> OfflineOutput {
    let budget = Arc::clone(&settings.budget);
    let passed = offline::run(context(kind), settings, chunks, end, true);
    assert_eq!(budget.used(), 0, "the budget is released");
    assert!(!passed.stream_stats.panicked, "the tap panicked");
    passed
}

/// Checks a stream of one provider: native output, one transcoded output, and another chunking of it.
pub fn run(kind: Provider, data: &[u8]) {
    let Some((head, stream)) = split(data) else { return };
    let [a, b, _, seed] = head;
    let (profile, form) = (choose(PROFILES, a), choose(FORMS, a >> 2));
    let (inject, end) = (choose(INJECTS, a >> 4), choose(ENDS, a >> 6));
    let markers = choose(STYLES, b);
    let answer = UpstreamAnswer::read(kind, stream, end == End::Clean, FRAME_CAP);
    let budget = Budget::new(256 << 20);

    let native = pass(kind, settings(inject, OutputFormat::default(), &budget), one(stream), end);
    assert_eq!(native.upstream_bytes(), stream);
    if let Some(record) = &native.record {
        record::check(record);
        record::check_answer(record, &answer);
    }

    let output_format = OutputFormat { profile, form, markers };
    let output = pass(kind, settings(inject, output_format, &budget), one(stream), end);
    let rechunked = pass(kind, settings(inject, output_format, &budget), chunks(stream, seed), end);
    assert_eq!(String::from_utf8_lossy(&rechunked.out()), String::from_utf8_lossy(&output.out()), "another chunking");
    assert_eq!(rechunked.record, output.record);
    if let Some(record) = &output.record {
        record::check(record);
    }
    if form == Form::Stream || profile == Profile::AiSdk {
        check_stream(profile, markers, inject, end, &output, &answer);
    } else {
        check_document(end, markers, &output.out(), &answer);
    }
}

fn check_stream(
    profile: Profile,
    markers: Style,
    inject: Inject,
    end: End,
    output: &OfflineOutput,
    answer: &UpstreamAnswer,
) {
    // The client asserts MAX_LINE for every line, but only our event is bounded: a text is as long as the upstream's.
    let long = |frame: &&[u8]| frame.len() >= MAX_LINE && !frame.windows(9).any(|part| part == b"messageId");
    let out = output.out();
    if pieces(&out).iter().any(long) {
        return;
    }
    let got = client(profile, &out);
    if markers == Style::Keep {
        assert_eq!(got.text, answer.text);
    }
    assert_eq!(got.thinking, answer.thinking);
    assert!(got.records.iter().all(|record| record.nonce == NONCE));
    // Exactly one end, or none after a cut in the middle of the answer.
    let ends = got.finishes + usize::from(got.error.is_some());
    assert_eq!(ends, usize::from(answer.ended || end == End::Clean));
    assert_eq!(got.done, end == End::Clean);
    let finals = got.records.iter().filter(|record| record.stored).count();
    assert_eq!(finals, usize::from(output.stream_stats.injected));
    assert!(got.records.iter().rev().skip(1).all(|record| !record.stored));
    assert!(inject != Inject::Off || (got.records.is_empty() && got.sources.is_empty()));
    if let Some(record) = got.record.as_ref().filter(|record| record.stored) {
        annotations_fit(&got, record);
    }
}

/// Annotations lie within the text, and links are http or https.
fn annotations_fit(got: &Got, record: &Record) {
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

fn check_document(end: End, markers: Style, out: &[u8], answer: &UpstreamAnswer) {
    if end == End::Cut {
        return assert!(out.is_empty(), "a cut answer gives no document");
    }
    let json: Value = serde_json::from_slice(out).unwrap();
    match json.get("error") {
        Some(error) => assert!(error["message"].is_string()),
        None if markers != Style::Keep => assert!(json["choices"][0]["message"]["content"].is_string()),
        None => assert_eq!(json["choices"][0]["message"]["content"].as_str(), Some(&*answer.text)),
    }
}

const NORMALIZE_PROVIDERS: &[Provider] = &[
    citetap::provider::tavily::PROVIDER,
    citetap::provider::mcp::PROVIDER,
    Provider::AUTO,
    citetap::provider::openai::PROVIDER,
    citetap::provider::tencent::PROVIDER,
    citetap::provider::doubao::PROVIDER,
    citetap::provider::anthropic::PROVIDER,
    citetap::provider::gemini::PROVIDER,
    citetap::provider::openai_responses::PROVIDER,
];

/// Target `handed`: a body posted to `/normalize` (JSON, a capture or anything else), and the same body as a whole upstream
/// response.
pub fn handed(data: &[u8]) {
    let Some((head, body)) = split(data) else { return };
    let [a, b, _, seed] = head;
    let kind = choose(NORMALIZE_PROVIDERS, a);
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
            if let Some(record) = &passed.record {
                record::check(record);
                assert!(!record.stored);
            }
        }
    }
    // The same body as a whole response of the upstream.
    let (profile, inject) =
        (choose(&[Profile::Native, Profile::OpenAi, Profile::AiSdk, Profile::OpenWebUi], b), choose(INJECTS, b >> 2));
    let form = if profile == Profile::Native { choose(FORMS, b >> 4) } else { profile.document_form() };
    let output_format = OutputFormat { profile, form, markers: choose(STYLES, a >> 4) };
    let budget = Budget::new(256 << 20);
    let settings = || Settings { single_document: true, ..settings(inject, output_format, &budget) };
    let output = pass(kind, settings(), one(body), End::Clean);
    let rechunked = pass(kind, settings(), chunks(body, seed), End::Clean);
    assert_eq!(String::from_utf8_lossy(&rechunked.out()), String::from_utf8_lossy(&output.out()), "another chunking");
    assert_eq!(rechunked.record, output.record);
    if let Some(record) = &output.record {
        record::check(record);
    }
    match profile {
        Profile::Native if form == Form::Stream && output_format.markers == Style::Keep => {
            assert_eq!(output.out(), body);
        }
        Profile::AiSdk => assert!(client(profile, &output.out()).done),
        // An answer stays JSON. Any other body passes unchanged.
        _ if output.out() != body => drop(serde_json::from_slice::<Value>(&output.out()).expect("JSON")),
        _ => {}
    }
    // A cut document leaves no complete record.
    let cut = pass(kind, settings(), one(body), End::Cut);
    assert!(cut.record.is_none() || cut.record.is_some_and(|record| !record.complete));
}
