//! A provider defined only in this file: one descriptor, one adapter, one line in a registry.

use bytes::Bytes;
use citetap::{
    citation::{ledger::Reference, record::CitationType},
    pipeline::{End, Inject},
    provider::{
        Adapter, Descriptor, Envelope, FinishReason, InputKind, JsonPath, ParseError, Payload, Provider, REGISTRY,
        Registry, Signal, Sink, doubao,
        json::{self, Node},
    },
    sse::Event,
};

use crate::support::{bytewise, pass};

static DESCRIPTOR: Descriptor = Descriptor {
    name: "pigeon",
    label: "Pigeon post",
    docs: "https://pigeon.example.com/",
    input: InputKind::Streams,
    sniff: |_, data| data.get("coo").is_some().then_some(DESCRIPTOR.build),
    build: || Box::new(Pigeon),
};

static BIRDS: Registry = Registry(&[&doubao::DESCRIPTOR, &DESCRIPTOR]);

struct Pigeon;

impl Adapter for Pigeon {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let read = |node: &Node<'_>| {
            if let Some(id) = node.id(&["coo"]) {
                sink.signal(Signal::MessageId(&id));
            }
            if let Some(text) = node.text(&["text"]) {
                sink.signal(Signal::Text(text, JsonPath::ROOT.key("text")));
            }
            if let Some(url) = node.text(&["url"]) {
                sink.signal(Signal::Reference(Reference {
                    number: Some(1),
                    position: None,
                    rank: None,
                    score: None,
                    url: Some(url),
                    title: Some("T"),
                    snippet: None,
                    site_name: None,
                    icon_url: None,
                    published: None,
                    doc_id: None,
                    kind: CitationType::Websearch,
                    cited: false,
                    metadata: Vec::new(),
                }));
            }
            if node.truthy("landed") {
                sink.signal(Signal::Finish(FinishReason::Stop));
            }
        };
        json::with_parsed(event.data.as_deref().unwrap_or_default(), read).ok_or(ParseError)
    }

    /// Clients of this dialect ignore pings.
    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        let json = serde_json::json!({ "type": "ping", "citations": payload.record });
        Envelope { event: "ping", json: json.to_string() }
    }
}

const BEGIN: &str = "data: {\"coo\":\"7\",\"text\":\"a[1]\",\"url\":\"https://a.example.com/\"}\n\n";
const END: &str = "data: {\"landed\":true}\n\n";

#[test]
fn registered_provider_is_listed_and_selectable() {
    assert_eq!(BIRDS.for_route("pigeon"), Some(Provider::Fixed(&DESCRIPTOR)));
    assert_eq!(BIRDS.route_names(), ["doubao", "pigeon", "auto"]);
    assert_eq!(BIRDS.rows().last(), Some(["pigeon", "Pigeon post", "streams", "https://pigeon.example.com/"]));
    assert_eq!(BIRDS.detect_document("{\"coo\":1}"), Some(Provider::Fixed(&DESCRIPTOR)));
    assert_eq!(REGISTRY.for_capture("pigeon"), None, "it is in this registry alone");
}

#[test]
fn registered_provider_is_detected_and_tapped() {
    let stream = [BEGIN, END].concat();
    for provider in [Provider::Fixed(&DESCRIPTOR), Provider::Auto(&BIRDS)] {
        for chunks in [vec![Bytes::from(stream.clone())], bytewise(stream.as_bytes())] {
            let passed = pass(provider, Inject::Final, chunks, End::Clean);
            assert_eq!(passed.upstream_bytes(), stream.as_bytes(), "{provider:?}");
            let out = String::from_utf8(passed.out()).unwrap();
            let ours = out.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).unwrap();
            assert!(ours.starts_with("event: ping\ndata: {\"citations\":{") && ours.ends_with("\n\n"), "{ours}");
            let record = passed.record.unwrap();
            assert_eq!((record.provider.as_str(), record.message_id.as_str(), record.complete), ("pigeon", "7", true));
            assert_eq!(record.stats.cited_count, 1);
        }
    }
}
