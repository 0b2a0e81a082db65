//! Tests of answers that were not streamed, and of transcoded answers.

use serde_json::{Value, json};

use super::{offline::OfflineOutput, *};
use crate::{profile::Profile, provider::Provider};

const LEXIANG: &str = include_str!("../../tests/fixtures/tencent/whole.json");

fn context(provider: Provider) -> Context {
    Context { provider, link_base: url::Url::parse("https://lexiangla.com").ok(), ..tests::context() }
}

fn settings(profile: Profile, form: Form, single_document: bool) -> Settings {
    Settings {
        output_format: OutputFormat { profile, form, ..OutputFormat::default() },
        single_document,
        ..tests::settings(Inject::Final, 1 << 20)
    }
}

fn run(provider: Provider, settings: Settings, input: &str) -> OfflineOutput {
    offline::run(context(provider), settings, [Bytes::copy_from_slice(input.as_bytes())], End::Clean, true)
}

fn output_json(output: &OfflineOutput) -> Value {
    serde_json::from_slice(&output.out()).unwrap_or_default()
}

#[test]
fn transcoded_document_has_sources() {
    let answer =
        output_json(&run(crate::provider::tencent::PROVIDER, settings(Profile::OpenAi, Form::Document, true), LEXIANG));
    assert_eq!(answer["object"], "chat.completion");
    let message = &answer["choices"][0]["message"];
    assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    assert_eq!(message["annotations"].as_array().map(Vec::len), Some(2), "{answer}");
    assert_eq!((&answer["citetap"]["stored"], &answer["citetap"]["messageId"]), (&json!(true), &answer["id"]));
}

#[test]
fn relayed_document_is_unchanged() {
    let output = run(crate::provider::tencent::PROVIDER, settings(Profile::Native, Form::Stream, true), LEXIANG);
    assert_eq!(output.out(), LEXIANG.as_bytes());
    assert_eq!(output.record.map(|record| record.citations.len()), Some(2));
}

fn annotated(style: Style, json: &str) -> (String, bool) {
    let mut settings = settings(Profile::Native, Form::Document, true);
    settings.output_format.markers = style;
    let output = run(crate::provider::openai::PROVIDER, settings, json);
    (String::from_utf8(output.out()).unwrap_or_default(), output.stream_stats.injected)
}

/// An Ark bot's answer: `references` is a member that other clients do not read.
const COMPLETION: &str = "{ \"id\":\"c-1\", \"x\":1.50e1,\t\"references\":[{\"title\":\"T\",\"url\":\"https://a.example.com/\"}],\n \
                          \"choices\":[ {\"finish_reason\":\"stop\",\"message\":{\"content\":\"\\u4f60好[1]\",\"tool_calls\":[]} } ]} ";

#[test]
fn annotated_completion_keeps_every_upstream_byte() {
    let (out, committed) = annotated(Style::Keep, COMPLETION);
    assert!(committed);
    let answer: Value = serde_json::from_str(&out).unwrap_or_default();
    let annotation = &answer["choices"][0]["message"]["annotations"][0]["url_citation"];
    assert_eq!(annotation, &json!({"url":"https://a.example.com/","title":"T","start_index":2,"end_index":5}));
    assert_eq!(answer["citations"], json!(["https://a.example.com/"]));
    assert_eq!((&answer["citetap"]["stored"], &answer["citetap"]["messageId"]), (&json!(true), &json!("c-1")));
    let added = [
        &out[out.find(",\"annotations\"").unwrap_or(0)..out.find("} } ]").unwrap_or(0)],
        &out[out.find(",\"citations\"").unwrap_or(0)..out.rfind("} ").unwrap_or(0)],
    ];
    assert_eq!(out.replace(added[0], "").replace(added[1], ""), COMPLETION, "{out}");
}

#[test]
fn annotated_completion_has_rewritten_markers() {
    let (out, _) = annotated(Style::Link, COMPLETION);
    let answer: Value = serde_json::from_str(&out).unwrap_or_default();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "你好[[1]](https://a.example.com/)");
    let (at, end) = (
        &message["annotations"][0]["url_citation"]["start_index"],
        "你好[[1]](https://a.example.com/)".chars().count(),
    );
    assert_eq!((at, &message["annotations"][0]["url_citation"]["end_index"]), (&json!(2), &json!(end)));
}

#[test]
fn upstream_annotations_are_kept() {
    let json = r#"{"id":"c-1","citations":["https://own.example.com/"],"search_results":null,"choices":[{"finish_reason":"stop",
                   "message":{"content":"x","annotations":[{"type":"url_citation","url_citation":{"url":"https://a.example.com/"}}]}}]}"#;
    let answer: Value = serde_json::from_str(&annotated(Style::Keep, json).0).unwrap_or_default();
    let upstream_annotations = json!([{"type":"url_citation","url_citation":{"url":"https://a.example.com/"}}]);
    assert_eq!(answer["choices"][0]["message"]["annotations"], upstream_annotations);
    assert_eq!(answer["citations"], json!(["https://own.example.com/"]));
    let urls =
        |list: &Value| list.as_array().map(|list| list.iter().map(|source| source["url"].clone()).collect::<Vec<_>>());
    assert_eq!(urls(&answer["search_results"]), urls(&answer["citetap"]["citations"]));
    assert_eq!(answer["citetap"]["citations"].as_array().map(Vec::len), Some(2));
}

#[test]
fn document_without_sources_or_choices_is_unchanged() {
    for json in [
        r#"{"choices":[{"finish_reason":"stop","message":{"content":"x"}}]}"#,
        r#"{"error":{"message":"no"}}"#,
        r#"{"references":[{"title":"T","url":"https://a.example.com/"}]}"#,
        "{\"par",
    ] {
        assert_eq!(annotated(Style::Keep, json).0, json);
        let output = run(Provider::AUTO, settings(Profile::Native, Form::Document, true), json);
        assert_eq!(output.out(), json.as_bytes());
    }
}

/// The client gets `fallback` before the upstream sends its id, so the record keeps `fallback`.
#[test]
fn record_id_is_the_id_sent_to_the_client() {
    let late = "event: CHUNK_DELTA\ndata: {\"text\":\"早\"}\n\n\
                event: STREAM_CHUNK\ndata: {\"message_id\":\"12\",\"patch_op\":[]}\n\n\
                event: SSE_REPLY_END\ndata: {\"end_type\":1}\n\n";
    let output = run(crate::provider::doubao::PROVIDER, settings(Profile::OpenAi, Form::Stream, false), late);
    let out = String::from_utf8(output.out()).unwrap_or_default();
    assert!(out.contains("\"id\":\"fallback\"") && !out.contains("\"id\":\"12\""), "{out}");
    let record = output.record.map(|record| (record.message_id.clone(), record.metadata["originalMessageId"].clone()));
    assert_eq!(record, Some(("fallback".to_owned(), json!("12"))));
    let native = run(crate::provider::doubao::PROVIDER, settings(Profile::Native, Form::Stream, false), late);
    assert_eq!(native.record.map(|record| record.message_id), Some("12".to_owned()));
}

#[test]
fn failure_is_the_error_sent_to_the_client() {
    let failure = |provider, input: &str| {
        let mut pipeline = Pipeline::new(Some(context(provider)), settings(Profile::OpenAi, Form::Document, false));
        pipeline.push(Bytes::copy_from_slice(input.as_bytes()));
        pipeline.finish(End::Clean);
        while pipeline.take().is_some() {}
        pipeline.failure().cloned()
    };
    let error = "data:{\"code\":7,\"message\":\"no quota\"}\n\n";
    let reported = Failure { code: Some("7".to_owned()), message: "no quota".to_owned() };
    assert_eq!(failure(crate::provider::tencent::PROVIDER, error), Some(reported));
    let unfinished = "data:{\"completion_id\":\"c\",\"delta_content\":\"a\",\"processes\":{}}\n\n";
    assert_eq!(
        failure(crate::provider::tencent::PROVIDER, unfinished).map(|failure| failure.message).as_deref(),
        Some(UNFINISHED)
    );
    let unknown = "data: {\"who\":\"knows\"}\n\n".repeat(64);
    assert_eq!(failure(Provider::AUTO, &unknown).map(|failure| failure.message).as_deref(), Some(UNREADABLE));
    let finished = format!("{unfinished}event:finish\ndata:{{\"completion_id\":\"c\",\"is_stop\":true}}\n\n");
    assert_eq!(failure(crate::provider::tencent::PROVIDER, &finished), None);
}
