//! Target `relay`: the upstream's bytes are unchanged, our event comes once before the finish, in every chunking.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use citetap::{
    citation::{Record, supplement::SearchOutcome},
    marker::Style,
    pipeline::{
        Budget, End, Inject, Settings, Supplement,
        offline::{self, OfflineOutput},
    },
    profile::{OutputFormat, native::MAX_LINE},
    provider::Provider,
    sse::Event,
};
use serde_json::Value;

use crate::{
    input::{choose, chunks, split},
    record,
    stream::{FRAME_CAP, NONCE, UpstreamAnswer, context, one, pieces, settings},
};

const KINDS: &[Provider] = &[
    citetap::provider::doubao::PROVIDER,
    citetap::provider::tencent::PROVIDER,
    citetap::provider::openai::PROVIDER,
    Provider::AUTO,
    citetap::provider::anthropic::PROVIDER,
    citetap::provider::gemini::PROVIDER,
    citetap::provider::openai_responses::PROVIDER,
];
const INJECTS: &[Inject] = &[Inject::Final, Inject::Live, Inject::Off];
const ENDS: &[End] = &[End::Clean, End::Cut, End::Shutdown];
/// Half of the inputs keep markers, so that relayed bytes can be compared.
const STYLES: &[Style] =
    &[Style::Keep, Style::Keep, Style::Keep, Style::Keep, Style::Link, Style::Sup, Style::Footnote, Style::Strip];
const CAPS: &[usize] = &[FRAME_CAP, FRAME_CAP, 256, 32];
const SUPPLEMENTS: &[Supplement] = &[Supplement::Off, Supplement::Off, Supplement::WhenEmpty, Supplement::Always];

/// Results of a supplementary search: a page of its own and one that streams contain too.
static RESULTS: LazyLock<Arc<Record>> = LazyLock::new(|| {
    let json = r#"{"query":"asked in private","results":[
        {"title":"S","url":"https://s.example.com/","content":"c","score":0.9},
        {"title":"A","url":"https://a.example.com/","content":"c","score":0.8},{}]}"#;
    Arc::new(*offline::document_record(context(citetap::provider::tavily::PROVIDER), Bytes::from(json)).unwrap())
});

struct Case {
    kind: Provider,
    inject: Inject,
    end: End,
    style: Style,
    frame_cap: usize,
    emit_empty: bool,
    supplement: Supplement,
    search: SearchOutcome,
}

impl Case {
    fn of(head: [u8; 4]) -> Self {
        let [a, b, c, _] = head;
        let outcomes = [
            SearchOutcome::None,
            SearchOutcome::Pending,
            SearchOutcome::Failed,
            SearchOutcome::Found(Arc::clone(&RESULTS)),
        ];
        Self {
            kind: choose(KINDS, a),
            inject: choose(INJECTS, a >> 2),
            end: choose(ENDS, a >> 5),
            style: choose(STYLES, b),
            frame_cap: choose(CAPS, b >> 3),
            emit_empty: b >> 7 == 1,
            supplement: choose(SUPPLEMENTS, c),
            search: outcomes[usize::from(c >> 2) % outcomes.len()].clone(),
        }
    }

    fn pass(&self, chunks: impl IntoIterator<Item = Bytes>) -> OfflineOutput {
        let budget = Budget::new(256 << 20);
        let output_format = OutputFormat { markers: self.style, ..OutputFormat::default() };
        let settings = Settings {
            emit_empty: self.emit_empty,
            supplement: self.supplement,
            frame_cap: self.frame_cap,
            ..settings(self.inject, output_format, &budget)
        };
        let passed = offline::run_with_search(context(self.kind), settings, chunks, self.end, true, &self.search);
        assert_eq!(budget.used(), 0, "the budget is released");
        assert!(!passed.stream_stats.panicked, "the tap panicked");
        passed
    }
}

pub fn run(data: &[u8]) {
    let Some((head, stream)) = split(data) else { return };
    let case = Case::of(head);
    let whole = case.pass(one(stream));
    for seed in [head[3], 0] {
        let other = case.pass(chunks(stream, seed));
        assert_eq!(Lossy(&other.out()), Lossy(&whole.out()), "another chunking");
        assert_eq!(other.record, whole.record);
    }
    check_bytes(&case, stream, &whole);
    let answer = UpstreamAnswer::read(case.kind, stream, case.end == End::Clean, case.frame_cap);
    event_is_injected_once(&case, &whole, &answer);
    if let Some(record) = &whole.record {
        record::check(record);
        // With a smaller frame cap the record and the answer may be built from different frames.
        if case.frame_cap == FRAME_CAP {
            record::check_answer(record, &answer);
        }
        assert!(!serde_json::to_string(record).unwrap().contains("asked in private"), "the record contains the query");
    }
}

fn check_bytes(case: &Case, stream: &[u8], passed: &OfflineOutput) {
    let relayed = passed.upstream_bytes();
    if case.style != Style::Keep {
        return check_rewritten_frames(stream, &relayed, case.end);
    }
    if case.end == End::Shutdown {
        // A shutdown drops the partial frame at the end.
        assert!(stream.starts_with(&relayed));
        assert!(pieces(stream).last().is_none_or(|last| stream.len() - relayed.len() <= last.len()));
    } else {
        assert_eq!(Lossy(&relayed), Lossy(stream));
    }
    if case.inject == Inject::Off {
        assert!(passed.injected().is_empty());
    }
}

/// Rewriting markers changes only strings in the JSON of frames.
fn check_rewritten_frames(stream: &[u8], relayed: &[u8], end: End) {
    let (before, after) = (pieces(stream), pieces(relayed));
    let cut_short = end == End::Shutdown && after.len() + 1 == before.len();
    assert!(after.len() == before.len() || cut_short, "{:?} became {:?}", Lossy(stream), Lossy(relayed));
    for (before, after) in before.iter().zip(after).filter(|(before, after)| before != &after) {
        let (old, new) = (Event::read(before), Event::read(after));
        assert_eq!((&old.name, &old.id, old.retry), (&new.name, &new.id, new.retry));
        let read = |event: &Event<'_>| serde_json::from_str::<Value>(event.data.as_deref().unwrap()).unwrap();
        assert_eq!(shape(&read(&old)), shape(&read(&new)));
    }
}

fn shape(value: &Value) -> Value {
    match value {
        Value::String(_) => Value::String(String::new()),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(pairs) => pairs.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
        other => other.clone(),
    }
}

fn event_is_injected_once(case: &Case, passed: &OfflineOutput, answer: &UpstreamAnswer) {
    let ours: Vec<Record> = passed.injected().into_iter().map(|frame| record_in(frame)).collect();
    for (at, record) in ours.iter().enumerate() {
        assert_eq!((record.nonce.as_str(), record.version), (NONCE, 1));
        let last = at + 1 == ours.len();
        // Live events are not stored. The final event is stored and comes last, unless there is no boundary for it.
        assert!(last || (!record.stored && !record.complete));
        assert!(!record.citations.is_empty() || case.emit_empty || (last && ours.len() > 1));
    }
    let finals = ours.iter().filter(|record| record.stored).count();
    assert_eq!(finals, usize::from(passed.stream_stats.injected));

    // Each of our frames lies between frames: the output's frames are the input's plus ours.
    let out = passed.out();
    let whole = |bytes: &[u8]| pieces(bytes).into_iter().filter(|piece| Event::read(piece).data.is_some()).count();
    assert_eq!(whole(&out), whole(&passed.upstream_bytes()) + ours.len());

    let Some(at) = passed.pieces.iter().rposition(|(ours, _)| *ours) else { return };
    let before: usize = passed.pieces[..at].iter().filter(|(ours, _)| !ours).map(|(_, piece)| piece.len()).sum();
    if case.style == Style::Keep
        && let Some(ended) = answer.ended_at
    {
        assert!(before <= ended, "our event came after the finish: {before} of {ended}");
        assert!(finals == 0 || before == ended, "not right before the finish: {before} of {ended}");
    }
}

/// The record in one of our frames, in any envelope.
fn record_in(frame: &[u8]) -> Record {
    let event = Event::read(frame);
    assert_eq!((&event.id, event.retry), (&None, None));
    let data = event.data.unwrap();
    assert!(data.len() < MAX_LINE, "a line of {} bytes", data.len());
    assert!(!data.contains(['\n', '\r']));
    let json: Value = serde_json::from_str(&data).unwrap();
    let name = match json["type"].as_str() {
        Some("ping") => "ping",
        // In a Responses stream our frame is named after its type.
        Some(kind) if json.get("sequence_number").is_some() => kind,
        _ if json.get("candidates").is_some() => "",
        _ => "citations",
    };
    assert_eq!(event.name, name);
    assert!(json.get("error").is_none() && json.get("event").is_none());
    let record = json.get("citetap").or_else(|| json.get("citations").filter(|record| record.is_object()));
    serde_json::from_value(record.unwrap_or(&json).clone()).unwrap()
}

/// Bytes that print as text when an assertion fails.
#[derive(PartialEq)]
struct Lossy<'a>(&'a [u8]);

impl std::fmt::Debug for Lossy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.0))
    }
}
