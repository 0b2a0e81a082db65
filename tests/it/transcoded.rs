//! Captures transcoded to other dialects, with golden outputs (`<case>.<profile>.sse`, and `.json` for documents).

use std::{fs, path::Path};

use bytes::Bytes;
use citetap::{
    config::Style,
    pipeline::{End, Inject, Settings, offline, offline::OfflineOutput},
    profile::{Form, OutputFormat, Profile},
    provider::Provider,
};
use serde_json::Value;

use crate::{
    client::{Got, client},
    golden::{captures, differs, end_of},
    support::{bytewise, context, fixtures, settings},
};

pub const PROFILES: [Profile; 3] = [Profile::OpenAi, Profile::AiSdk, Profile::OpenWebUi];

/// One capture of each kind: with and without sources, reasoning, stages, aliases and gaps, errors, cuts, late
/// references.
const GOLDEN: &[&str] = &[
    "anthropic/chinese",
    "anthropic/error-in-stream",
    "anthropic/search-error",
    "doubao/cut",
    "doubao/gateway-error",
    "doubao/hostile",
    "doubao/late-refs",
    "doubao/no-refs",
    "doubao/odd-fields",
    "doubao/query-then-results",
    "doubao/scene-1-then-2",
    "doubao/stream-error",
    "doubao/two-rounds",
    "gemini/blocked-prompt",
    "gemini/chinese",
    "gemini/error-in-stream",
    "gemini/file-search",
    "gemini/google-search",
    "openai-responses/ark",
    "openai-responses/failed",
    "openai-responses/refusal",
    "samantha/error-2005",
    "samantha/thinking-2008",
    "tencent/cut",
    "tencent/docs-only",
    "tencent/full",
    "tencent/no-refs",
    "tencent/search-only",
    "tencent/unknown-stage",
];

pub fn output_format(profile: Profile, form: Form) -> OutputFormat {
    OutputFormat { profile, form, markers: Style::Keep }
}

pub fn transcode(
    kind: Provider,
    output_format: OutputFormat,
    inject: Inject,
    chunks: Vec<Bytes>,
    end: End,
) -> OfflineOutput {
    offline::run(context(kind), Settings { output_format, ..settings(inject) }, chunks, end, true)
}

fn document(kind: Provider, profile: Profile, chunks: Vec<Bytes>) -> OfflineOutput {
    let settings = Settings {
        single_document: true,
        output_format: output_format(profile, profile.document_form()),
        ..settings(Inject::Final)
    };
    offline::run(context(kind), settings, chunks, End::Clean, true)
}

/// Captures whose event is over the limit of a line. The dialects need different room beside the record, so they leave out
/// different details.
fn is_overlong(path: &Path) -> bool {
    path.ends_with("anthropic/pause-turn.sse")
}

fn is_golden(path: &Path) -> bool {
    GOLDEN.iter().any(|case| path.with_extension("").ends_with(case))
}

#[test]
fn golden_dialects() {
    let mut differing = Vec::new();
    let mut seen = 0;
    for (kind, path) in captures().into_iter().filter(|(_, path)| is_golden(path)) {
        seen += 1;
        let input = fs::read(&path).unwrap();
        let mut golden = |output_format: OutputFormat, extension: &str| {
            let passed = transcode(kind, output_format, Inject::Final, vec![Bytes::from(input.clone())], end_of(&path));
            let extension = format!("{}.{extension}", output_format.profile.as_str());
            differing.extend(differs(&path.with_extension(extension), &passed.out()));
        };
        for profile in PROFILES {
            golden(output_format(profile, Form::Stream), "sse");
        }
        // A document that was cut is not an answer.
        if end_of(&path) == End::Clean {
            golden(output_format(Profile::OpenAi, Form::Document), "json");
            golden(output_format(Profile::OpenWebUi, Form::Document), "json");
        }
    }
    assert_eq!(seen, GOLDEN.len());
    for (case, kind) in [
        ("tencent/whole.json", citetap::provider::tencent::PROVIDER),
        ("doubao/json-error.json", citetap::provider::doubao::PROVIDER),
    ] {
        let path = fixtures().join(case);
        let input = Bytes::from(fs::read(&path).unwrap());
        for (profile, extension) in
            [(Profile::OpenAi, "openai.json"), (Profile::OpenWebUi, "open-webui.json"), (Profile::AiSdk, "ai-sdk.sse")]
        {
            let passed = document(kind, profile, vec![input.clone()]);
            differing.extend(differs(&path.with_extension(extension), &passed.out()));
        }
    }
    assert!(differing.is_empty(), "not as golden (UPDATE_GOLDEN=1 rewrites): {differing:#?}");
}

/// Transcoding depends on frames, not on how the upstream's bytes were chunked.
#[test]
fn transcoding_is_the_same_in_one_chunk_and_byte_by_byte() {
    for (kind, path) in captures() {
        let input = fs::read(&path).unwrap();
        let end = end_of(&path);
        for (profile, form, inject) in [
            (Profile::OpenAi, Form::Stream, Inject::Live),
            (Profile::AiSdk, Form::Stream, Inject::Final),
            (Profile::OpenWebUi, Form::Stream, Inject::Final),
            (Profile::OpenAi, Form::Document, Inject::Final),
        ] {
            let output_format = output_format(profile, form);
            let whole = transcode(kind, output_format, inject, vec![Bytes::from(input.clone())], end);
            let single = transcode(Provider::AUTO, output_format, inject, bytewise(&input), end);
            assert_eq!(single.out(), whole.out(), "{profile:?} {}", path.display());
            assert_eq!(single.record, whole.record, "{}", path.display());
        }
    }
}

/// The stored record is that of the upstream's stream, whatever dialect the client gets.
#[test]
fn record_is_the_same_in_every_dialect() {
    for (kind, path) in captures() {
        let input = Bytes::from(fs::read(&path).unwrap());
        let native = transcode(kind, OutputFormat::default(), Inject::Final, vec![input.clone()], end_of(&path));
        for profile in PROFILES {
            let other = transcode(
                kind,
                output_format(profile, Form::Stream),
                Inject::Final,
                vec![input.clone()],
                end_of(&path),
            );
            assert_eq!(other.record, native.record, "{profile:?} {}", path.display());
            assert_eq!(other.stream_stats.injected, native.stream_stats.injected, "{profile:?} {}", path.display());
        }
    }
}

/// Reads every capture with a client of each dialect: text, sources and end are the same.
#[test]
fn clients_of_all_dialects_get_the_same_answer() {
    for (kind, path) in captures() {
        let input = Bytes::from(fs::read(&path).unwrap());
        let got = |profile| -> Got {
            let passed = transcode(
                kind,
                output_format(profile, Form::Stream),
                Inject::Final,
                vec![input.clone()],
                end_of(&path),
            );
            client(profile, &passed.out())
        };
        let openai = got(Profile::OpenAi);
        for profile in PROFILES {
            let other = got(profile);
            assert_eq!(other.text, openai.text, "{profile:?} {}", path.display());
            assert_eq!(other.thinking, openai.thinking, "{profile:?} {}", path.display());
            if !is_overlong(&path) {
                assert_eq!(other.record, openai.record, "{profile:?} {}", path.display());
            }
            assert_eq!(other.error.is_some(), openai.error.is_some(), "{profile:?} {}", path.display());
            assert_eq!((other.finishes, other.done), (openai.finishes, openai.done), "{profile:?} {}", path.display());
        }
        let cut = end_of(&path) == End::Cut;
        assert_eq!(openai.done, !cut, "{}", path.display());
        assert_eq!(openai.finishes + usize::from(openai.error.is_some()), usize::from(!cut), "{}", path.display());
    }
}

#[test]
fn transcoded_document_equals_its_stream() {
    let is_whole = |path: &Path| end_of(path) == End::Clean && !is_overlong(path);
    for (kind, path) in captures().into_iter().filter(|(_, path)| is_whole(path)) {
        let input = Bytes::from(fs::read(&path).unwrap());
        let output = |form| {
            transcode(kind, output_format(Profile::OpenAi, form), Inject::Final, vec![input.clone()], End::Clean).out()
        };
        let stream = client(Profile::OpenAi, &output(Form::Stream));
        let json: Value = serde_json::from_slice(&output(Form::Document)).unwrap();
        if let Some(error) = &stream.error {
            assert_eq!(json["error"]["message"], **error, "{}", path.display());
            assert!(json.get("choices").is_none(), "{}", path.display());
            continue;
        }
        let message = &json["choices"][0]["message"];
        assert_eq!(message["content"], *stream.text, "{}", path.display());
        assert_eq!(message["reasoning_content"].as_str().unwrap_or_default(), stream.thinking, "{}", path.display());
        assert_eq!(message["annotations"].as_array().map_or(0, Vec::len), stream.sources.len(), "{}", path.display());
        assert!(json.get("error").is_none(), "{}", path.display());
        assert_eq!(json["citations"].as_array().map_or(0, Vec::len), stream.sources.len(), "{}", path.display());
    }
}

/// An unreadable stream becomes one error of the dialect, not silence.
#[test]
fn unknown_stream_format_is_an_error() {
    let frames: Vec<Bytes> = (0..100).map(|n| Bytes::from(format!("data: {{\"n\":{n}}}\n\n"))).collect();
    for frames in [frames[..3].to_vec(), frames] {
        for profile in PROFILES {
            let passed = transcode(
                Provider::AUTO,
                output_format(profile, Form::Stream),
                Inject::Final,
                frames.clone(),
                End::Clean,
            );
            let got = client(profile, &passed.out());
            assert!(got.error.is_some_and(|error| error.contains("no format that citetap can read")), "{profile:?}");
            assert_eq!((got.text.as_str(), got.finishes, got.done), ("", 0, true), "{profile:?}");
            assert_eq!(passed.record, None);
        }
        let whole = transcode(
            Provider::AUTO,
            output_format(Profile::OpenAi, Form::Document),
            Inject::Final,
            frames,
            End::Clean,
        )
        .out();
        let json: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(json["error"]["type"], "upstream_error");
    }
}

/// Other responses belong to the upstream's other endpoints on the same route.
#[test]
fn document_without_an_answer_is_relayed_unchanged() {
    for json in
        [r#"{"models":[{"id":"a"}]}"#, r#"{"code":0,"request_id":"r1","data":{"session_id":"s"}}"#, "[1,2]", "{"]
    {
        for profile in [Profile::OpenAi, Profile::OpenWebUi] {
            let out = document(citetap::provider::tencent::PROVIDER, profile, bytewise(json.as_bytes())).out();
            assert_eq!(String::from_utf8(out).unwrap(), json);
        }
        // Where only a stream is allowed, it is an empty stream.
        let got = client(
            Profile::AiSdk,
            &document(citetap::provider::tencent::PROVIDER, Profile::AiSdk, bytewise(json.as_bytes())).out(),
        );
        assert_eq!((got.error.is_some(), got.text.as_str()), (!json.contains("request_id"), ""), "{json}");
    }
}

/// A frame over the cap is not parsed, so the answer must not be reported as complete.
#[test]
fn answer_with_an_oversized_frame_finishes_with_length() {
    let text = |text: &str| crate::net::tencent::text("m", text);
    let (small, end) = (text("一"), crate::net::tencent::finish("m"));
    let big = text(&"二".repeat(1000));
    for (cap, whole) in [(big.len(), true), (big.len() - 1, false)] {
        let input = small.clone() + &big + &small + &end;
        for chunks in [vec![Bytes::from(input.clone())], bytewise(input.as_bytes())] {
            let settings = Settings {
                frame_cap: cap,
                output_format: output_format(Profile::OpenAi, Form::Stream),
                ..settings(Inject::Final)
            };
            let out =
                offline::run(context(citetap::provider::tencent::PROVIDER), settings, chunks, End::Clean, true).out();
            let got = client(Profile::OpenAi, &out);
            assert_eq!(got.text.chars().count(), if whole { 1002 } else { 2 });
            assert_eq!(got.reason.as_deref(), Some(if whole { "stop" } else { "length" }));
        }
    }
}

/// A document over the cap is relayed without being parsed.
#[test]
fn document_over_the_cap_is_relayed_unchanged() {
    let json = fs::read(fixtures().join("tencent/whole.json")).unwrap();
    for (cap, transcoded) in [(json.len(), true), (json.len() - 1, false)] {
        for chunks in [vec![Bytes::from(json.clone())], bytewise(&json)] {
            let output_format = output_format(Profile::OpenAi, Form::Document);
            let settings = Settings { single_document: true, frame_cap: cap, output_format, ..settings(Inject::Final) };
            let passed =
                offline::run(context(citetap::provider::tencent::PROVIDER), settings, chunks, End::Clean, true);
            assert_eq!(passed.out() != json, transcoded);
            assert_eq!(passed.record.is_some(), transcoded);
        }
    }
}

/// Live events carry the growing record. Sources that clients accumulate are sent once.
#[test]
fn live_events_carry_the_record_without_new_sources() {
    let input = crate::net::tencent::references("m", &[1])
        + &crate::net::tencent::text("m", "一")
        + &crate::net::tencent::references("m", &[1, 2])
        + &crate::net::tencent::finish("m");
    for profile in PROFILES {
        let chunks = bytewise(input.as_bytes());
        let passed = transcode(
            citetap::provider::tencent::PROVIDER,
            output_format(profile, Form::Stream),
            Inject::Live,
            chunks,
            End::Clean,
        );
        let got = client(profile, &passed.out());
        let lists: Vec<_> = got.records.iter().map(|record| (record.citations.len(), record.complete)).collect();
        assert_eq!(lists, [(1, false), (2, false), (2, true)], "{profile:?}");
        assert_eq!(got.sources.len(), 2, "{profile:?}");
        let passed = transcode(
            citetap::provider::tencent::PROVIDER,
            output_format(profile, Form::Stream),
            Inject::Off,
            vec![Bytes::from(input.clone())],
            End::Clean,
        );
        let got = client(profile, &passed.out());
        assert_eq!((got.records.len(), got.sources.len(), got.finishes), (0, 0, 1), "{profile:?}");
        assert_eq!(passed.record.map(|record| record.citations.len()), Some(2), "not stored");
    }
}

/// The finish frame repeats the full answer. It is sent only if no delta came before.
#[test]
fn answer_only_in_the_finish_frame_is_transcoded() {
    let finish =
        "event:finish\ndata:{\"completion_id\":\"m\",\"delta_content\":\"\",\"content\":\"全文\",\"is_stop\":true}\n\n";
    for (pieces, text) in [("", "全文"), ("全", "全")] {
        let before = if pieces.is_empty() { String::new() } else { crate::net::tencent::text("m", pieces) };
        for profile in PROFILES {
            let chunks = vec![Bytes::from(before.clone() + finish)];
            let passed = transcode(
                citetap::provider::tencent::PROVIDER,
                output_format(profile, Form::Stream),
                Inject::Final,
                chunks,
                End::Clean,
            );
            let got = client(profile, &passed.out());
            assert_eq!((got.text.as_str(), got.finishes), (text, 1), "{profile:?}");
        }
    }
}

/// A stream that is cut after its end is complete, including footnotes.
#[test]
fn answer_ends_once_if_the_stream_is_cut_after_its_end() {
    let input = crate::net::tencent::references("m", &[1])
        + &crate::net::tencent::text("m", "一[1]")
        + &crate::net::tencent::finish("m");
    for profile in PROFILES {
        let output_format = OutputFormat { markers: Style::Footnote, ..output_format(profile, Form::Stream) };
        let out = |end| {
            transcode(
                citetap::provider::tencent::PROVIDER,
                output_format,
                Inject::Final,
                vec![Bytes::from(input.clone())],
                end,
            )
            .out()
        };
        let got = client(profile, &out(End::Cut));
        assert_eq!((got.finishes, got.text.matches("[^1]: ").count()), (1, 1), "{profile:?}");
        assert_eq!([out(End::Cut), b"data: [DONE]\n\n".to_vec()].concat(), out(End::Clean), "{profile:?}");
    }
}

/// The upstream's error text is truncated at its cap.
#[test]
fn upstream_error_text_is_truncated_at_its_cap() {
    for (len, kept_len) in [(1000, 1000), (1001, 1000)] {
        let frame =
            format!("event: STREAM_ERROR\ndata: {{\"error_code\":7,\"error_msg\":\"{}\"}}\n\n", "错".repeat(len));
        let chunks = vec![Bytes::from(frame)];
        let passed = transcode(
            citetap::provider::doubao::PROVIDER,
            output_format(Profile::OpenAi, Form::Stream),
            Inject::Final,
            chunks,
            End::Clean,
        );
        let error = client(Profile::OpenAi, &passed.out()).error.unwrap();
        assert_eq!(error.chars().count(), kept_len);
    }
}
