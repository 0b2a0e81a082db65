//! Answers that were not streamed, and answers in another dialect.

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

fn pass(provider: Provider, settings: Settings, input: &str) -> OfflineOutput {
    offline::run(context(provider), settings, [Bytes::copy_from_slice(input.as_bytes())], End::Clean, true)
}

fn value(passed: &OfflineOutput) -> Value {
    serde_json::from_slice(&passed.out()).unwrap_or_default()
}

#[test]
fn a_document_in_another_dialect_has_its_sources() {
    let said =
        value(&pass(crate::provider::tencent::PROVIDER, settings(Profile::OpenAi, Form::Document, true), LEXIANG));
    assert_eq!(said["object"], "chat.completion");
    let message = &said["choices"][0]["message"];
    assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()), "{said}");
    assert_eq!(message["annotations"].as_array().map(Vec::len), Some(2), "{said}");
    assert_eq!((&said["citetap"]["stored"], &said["citetap"]["messageId"]), (&json!(true), &said["id"]));
}

#[test]
fn a_document_that_is_relayed_stays_as_it_is() {
    let passed = pass(crate::provider::tencent::PROVIDER, settings(Profile::Native, Form::Stream, true), LEXIANG);
    assert_eq!(passed.out(), LEXIANG.as_bytes());
    assert_eq!(passed.record.map(|record| record.citations.len()), Some(2));
}

fn annotated(style: Style, json: &str) -> (String, bool) {
    let mut settings = settings(Profile::Native, Form::Document, true);
    settings.output_format.markers = style;
    let passed = pass(crate::provider::openai::PROVIDER, settings, json);
    (String::from_utf8(passed.out()).unwrap_or_default(), passed.stream_stats.injected)
}

/// As an Ark bot answers: its sources where no other client looks.
const COMPLETION: &str = "{ \"id\":\"c-1\", \"x\":1.50e1,\t\"references\":[{\"title\":\"T\",\"url\":\"https://a.example.com/\"}],\n \
                          \"choices\":[ {\"finish_reason\":\"stop\",\"message\":{\"content\":\"\\u4f60好[1]\",\"tool_calls\":[]} } ]} ";

#[test]
fn a_completion_of_the_upstreams_own_gets_its_sources_and_keeps_every_byte() {
    let (out, committed) = annotated(Style::Keep, COMPLETION);
    assert!(committed);
    let said: Value = serde_json::from_str(&out).unwrap_or_default();
    let annotation = &said["choices"][0]["message"]["annotations"][0]["url_citation"];
    assert_eq!(annotation, &json!({"url":"https://a.example.com/","title":"T","start_index":2,"end_index":5}));
    assert_eq!(said["citations"], json!(["https://a.example.com/"]));
    assert_eq!((&said["citetap"]["stored"], &said["citetap"]["messageId"]), (&json!(true), &json!("c-1")));
    let added = [
        &out[out.find(",\"annotations\"").unwrap_or(0)..out.find("} } ]").unwrap_or(0)],
        &out[out.find(",\"citations\"").unwrap_or(0)..out.rfind("} ").unwrap_or(0)],
    ];
    assert_eq!(out.replace(added[0], "").replace(added[1], ""), COMPLETION, "{out}");
}

#[test]
fn markers_of_a_completion_are_rewritten_as_well() {
    let (out, _) = annotated(Style::Link, COMPLETION);
    let said: Value = serde_json::from_str(&out).unwrap_or_default();
    let message = &said["choices"][0]["message"];
    assert_eq!(message["content"], "你好[[1]](https://a.example.com/)");
    let (at, end) = (
        &message["annotations"][0]["url_citation"]["start_index"],
        "你好[[1]](https://a.example.com/)".chars().count(),
    );
    assert_eq!((at, &message["annotations"][0]["url_citation"]["end_index"]), (&json!(2), &json!(end)));
}

#[test]
fn what_the_upstream_annotates_itself_is_not_said_again() {
    let json = r#"{"id":"c-1","citations":["https://own.example.com/"],"search_results":null,"choices":[{"finish_reason":"stop",
                   "message":{"content":"x","annotations":[{"type":"url_citation","url_citation":{"url":"https://a.example.com/"}}]}}]}"#;
    let said: Value = serde_json::from_str(&annotated(Style::Keep, json).0).unwrap_or_default();
    let own = json!([{"type":"url_citation","url_citation":{"url":"https://a.example.com/"}}]);
    assert_eq!(said["choices"][0]["message"]["annotations"], own);
    assert_eq!(said["citations"], json!(["https://own.example.com/"]));
    let urls = |list: &Value| list.as_array().map(|list| list.iter().map(|one| one["url"].clone()).collect::<Vec<_>>());
    assert_eq!(urls(&said["search_results"]), urls(&said["citetap"]["citations"]));
    assert_eq!(said["citetap"]["citations"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_document_without_sources_or_that_is_no_completion_stays_as_it_is() {
    for json in [
        r#"{"choices":[{"finish_reason":"stop","message":{"content":"x"}}]}"#,
        r#"{"error":{"message":"no"}}"#,
        r#"{"references":[{"title":"T","url":"https://a.example.com/"}]}"#,
        "{\"par",
    ] {
        assert_eq!(annotated(Style::Keep, json).0, json);
        let passed = pass(Provider::AUTO, settings(Profile::Native, Form::Document, true), json);
        assert_eq!(passed.out(), json.as_bytes());
    }
}

/// Whoever was told an id finds the record under it.
#[test]
fn the_id_that_a_client_was_told_is_the_records() {
    let late = "event: CHUNK_DELTA\ndata: {\"text\":\"早\"}\n\n\
                event: STREAM_CHUNK\ndata: {\"message_id\":\"12\",\"patch_op\":[]}\n\n\
                event: SSE_REPLY_END\ndata: {\"end_type\":1}\n\n";
    let passed = pass(crate::provider::doubao::PROVIDER, settings(Profile::OpenAi, Form::Stream, false), late);
    let out = String::from_utf8(passed.out()).unwrap_or_default();
    assert!(out.contains("\"id\":\"fallback\"") && !out.contains("\"id\":\"12\""), "{out}");
    let record = passed.record.map(|record| (record.message_id.clone(), record.metadata["originalMessageId"].clone()));
    assert_eq!(record, Some(("fallback".to_owned(), json!("12"))));
    let native = pass(crate::provider::doubao::PROVIDER, settings(Profile::Native, Form::Stream, false), late);
    assert_eq!(native.record.map(|record| record.message_id), Some("12".to_owned()));
}

#[test]
fn a_failure_is_known_to_who_asks() {
    let failure = |provider, input: &str| {
        let mut pipeline = Pipeline::new(Some(context(provider)), settings(Profile::OpenAi, Form::Document, false));
        pipeline.push(Bytes::copy_from_slice(input.as_bytes()));
        pipeline.finish(End::Clean);
        while pipeline.take().is_some() {}
        pipeline.failure().cloned()
    };
    let error = "data:{\"code\":7,\"message\":\"no quota\"}\n\n";
    let told = Failure { code: Some("7".to_owned()), message: "no quota".to_owned() };
    assert_eq!(failure(crate::provider::tencent::PROVIDER, error), Some(told));
    let cut_short = "data:{\"completion_id\":\"c\",\"delta_content\":\"a\",\"processes\":{}}\n\n";
    assert_eq!(
        failure(crate::provider::tencent::PROVIDER, cut_short).map(|failure| failure.message).as_deref(),
        Some(UNFINISHED)
    );
    let unknown = "data: {\"who\":\"knows\"}\n\n".repeat(64);
    assert_eq!(failure(Provider::AUTO, &unknown).map(|failure| failure.message).as_deref(), Some(UNREADABLE));
    let fine = format!("{cut_short}event:finish\ndata:{{\"completion_id\":\"c\",\"is_stop\":true}}\n\n");
    assert_eq!(failure(crate::provider::tencent::PROVIDER, &fine), None);
}
