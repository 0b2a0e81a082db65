//! Answers that were not streamed, and answers in another dialect.

use serde_json::{Value, json};

use super::{whole::Passed, *};
use crate::{
    citation::{ledger::Reference, record::CitationType},
    profile::Profile,
    provider::{Adapter, Envelope, Kind, Reason, Signal, Sink, Trail, Unread, json as tree},
};

const LEXIANG: &str = include_str!("../../tests/fixtures/tencent/whole.json");

fn context(provider: Kind) -> Context {
    Context {
        route: "r".to_owned(),
        provider,
        link_base: url::Url::parse("https://lexiangla.com").ok(),
        nonce: "n".to_owned(),
        created: jiff::Timestamp::UNIX_EPOCH,
        fallback_id: "fallback".to_owned(),
        rules: crate::config::default_rules(),
    }
}

fn settings(profile: Profile, form: Form, whole: bool) -> Settings {
    Settings {
        inject: Inject::Final,
        emit_empty: false,
        manner: Manner { profile, form, ..Manner::default() },
        whole,
        frame_cap: 1 << 20,
        budget: Budget::new(1 << 20),
    }
}

fn pass(provider: Kind, settings: Settings, input: &str) -> Passed {
    whole::pass(context(provider), settings, [Bytes::copy_from_slice(input.as_bytes())], End::Clean, true)
}

fn value(passed: &Passed) -> Value {
    serde_json::from_slice(&passed.out()).unwrap_or_default()
}

#[test]
fn a_document_in_another_dialect_has_its_sources() {
    let said = value(&pass(Kind::Tencent, settings(Profile::OpenAi, Form::Whole, true), LEXIANG));
    assert_eq!(said["object"], "chat.completion");
    let message = &said["choices"][0]["message"];
    assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()), "{said}");
    assert_eq!(message["annotations"].as_array().map(Vec::len), Some(2), "{said}");
    assert_eq!((&said["citetap"]["stored"], &said["citetap"]["messageId"]), (&json!(true), &said["id"]));
}

#[test]
fn a_document_that_is_relayed_stays_as_it_is() {
    let passed = pass(Kind::Tencent, settings(Profile::Native, Form::Stream, true), LEXIANG);
    assert_eq!(passed.out(), LEXIANG.as_bytes());
    assert_eq!(passed.record.map(|record| record.citations.len()), Some(2));
}

/// Reads chat completions, as far as these tests need it.
struct Chat;

impl Adapter for Chat {
    fn provider(&self) -> Option<&'static str> {
        Some("chat")
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), Unread> {
        let data = event.data.as_deref().unwrap_or_default();
        let read = tree::with_parsed(data, |node| {
            for (number, url) in (1..).zip(node.get("refs").map(tree::Node::list).unwrap_or_default()) {
                sink.signal(Signal::Reference(Reference {
                    number: Some(number),
                    position: None,
                    rank: None,
                    score: None,
                    url: url.str(),
                    title: Some("T"),
                    snippet: None,
                    site_name: None,
                    icon_url: None,
                    published: None,
                    doc_id: None,
                    kind: CitationType::Websearch,
                    metadata: Vec::new(),
                }));
            }
            let choices = node.get("choices").map(tree::Node::list).unwrap_or_default();
            let message = choices.first().and_then(|choice| choice.get("message"));
            if let Some(text) = message.and_then(|message| message.text(&["content"])) {
                let at = Trail::ROOT.key("choices");
                let at = at.index(0);
                let at = at.key("message");
                sink.signal(Signal::Text(text, at.key("content")));
            }
            sink.signal(Signal::Finish(Reason::Stop));
        });
        read.ok_or(Unread)
    }

    fn envelope(&self) -> Envelope<'_> {
        Envelope::Bare
    }
}

fn annotated(json: &str) -> (String, bool) {
    let settings = settings(Profile::Native, Form::Whole, true);
    let mut pipeline = Pipeline::new(Some(context(Kind::Auto)), settings);
    pipeline.tap = Some(Tap::with(Box::new(Chat), context(Kind::Auto)));
    pipeline.push(Bytes::copy_from_slice(json.as_bytes()));
    assert_eq!(pipeline.take(), None, "held until it is whole");
    pipeline.finish(End::Clean);
    let (mut out, mut committed) = (Vec::new(), false);
    while let Some(piece) = pipeline.take() {
        match piece {
            Out::Bytes(bytes) | Out::Event(bytes) => out.extend_from_slice(&bytes),
            Out::Commit(_) => {
                committed = true;
                pipeline.committed(true);
            }
            Out::Store(_) => {}
        }
    }
    (String::from_utf8(out).unwrap_or_default(), committed)
}

#[test]
fn a_completion_of_the_upstreams_own_gets_its_sources_and_keeps_every_byte() {
    let json = "{ \"id\":\"c-1\", \"x\":1.50e1,\t\"refs\":[\"https://a.example.com/\"],\n \"choices\":[ {\"message\":\
                {\"content\":\"\\u4f60好[1]\",\"tool_calls\":[]} } ]} ";
    let (out, committed) = annotated(json);
    assert!(committed);
    let said: Value = serde_json::from_str(&out).unwrap_or_default();
    let annotation = &said["choices"][0]["message"]["annotations"][0]["url_citation"];
    assert_eq!((&annotation["url"], &annotation["title"]), (&json!("https://a.example.com/"), &json!("T")));
    assert!(annotation["start_index"].is_u64() && annotation["end_index"].is_u64(), "{annotation}");
    assert_eq!(said["citations"], json!(["https://a.example.com/"]));
    assert_eq!(said["citetap"]["stored"], true);
    let added = [
        &out[out.find(",\"annotations\"").unwrap_or(0)..out.find("} } ]").unwrap_or(0)],
        &out[out.find(",\"citations\"").unwrap_or(0)..out.rfind("} ").unwrap_or(0)],
    ];
    assert_eq!(out.replace(added[0], "").replace(added[1], ""), json, "{out}");
}

#[test]
fn what_the_upstream_annotates_itself_is_not_said_again() {
    let json = r#"{"refs":["https://a.example.com/"],"citations":["https://own.example.com/"],"search_results":null,
                   "choices":[{"message":{"content":"x","annotations":[{"type":"url_citation"}]}}]}"#;
    let said: Value = serde_json::from_str(&annotated(json).0).unwrap_or_default();
    assert_eq!(said["choices"][0]["message"]["annotations"], json!([{"type":"url_citation"}]));
    assert_eq!(said["citations"], json!(["https://own.example.com/"]));
    assert_eq!(said["search_results"][0]["url"], "https://a.example.com/");
    assert_eq!(said["citetap"]["citations"][0]["url"], "https://a.example.com/");
}

#[test]
fn a_document_without_sources_or_that_is_no_completion_stays_as_it_is() {
    for json in [r#"{"choices":[{"message":{"content":"x"}}]}"#, r#"{"refs":["https://a.example.com/"]}"#, "{\"par"] {
        assert_eq!(annotated(json).0, json);
        let passed = pass(Kind::Auto, settings(Profile::Native, Form::Whole, true), json);
        assert_eq!(passed.out(), json.as_bytes(), "nobody can read it");
    }
}

/// Whoever was told an id finds the record under it.
#[test]
fn the_id_that_a_client_was_told_is_the_records() {
    let late = "event: CHUNK_DELTA\ndata: {\"text\":\"早\"}\n\n\
                event: STREAM_CHUNK\ndata: {\"message_id\":\"12\",\"patch_op\":[]}\n\n\
                event: SSE_REPLY_END\ndata: {\"end_type\":1}\n\n";
    let passed = pass(Kind::Doubao, settings(Profile::OpenAi, Form::Stream, false), late);
    let out = String::from_utf8(passed.out()).unwrap_or_default();
    assert!(out.contains("\"id\":\"fallback\"") && !out.contains("\"id\":\"12\""), "{out}");
    let record = passed.record.map(|record| (record.message_id.clone(), record.metadata["originalMessageId"].clone()));
    assert_eq!(record, Some(("fallback".to_owned(), json!("12"))));
    let native = pass(Kind::Doubao, settings(Profile::Native, Form::Stream, false), late);
    assert_eq!(native.record.map(|record| record.message_id), Some("12".to_owned()));
}

#[test]
fn a_failure_is_known_to_who_asks() {
    let failure = |provider, input: &str| {
        let mut pipeline = Pipeline::new(Some(context(provider)), settings(Profile::OpenAi, Form::Whole, false));
        pipeline.push(Bytes::copy_from_slice(input.as_bytes()));
        pipeline.finish(End::Clean);
        while pipeline.take().is_some() {}
        pipeline.failure().cloned()
    };
    let error = "data:{\"code\":7,\"message\":\"no quota\"}\n\n";
    let told = Failure { code: Some("7".to_owned()), message: "no quota".to_owned() };
    assert_eq!(failure(Kind::Tencent, error), Some(told));
    let cut_short = "data:{\"completion_id\":\"c\",\"delta_content\":\"a\",\"processes\":{}}\n\n";
    assert_eq!(failure(Kind::Tencent, cut_short).map(|failure| failure.message).as_deref(), Some(UNFINISHED));
    let unknown = "data: {\"who\":\"knows\"}\n\n".repeat(64);
    assert_eq!(failure(Kind::Auto, &unknown).map(|failure| failure.message).as_deref(), Some(UNREADABLE));
    let fine = format!("{cut_short}event:finish\ndata:{{\"completion_id\":\"c\",\"is_stop\":true}}\n\n");
    assert_eq!(failure(Kind::Tencent, &fine), None);
}
