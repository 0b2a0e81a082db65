use std::{fs, path::PathBuf, sync::LazyLock};

use proptest::{collection::vec, prelude::*, sample::select};

use super::{Adapter, Dialect, Kind, Signal, Sink, adapter, of_dialect};
use crate::sse::{Cut, Event, Splitter};

#[derive(Default)]
struct Ended(bool);

impl Sink for Ended {
    fn signal(&mut self, signal: Signal<'_>) {
        self.0 |= matches!(signal, Signal::Finish(_) | Signal::Fault { .. });
    }
}

/// Every capture, our own outputs among them.
static STREAMS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folders = ["doubao", "samantha", "tencent", "openai"];
    let folder = |name| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let files = folders.into_iter().flat_map(|name| fs::read_dir(folder(name)).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "sse"));
    files.sort();
    files.iter().map(|file| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()).collect()
});

/// What is put in another's place.
const CHANGES: &[(&str, &str)] = &[
    ("false", "true"),
    ("false", "\"TRUE\""),
    ("false", "1"),
    ("false", "\\\"1\\\""),
    ("null", "\"stop\""),
    ("null", "\" null \""),
    ("null", "\"null\""),
    ("null", " \"\""),
    (":", " :\n data: "),
    (":", " : "),
    (",", ",\ndata:"),
    ("2001", "2003"),
    ("2001", "2005"),
    ("2001", "\" +02003\""),
    ("2001", "\\\"2003\\\""),
    ("\"event_type\"", "\"x\""),
    ("\"completion_id\"", "\"x\""),
    ("\"choices\"", "\"x\""),
    ("STREAM_CHUNK", "SSE_REPLY_END"),
    ("CHUNK_DELTA", "STREAM_ERROR"),
    ("CHUNK_DELTA", "gateway-error"),
    ("data:", "event: error\ndata:"),
    ("data:", "event:finish\ndata:"),
    ("data:", "event:gateway-error\ndata:"),
    ("data:", "data: [DONE]\n\ndata:"),
    ("{", "{\"error\":\"null\","),
    ("{", "{\"error\":null,"),
    ("{", "{\"error\": {\"code\":\"0\"},"),
    ("{", "{\"code\":\"null\",\"message\":\"m\","),
    ("{", "{\"code\":\"0,\",\"msg\":\"m\","),
    ("{", "{\"code\":0,\"data\":{},"),
    ("{", "{\"error_code\":7,\"message\":\"m\","),
    ("{", "{\"base_resp\":{\"status_code\":1004},"),
    ("{", "{\"is_stop\":true,"),
    ("{", "{\"is_finish\":true,"),
    ("{", "{\"object\":\"chat.completion.done\","),
    (".chunk\"", "\""),
    (".chunk\"", ".done\""),
    ("is_finish", "is_finis\\u0068"),
    ("is_finish", "is_finis\\\\u0068"),
    ("is_stop", "is\\u005fstop"),
    ("finish_reason", "finish\\u005Freason"),
    ("event_type", "event_typ\\u0065"),
    ("code", "c\\u006fde"),
    ("error", "\\u0065rror"),
    ("chat.", "chat\\u002e"),
    ("e", "\u{fffd}"),
];

fn frames(stream: &[u8]) -> Vec<&[u8]> {
    let (mut splitter, mut at, mut all) = (Splitter::default(), 0, Vec::new());
    while let Some(cut) = splitter.advance(&stream[at..]) {
        let (Cut::Frame(len) | Cut::Glue(len)) = cut;
        if matches!(cut, Cut::Frame(_)) {
            all.push(&stream[at..at + len]);
        }
        at += len;
    }
    all
}

fn ends(adapter: &mut dyn Adapter, frames: &[&[u8]]) -> bool {
    let mut ended = Ended::default();
    for frame in frames {
        let _ = adapter.frame(&Event::read(frame), &mut ended);
    }
    ended.0
}

fn changed(text: &str, changes: &[((&str, &str), prop::sample::Index)]) -> String {
    let mut text = text.to_owned();
    for ((from, to), which) in changes {
        let places: Vec<usize> = text.match_indices(from).map(|(at, _)| at).collect();
        if !places.is_empty() {
            let at = places[which.index(places.len())];
            text.replace_range(at..at + from.len(), to);
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// What may be passed on unread neither finishes nor fails, whatever came before it.
    #[test]
    fn frames_that_cannot_end_an_answer_do_not(
        stream in select(&STREAMS[..]),
        kind in select(vec![Kind::Doubao, Kind::Tencent, Kind::OpenAi, Kind::Auto]),
        (from, some) in (any::<prop::sample::Index>(), 1_usize..4),
        changes in vec((select(CHANGES), any::<prop::sample::Index>()), 0..4),
    ) {
        let all = frames(stream.as_bytes());
        prop_assume!(!all.is_empty());
        let from = from.index(all.len());
        let text = String::from_utf8_lossy(&all[from..all.len().min(from + some)].concat()).into_owned();
        let text = changed(&text, &changes);
        let last = frames(text.as_bytes());
        let mut adapter = adapter(kind);
        ends(&mut *adapter, &all[..from]);
        let told = adapter.ends()(&last.concat());
        prop_assert!(told || !ends(&mut *adapter, &last), "{}", text);
    }
}

fn may_end(kind: Kind, frame: &str) -> bool {
    adapter(kind).ends()(frame.as_bytes())
}

/// One frame for every way in which an adapter ends an answer, and for those in which that can be hidden.
#[test]
fn every_way_to_end_is_told() {
    use Dialect::{DoubaoWeb, Lexiang, OpenAi, Samantha};
    for (dialect, frame) in [
        (DoubaoWeb, "event: SSE_REPLY_END\ndata:\n\n"),
        (DoubaoWeb, "event:STREAM_ERROR\rdata: x\r\r"),
        (DoubaoWeb, "data: {}\nevent: gateway-error\n\n"),
        (Samantha, "event: gateway-error\ndata: {}\n\n"),
        (Samantha, "data: {\"event_type\":2003}\n\n"),
        (Samantha, "data: {\"event_type\" : \" +02003 \"}\n\n"),
        (Samantha, "data: {\"event_type\":\ndata: 2005}\n\n"),
        (Samantha, "data: {\"event_type\":2001,\"event_type\":2003}\n\n"),
        (Samantha, "data: {\"\\u0065vent_type\":2003}\n\n"),
        (Samantha, "data: {\"code\":7,\"message\":\"m\"}\n\n"),
        (Samantha, "data: {\"event_type\":2001,\"event_data\":{\"is_finish\":true}}\n\n"),
        (Samantha, "data: {\"event_type\":2001,\"event_data\":\"{\\\"is_finish\\\" :\\\"True\\\"}\"}\n\n"),
        (Samantha, "data: {\"event_type\":2001,\"event_data\":\"{\\\"is_\\\\u0066inish\\\":1}\"}\n\n"),
        (Samantha, "data: {\"event_type\":2001,\"event_data\":\"{\\\"is_\\u005cu0066inish\\\":1}\"}\n\n"),
        (Samantha, "data: {\"event_type\":2001,\"event_data\":\"{\\\"is_finish\\\":\\\"\\\\u0031\\\"}\"}\n\n"),
        (Lexiang, "event:finish\ndata:{\n\n"),
        (Lexiang, "data:{\"completion_id\":\"c\",\"is_stop\":1}\n\n"),
        (Lexiang, "data:{\"completion_id\":\"c\",\"is\\u005fstop\":\"true\"}\n\n"),
        (Lexiang, "data:{\"code\":0,\"data\":{}}\n\n"),
        (Lexiang, "data:{\"code\":7}\n\n"),
        (OpenAi, "data:[DONE]\n\n"),
        (OpenAi, "data:\ndata:  [DONE] \n\n"),
        (OpenAi, "event: error\ndata: x\n\n"),
        (OpenAi, "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n"),
        (OpenAi, "data: {\"choices\":[{\"finish_reason\":null,\"finish_reason\":\"stop\"}]}\n\n"),
        (OpenAi, "data: {\"choices\":[{\"finish_reason\":\ndata: \"stop\"}]}\n\n"),
        (OpenAi, "data: {\"choices\":[{\"finish_re\\u0061son\":\"error\"}]}\n\n"),
        (OpenAi, "data: {\"object\":\"chat.completion.done\"}\n\n"),
        (OpenAi, "data: {\"object\":\"chat.completion\",\"choices\":[{}]}\n\n"),
        (OpenAi, "data: {\"error\":\"null\"}\n\n"),
        (OpenAi, "data: {\"error\":{\"x\":1},\"choices\":[]}\n\n"),
        (OpenAi, "data: {\"base_resp\":{\"status_code\":1004},\"choices\":[]}\n\n"),
        (OpenAi, "data: {\"code\":\"null\",\"message\":\"m\"}\n\n"),
        (OpenAi, "data: {\"code\":\"0,\",\"message\":\"m\"}\n\n"),
        (OpenAi, "data: {\"error_code\":7,\"msg\":\"m\"}\n\n"),
    ] {
        let mut adapter = of_dialect(dialect);
        assert!(adapter.ends()(frame.as_bytes()), "told: {frame}");
        assert!(ends(&mut *adapter, &[frame.as_bytes()]), "ends: {frame}");
    }
}

/// The mark at a stream's beginning is no frame, and comes with the first ones.
#[test]
fn a_name_behind_a_byte_order_mark_is_told() {
    for (kind, frame) in
        [(Kind::Doubao, "event: SSE_REPLY_END\ndata: {}\n\n"), (Kind::Tencent, "event:finish\ndata:{}\n\n")]
    {
        assert!(may_end(kind, &format!("\u{feff}{frame}")), "{frame}");
    }
}

/// Otherwise nothing would ever be passed on first.
#[test]
fn most_frames_of_every_capture_cannot_end_the_answer() {
    let (mut later, mut count) = (0, 0);
    for stream in &*STREAMS {
        let mut adapter = adapter(Kind::Auto);
        for frame in frames(stream.as_bytes()) {
            later += usize::from(!adapter.ends()(frame));
            count += 1;
            ends(&mut *adapter, &[frame]);
        }
    }
    assert!(count > 1000 && later > count * 3 / 5, "{later} of {count}");
}

/// The encoders of some upstreams escape these on their own, in every link with an `&`.
#[test]
fn escapes_that_can_hide_nothing_do_not_matter() {
    let frame = |text: &str| {
        let delta = format!("{{\"content\":\"{text}\"}}");
        format!("data: {{\"choices\":[{{\"delta\":{delta},\"finish_reason\":null}}]}}\n\n")
    };
    for text in ["?a=1\\u0026b=2", "\\u003cb\\u003E", "caf\\u00e9", "\\u4f60", "\\u0000"] {
        assert!(!may_end(Kind::OpenAi, &frame(text)), "{text}");
    }
    for text in ["\\u0066", "\\u005c", "\\u0022", "\\u00", "\\u00g1"] {
        assert!(may_end(Kind::OpenAi, &frame(text)), "{text}");
    }
}
