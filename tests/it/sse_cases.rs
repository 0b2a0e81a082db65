//! Parser cases of twelve public test suites (`tests/fixtures/sse/cases.json`), in every chunking.

use base64::Engine as _;
use bytes::Bytes;
use citetap::{
    pipeline::{End, Inject},
    provider::Provider,
    sse::{Cut, Event, Splitter},
};
use serde_json::Value;

use crate::support::{bytewise, pass};

#[derive(Debug, Default, PartialEq)]
struct Parsed {
    /// Event type, data, last event id.
    events: Vec<(String, String, String)>,
    retry: Vec<u64>,
    last_event_id: String,
}

/// The events that a browser would dispatch, from our splitter and fields.
fn parse(chunks: &[Bytes]) -> Parsed {
    let mut parsed = Parsed::default();
    let mut splitter = Splitter::default();
    let mut held: Vec<u8> = Vec::new();
    for chunk in chunks {
        let mut at = 0;
        while let Some(cut) = splitter.advance(&chunk[at..]) {
            let (Cut::Frame(len) | Cut::Separator(len)) = cut;
            held.extend_from_slice(&chunk[at..at + len]);
            at += len;
            if let Cut::Frame(_) = cut {
                dispatch(&Event::read(&held), &mut parsed);
            }
            held.clear();
        }
        held.extend_from_slice(&chunk[at..]);
    }
    parsed
}

fn dispatch(event: &Event<'_>, parsed: &mut Parsed) {
    if let Some(id) = &event.id {
        parsed.last_event_id = id.to_string();
    }
    if let Some(retry) = event.retry {
        parsed.retry.push(retry.parse().unwrap_or(u64::MAX));
    }
    if let Some(data) = &event.data {
        let name = if event.name.is_empty() { "message" } else { &event.name };
        parsed.events.push((name.to_owned(), data.to_string(), parsed.last_event_id.clone()));
    }
}

fn expected(case: &Value) -> Parsed {
    let of = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    let want = &case["expected"];
    Parsed {
        events: want["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| (of(event, "type"), of(event, "data"), of(event, "lastEventId")))
            .collect(),
        retry: want["retry_ms"].as_array().unwrap().iter().map(|ms| ms.as_u64().unwrap_or(u64::MAX)).collect(),
        last_event_id: of(want, "final_last_event_id"),
    }
}

#[test]
fn every_case_in_every_chunking() {
    let text = std::fs::read(crate::support::fixtures().join("sse/cases.json")).unwrap();
    let suite: Value = serde_json::from_slice(&text).unwrap();
    let cases = suite["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 331);
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let decode = |b64: &Value| Bytes::from(base64::prelude::BASE64_STANDARD.decode(b64.as_str().unwrap()).unwrap());
        let chunks: Vec<Bytes> = case["chunks_b64"].as_array().unwrap().iter().map(decode).collect();
        let whole = Bytes::from(chunks.concat());
        let want = expected(case);
        let mut cuttings = vec![chunks, vec![whole.clone()], bytewise(&whole)];
        for at in 0..=whole.len() {
            cuttings.push(vec![whole.slice(..at), whole.slice(at..)]);
        }
        for cutting in cuttings {
            let lens: Vec<usize> = cutting.iter().map(Bytes::len).take(8).collect();
            assert_eq!(parse(&cutting), want, "{id} cut as {lens:?}…");
            for inject in [Inject::Final, Inject::Off] {
                let passed = pass(Provider::AUTO, inject, cutting.clone(), End::Clean);
                assert!(passed.out() == whole, "{id} relayed, cut as {lens:?}…");
            }
        }
    }
}

/// Large generated inputs. They must be relayed exactly and in linear time.
#[test]
fn generated_cases_relay_exactly_and_the_next_event_is_tapped() {
    let text = std::fs::read(crate::support::fixtures().join("sse/cases.json")).unwrap();
    let suite: Value = serde_json::from_slice(&text).unwrap();
    for case in suite["generated_cases"].as_array().unwrap() {
        let make = &case["generator"];
        let part = |key: &str| make[key].as_str().unwrap().to_owned();
        let count = usize::try_from(make["count"].as_u64().unwrap()).unwrap();
        let mut input = part("prefix") + &part("unit").repeat(count) + &part("suffix");
        // End the endless line, so that the next event is separate.
        input += "\n\nevent: CHUNK_DELTA\ndata: {\"text\":\"x\"}\n\nevent: SSE_REPLY_END\ndata: {}\n\n";
        let input = Bytes::from(input);
        let size = make["chunk"].as_u64().map_or(input.len(), |n| usize::try_from(n).unwrap());
        let chunks = (0..input.len()).step_by(size).map(|at| input.slice(at..(at + size).min(input.len()))).collect();
        let passed = pass(citetap::provider::doubao::PROVIDER, Inject::Final, chunks, End::Clean);
        assert!(passed.out() == input, "{}", case["id"]);
        assert!(passed.stream_stats.finished, "{}: the events after it were tapped", case["id"]);
    }
}

proptest::proptest! {
    /// Compares with another parser. The inputs avoid what it handles wrongly: it panics on a BOM, rejects invalid
    /// UTF-8 and waits after a final CR.
    #[test]
    fn splitter_agrees_with_another_parser(
        lines in proptest::collection::vec(
            (proptest::sample::select(vec!["data: 火灾", "data:a", "data", "data:  b", "event: x", "event:", ": c", "", "", "foo: 1", "data: {\"a\":1}"]),
             proptest::sample::select(vec!["\n", "\r\n", "\r"])),
            0..24,
        ),
        size in 1_usize..9,
    ) {
        use eventsource_stream::Eventsource as _;
        use futures_util::StreamExt as _;
        let input: String = lines.iter().flat_map(|(line, end)| [*line, *end]).chain([": end\n"]).collect();
        let chunks: Vec<Bytes> = input.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
        let ours: Vec<(String, String)> = parse(&chunks).events.into_iter().map(|(name, data, _)| (name, data)).collect();
        let whole = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(input.as_bytes())]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let oracle: Vec<(String, String)> = runtime
            .block_on(whole.eventsource().collect::<Vec<_>>())
            .into_iter()
            .map(|event| event.unwrap())
            .map(|event| (event.event, event.data))
            .collect();
        proptest::prop_assert_eq!(ours, oracle);
    }
}
