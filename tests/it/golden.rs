//! Compares every capture's record and output stream with the golden files. `UPDATE_GOLDEN=1` rewrites them.

use std::{fs, path::PathBuf};

use bytes::Bytes;
use citetap::{
    pipeline::{End, Inject, Settings, offline},
    provider::{Provider, REGISTRY},
};

use crate::support::{bytewise, context, fixtures, pass, settings};

pub fn captures() -> Vec<(Provider, PathBuf)> {
    let mut all = Vec::new();
    let folders = [
        ("doubao", citetap::provider::doubao::PROVIDER),
        ("samantha", citetap::provider::doubao::PROVIDER),
        ("tencent", citetap::provider::tencent::PROVIDER),
        ("openai", citetap::provider::openai::PROVIDER),
        ("openai-responses", citetap::provider::openai_responses::PROVIDER),
        ("anthropic", citetap::provider::anthropic::PROVIDER),
        ("gemini", citetap::provider::gemini::PROVIDER),
    ];
    for (folder, kind) in folders {
        for entry in fs::read_dir(fixtures().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            // Golden files have two-part extensions.
            let name = path.file_name().unwrap().to_string_lossy();
            if name.strip_suffix(".sse").is_some_and(|case| !case.contains('.')) {
                all.push((kind, path));
            }
        }
    }
    all.sort_by(|a, b| a.1.cmp(&b.1));
    assert!(all.len() > 60, "captures are missing");
    all
}

/// A capture that ends in the middle of a frame is a cut stream.
pub fn end_of(path: &std::path::Path) -> End {
    if path.file_stem().is_some_and(|stem| stem == "cut") { End::Cut } else { End::Clean }
}

/// Compares with the golden file and returns its name if it differs. With `UPDATE_GOLDEN` it is written instead.
pub fn differs(golden: &std::path::Path, actual: &[u8]) -> Option<String> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(golden, actual).unwrap();
        return None;
    }
    (fs::read(golden).unwrap_or_default() != actual).then(|| golden.display().to_string())
}

#[test]
fn golden_outputs() {
    let mut differing = Vec::new();
    for (kind, path) in captures() {
        let input = fs::read(&path).unwrap();
        let passed = pass(kind, Inject::Final, vec![Bytes::from(input.clone())], end_of(&path));
        assert_eq!(passed.upstream_bytes(), input, "identity: {}", path.display());
        let record = serde_json::to_string_pretty(&passed.record).unwrap() + "\n";
        for (extension, actual) in [("citations.json", record.into_bytes()), ("out.sse", passed.out())] {
            differing.extend(differs(&path.with_extension(extension), &actual));
        }
    }
    assert!(differing.is_empty(), "not as golden (UPDATE_GOLDEN=1 rewrites): {differing:#?}");
}

#[test]
fn record_is_the_same_byte_by_byte_and_with_auto() {
    for (kind, path) in captures() {
        let input = fs::read(&path).unwrap();
        let end = end_of(&path);
        let whole = pass(kind, Inject::Final, vec![Bytes::from(input.clone())], end);
        let single = pass(kind, Inject::Final, bytewise(&input), end);
        assert_eq!(single.out(), whole.out(), "{}", path.display());
        assert_eq!(single.record, whole.record, "{}", path.display());
        let auto = pass(Provider::AUTO, Inject::Final, bytewise(&input), end);
        assert_eq!(auto.out(), whole.out(), "auto: {}", path.display());
        assert_eq!(auto.record, whole.record, "auto: {}", path.display());
    }
}

#[test]
fn inject_off_gives_the_same_record_and_the_input() {
    for (kind, path) in captures() {
        let input = fs::read(&path).unwrap();
        let end = end_of(&path);
        let injected = pass(kind, Inject::Final, bytewise(&input), end);
        let off = pass(kind, Inject::Off, bytewise(&input), end);
        assert_eq!(off.out(), input, "{}", path.display());
        assert_eq!(off.record, injected.record, "{}", path.display());
    }
}

/// P10: a response that is not streamed gives the same record as its stream.
#[test]
fn p10_unstreamed_answer_gives_the_record_of_its_stream() {
    let json = fs::read(fixtures().join("tencent/whole.json")).unwrap();
    let settings = Settings { single_document: true, ..settings(Inject::Final) };
    for chunks in [vec![Bytes::from(json.clone())], bytewise(&json)] {
        let passed =
            offline::run(context(citetap::provider::tencent::PROVIDER), settings.clone(), chunks, End::Clean, true);
        assert_eq!(passed.out(), json);
        let whole = passed.record.unwrap();
        let streamed = fs::read(fixtures().join("tencent/search-only.sse")).unwrap();
        let streamed =
            pass(citetap::provider::tencent::PROVIDER, Inject::Final, vec![Bytes::from(streamed)], End::Clean)
                .record
                .unwrap();
        assert!(whole.complete);
        assert_eq!(whole.citations, streamed.citations);
    }
}

/// P10: a whole response beside a capture gives the complete record.
#[test]
fn p10_unstreamed_twin_gives_the_record_of_its_stream() {
    let kinds = [
        citetap::provider::openai::PROVIDER,
        citetap::provider::openai_responses::PROVIDER,
        citetap::provider::anthropic::PROVIDER,
        citetap::provider::gemini::PROVIDER,
    ];
    let mut twins = 0;
    for (kind, path) in captures() {
        let Ok(json) = fs::read(path.with_extension("json")) else { continue };
        if !kinds.contains(&kind) {
            continue;
        }
        twins += 1;
        let streamed = fs::read(&path).unwrap();
        let streamed = pass(kind, Inject::Final, bytewise(&streamed), End::Clean).record.unwrap();
        let settings = Settings { single_document: true, ..settings(Inject::Final) };
        for chunks in [vec![Bytes::from(json.clone())], bytewise(&json)] {
            let passed = offline::run(context(kind), settings.clone(), chunks, End::Clean, true);
            assert_eq!(passed.out(), json, "{}", path.display());
            assert_eq!(passed.record.as_ref(), Some(&streamed), "{}", path.display());
        }
        assert_eq!(REGISTRY.detect_document(&String::from_utf8(json).unwrap()), Some(kind), "{}", path.display());
    }
    assert!(twins >= 36, "{twins} twins");
}

/// An error sent as JSON with status 200 is not a message.
#[test]
fn json_error_gives_no_record() {
    for (folder, kind) in [
        ("doubao", citetap::provider::doubao::PROVIDER),
        ("openai", citetap::provider::openai::PROVIDER),
        ("openai-responses", citetap::provider::openai_responses::PROVIDER),
        ("anthropic", citetap::provider::anthropic::PROVIDER),
        ("gemini", citetap::provider::gemini::PROVIDER),
    ] {
        let json = fs::read(fixtures().join(folder).join("json-error.json")).unwrap();
        let settings = Settings { single_document: true, ..settings(Inject::Final) };
        let passed = offline::run(context(kind), settings, vec![Bytes::from(json.clone())], End::Clean, true);
        assert_eq!((passed.out(), passed.record), (json, None));
    }
}

/// Search responses are single JSON documents. A given and a detected provider give the same record.
#[test]
fn golden_documents() {
    let (mut differing, mut count) = (Vec::new(), 0);
    for (folder, kind) in [("tavily", citetap::provider::tavily::PROVIDER), ("mcp", citetap::provider::mcp::PROVIDER)] {
        for entry in fs::read_dir(fixtures().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".citations.json") {
                continue;
            }
            count += 1;
            let input = fs::read_to_string(&path).unwrap();
            assert_eq!(REGISTRY.detect_document(&input), Some(kind), "{}", path.display());
            let record = offline::document_record(context(kind), Bytes::from(input.clone()));
            let actual = serde_json::to_string_pretty(&record).unwrap() + "\n";
            differing.extend(differs(&path.with_extension("citations.json"), actual.as_bytes()));
        }
    }
    assert!(count >= 7, "documents are missing");
    assert!(differing.is_empty(), "not as golden (UPDATE_GOLDEN=1 rewrites): {differing:#?}");
}
