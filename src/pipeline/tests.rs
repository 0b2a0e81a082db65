use crate::profile::OutputFormat;
use std::sync::Arc;

use super::{offline::OfflineOutput, *};
use crate::provider::{FinishReason, Provider, Signal};

pub(super) const CARD: &str = "event: STREAM_CHUNK\ndata: {\"message_id\":\"12\",\"patch_op\":[{\"patch_object\":1,\"patch_value\":{\"content_block\":[{\"block_type\":10025,\"block_id\":\"b\",\"content\":{\"search_query_result_block\":{\"results\":[{\"text_card\":{\"index\":1,\"title\":\"T\",\"url\":\"https://a.example.com/\"}}]}}}]}}]}\n\n";
pub(super) const END: &str = "event: SSE_REPLY_END\ndata: {\"end_type\":1}\n\n";

pub(super) fn context() -> Context {
    Context {
        route: "r".to_owned(),
        provider: crate::provider::doubao::PROVIDER,
        link_base: None,
        nonce: "n".to_owned(),
        created: jiff::Timestamp::UNIX_EPOCH,
        fallback_id: "fallback".to_owned(),
        task: None,
        rules: crate::config::default_rules(),
    }
}

pub(super) fn settings(inject: Inject, frame_cap: usize) -> Settings {
    Settings {
        inject,
        emit_empty: false,
        output_format: OutputFormat::default(),
        supplement: Supplement::Off,
        single_document: false,
        frame_cap,
        budget: Budget::new(1 << 20),
    }
}

fn run(inject: Inject, frame_cap: usize, chunks: &[&str], end: crate::pipeline::End) -> OfflineOutput {
    let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
    offline::run(context(), settings(inject, frame_cap), chunks, end, true)
}

/// Describes the output: a piece of the upstream as its length, an event as `*`.
pub(super) fn shape(output: &OfflineOutput) -> String {
    let parts: Vec<String> = output
        .pieces
        .iter()
        .map(|(injected, piece)| if *injected { "*".to_owned() } else { piece.len().to_string() })
        .collect();
    parts.join(" ")
}

#[test]
fn single_chunk_is_split_only_at_the_event() {
    let stream = [CARD, CARD, END, END].concat();
    let output = run(Inject::Final, 1 << 20, &[&stream], super::End::Clean);
    assert_eq!(shape(&output), format!("{} * {}", 2 * CARD.len(), 2 * END.len()));
}

/// P3: the event name after a BOM is read, also in a large chunk.
#[test]
fn p3_finish_after_a_bom_in_a_large_chunk_is_read() {
    let large = CARD.replace("\"T\"", &format!("\"{}\"", "T".repeat(2048)));
    let end = format!("\u{feff}{END}");
    let output = run(Inject::Final, 1 << 20, &[&(end.clone() + &large)], super::End::Clean);
    assert!(output.stream_stats.finished && output.injected().is_empty(), "no event follows the finish");
    assert_eq!(output.record.map(|record| (record.complete, record.citations.len())), Some((true, 1)));
    let output = run(Inject::Final, 1 << 20, &[&format!("\u{feff}{large}{END}")], super::End::Clean);
    assert_eq!(shape(&output), format!("{} * {}", 3 + large.len(), END.len()));
}

/// P10: the split may be next to a BOM, or between a CR and its LF.
#[test]
fn p10_stream_split_at_any_byte_gives_equal_output() {
    for (eol, end) in [("\n", ""), ("\n", END), ("\r\n", ""), ("\r\n", END), ("\r", ""), ("\r", END)] {
        let stream = format!("\u{feff}{CARD}: comment\n\n\n{CARD}{end}{CARD}").replace('\n', eol);
        let result = |chunks: &[&str]| {
            let output = run(Inject::Final, 1 << 20, chunks, super::End::Clean);
            (output.out(), output.record, output.stream_stats)
        };
        let expected = result(&[&stream]);
        for at in (0..stream.len()).filter(|at| stream.is_char_boundary(*at)) {
            assert_eq!(result(&[&stream[..at], &stream[at..]]), expected, "{eol:?}, {end:?}, at {at}");
        }
    }
}

#[test]
fn incomplete_frame_is_held_only_while_event_is_due() {
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    pipeline.push(Bytes::from_static(b"data: {}\n\ndata: {\"par"));
    assert_eq!(pipeline.take(), Some(Output::Bytes(Bytes::from_static(b"data: {}\n\n"))));
    assert_eq!(pipeline.take(), None);
    let mut off = Pipeline::new(Some(context()), settings(Inject::Off, 1 << 20));
    off.push(Bytes::from_static(b"data: {}\n\ndata: {\"par"));
    assert_eq!(off.take(), Some(Output::Bytes(Bytes::from_static(b"data: {}\n\ndata: {\"par"))));
}

#[test]
fn frame_at_cap_is_read_and_above_it_relayed_unread() {
    for (cap, is_read) in [(CARD.len(), true), (CARD.len() - 1, false)] {
        for chunks in [vec![CARD, END], CARD.split_inclusive(',').chain([END]).collect()] {
            let output = run(Inject::Final, cap, &chunks, super::End::Clean);
            assert_eq!(output.stream_stats.injected, is_read, "cap {cap}, {} chunks", chunks.len());
            assert_eq!(output.stream_stats.oversized, u64::from(!is_read));
            assert_eq!(output.upstream_bytes(), [CARD, END].concat().as_bytes());
        }
    }
}

/// A frame is complete at the CR of its blank line. The LF after it does not count towards the cap.
#[test]
fn p10_frame_cap_does_not_depend_on_chunking() {
    let [card, end] = [CARD, END].map(|frame| frame.replace('\n', "\r\n"));
    let stream = format!("{card}{end}");
    for output_format in [OutputFormat::default(), OutputFormat { markers: Style::Link, ..OutputFormat::default() }] {
        for (cap, is_read) in [(card.len(), true), (card.len() - 1, true), (card.len() - 2, false)] {
            for at in 1..stream.len() {
                let settings = Settings { output_format, ..settings(Inject::Final, cap) };
                let chunks = [&stream[..at], &stream[at..]].map(|chunk| Bytes::from(chunk.to_owned()));
                let output = offline::run(context(), settings, chunks, super::End::Clean, true);
                assert_eq!(output.stream_stats.injected, is_read, "cap {cap}, split at {at}");
                assert_eq!(output.upstream_bytes(), stream.as_bytes());
            }
        }
    }
}

#[test]
fn all_streams_together_stay_within_the_budget() {
    let budget = Budget::new(8);
    let settings = Settings { budget: Arc::clone(&budget), ..settings(Inject::Final, 1 << 20) };
    let mut first = Pipeline::new(Some(context()), settings.clone());
    first.push(Bytes::from_static(b"data: 1"));
    assert_eq!((first.take(), budget.used()), (None, 7));
    let mut second = Pipeline::new(Some(context()), settings);
    second.push(Bytes::from_static(b"data: 2"));
    assert_eq!(second.take(), Some(Output::Bytes(Bytes::from_static(b"data: 2"))), "relayed unread");
    drop(first);
    assert_eq!(budget.used(), 0);
}

#[test]
fn cut_inside_a_frame_puts_the_event_before_it() {
    let output = run(Inject::Final, 1 << 20, &[CARD, "data: {\"par"], super::End::Cut);
    assert_eq!(shape(&output), format!("{} * 11", CARD.len()));
    assert_eq!(output.record.map(|record| record.complete), Some(false));
}

/// A frame that is held for an open marker is not lost when an oversized frame follows.
#[test]
fn frame_held_for_a_marker_is_emitted_at_the_end() {
    let stream = format!("event: CHUNK_DELTA\ndata: {{\"text\":\"a [\"}}\n\ndata: {}", "x".repeat(100));
    for end in [super::End::Clean, super::End::Cut] {
        let output_format = OutputFormat { markers: Style::Link, ..OutputFormat::default() };
        let settings = Settings { output_format, ..settings(Inject::Final, 64) };
        let output = offline::run(context(), settings, [Bytes::from(stream.clone())], end, true);
        assert_eq!(String::from_utf8_lossy(&output.out()), stream, "{end:?}");
    }
}

#[test]
fn clean_end_without_finish_is_incomplete() {
    let output = run(Inject::Final, 1 << 20, &[CARD], super::End::Clean);
    assert_eq!(shape(&output), format!("{} *", CARD.len()));
    assert_eq!(output.record.map(|record| record.complete), Some(false));
}

#[test]
fn complete_last_frame_without_blank_line_is_read() {
    let end = END.trim_end();
    let output = run(Inject::Final, 1 << 20, &[CARD, end], super::End::Clean);
    assert_eq!(shape(&output), format!("{} * {}", CARD.len(), end.len()));
    assert_eq!(output.record.map(|record| record.complete), Some(true));
}

#[test]
fn references_after_the_finish_update_only_the_record() {
    let late = CARD.replace("a.example", "b.example").replace("\"index\":1", "\"index\":2");
    let output = run(Inject::Final, 1 << 20, &[CARD, END, &late], super::End::Clean);
    assert_eq!(output.injected().len(), 1);
    let record = output.record.map(|record| (record.late, record.complete, record.citations.len()));
    assert_eq!(record, Some((true, true, 2)));
}

#[test]
fn live_events_are_capped_and_the_final_one_follows() {
    let frames: Vec<String> = (1..=MAX_LIVE_EVENTS + 5)
        .map(|n| CARD.replace("a.example", &format!("h{n}.example")).replace("\"index\":1", &format!("\"index\":{n}")))
        .collect();
    let chunks: Vec<&str> = frames.iter().map(String::as_str).chain([END]).collect();
    let output = run(Inject::Live, 1 << 20, &chunks, super::End::Clean);
    assert_eq!(output.injected().len(), MAX_LIVE_EVENTS as usize + 1);
}

/// Regression: if the chunk after a final CR did not start with an LF, the live event came one frame late.
#[test]
fn live_event_follows_a_frame_that_ends_in_cr() {
    let card = CARD.replace('\n', "\r");
    let stream = [card.as_str(), "data: {}\r\r", END].concat();
    for markers in [Style::Keep, Style::Link] {
        let output_format = OutputFormat { markers, ..OutputFormat::default() };
        let result = |chunks: &[&str]| {
            let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
            let settings = Settings { output_format, ..settings(Inject::Live, 1 << 20) };
            let output = offline::run(context(), settings, chunks, super::End::Clean, true);
            (output.injected().len(), output.out())
        };
        let (unsplit, split) = (result(&[&stream]), result(&[&card, &stream[card.len()..]]));
        assert_eq!(unsplit, split, "{markers:?}");
        assert_eq!(split.0, 2, "{markers:?}");
    }
}

#[test]
fn heartbeat_is_sent_only_between_frames_of_the_answer() {
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    assert_eq!(pipeline.heartbeat(), None, "a BOM may still follow");
    pipeline.push(Bytes::from_static(b"data: {}\r\n\r\n"));
    assert_eq!(pipeline.heartbeat(), None, "an output is pending");
    let _ = pipeline.take();
    assert_eq!(pipeline.heartbeat().as_deref(), Some(&b": citetap\r\n\r\n"[..]));
    pipeline.push(Bytes::from_static(b"id: 1\r\ndata: {}\r\n\r\n"));
    let _ = pipeline.take();
    assert_eq!(pipeline.heartbeat(), None, "after an id");
    let mut ended = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    ended.push(Bytes::from_static(END.as_bytes()));
    while ended.take().is_some() {}
    assert_eq!(ended.heartbeat(), None, "after the finish");
}

/// Some of Google's SDKs fail on a line that does not start with `data:`.
#[test]
fn stream_whose_clients_refuse_comments_has_only_data_lines() {
    let chunk = |finish: &str| {
        format!(
            "data: {{\"candidates\":[{{\"groundingMetadata\":{{\"groundingChunks\":[{{\"web\":{{\"title\":\"T\"}}}}]}}{finish}}}]}}\r\n\r\n"
        )
    };
    for provider in [crate::provider::gemini::PROVIDER, Provider::AUTO] {
        let mut pipeline = Pipeline::new(Some(Context { provider, ..context() }), settings(Inject::Live, 1 << 20));
        let mut out = Vec::new();
        for frame in [chunk(""), chunk(",\"finishReason\":\"STOP\"")] {
            pipeline.push(Bytes::from(frame));
            while let Some(next) = pipeline.take() {
                match next {
                    Output::Bytes(bytes) | Output::Event(bytes) => out.extend_from_slice(&bytes),
                    Output::Commit(_) => pipeline.committed(true),
                    Output::Store(_) | Output::AwaitSearch => {}
                }
            }
            assert_eq!(pipeline.heartbeat(), None, "{provider:?}");
        }
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.matches("\"citations\":{").count(), 2, "{out}");
        assert!(out.split("\r\n").all(|line| line.is_empty() || line.starts_with("data: {")), "{out}");
    }
}

#[test]
fn abandon_returns_the_record_once() {
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    pipeline.push(Bytes::from_static(CARD.as_bytes()));
    let record = pipeline.abandon();
    assert_eq!(record.map(|record| (record.complete, record.citations.len())), Some((false, 1)));
    assert_eq!(pipeline.abandon(), None);
    // The store already has the record.
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    pipeline.push(Bytes::from([CARD, END].concat()));
    while let Some(out) = pipeline.take() {
        if matches!(out, Output::Commit(_)) {
            break;
        }
    }
    assert_eq!(pipeline.abandon(), None);
}

#[test]
fn event_line_stays_under_64_kib_for_any_list() {
    let cards: Vec<String> = (1..=1000)
        .map(|n| {
            let (url, text) = (format!("https://h{n}.example.com/{}", "x".repeat(200)), "长".repeat(900));
            format!(
                "{{\"text_card\":{{\"index\":{n},\"title\":\"标题{n}\",\"url\":\"{url}\",\"summary\":\"{text}\"}}}}"
            )
        })
        .collect();
    for count in [1, 20, 100, 1000] {
        let frame = CARD.replace(
            "{\"text_card\":{\"index\":1,\"title\":\"T\",\"url\":\"https://a.example.com/\"}}",
            &cards[..count].join(","),
        );
        let output = run(Inject::Final, 8 << 20, &[&frame, END], super::End::Clean);
        let events = output.injected();
        let data = Event::read(events[0]).data.map(|data| data.len());
        assert!(data.is_some_and(|len| len < crate::profile::native::MAX_LINE), "{count}: {data:?}");
        assert_eq!(output.record.map(|record| record.citations.len()), Some(count));
    }
}

/// Adapter that panics at the second frame.
struct PanickingAdapter(u32);

impl crate::provider::Adapter for PanickingAdapter {
    fn provider(&self) -> Option<&'static str> {
        Some("panics")
    }

    fn frame(&mut self, _: &Event<'_>, _: &mut dyn crate::provider::Sink) -> Result<(), crate::provider::ParseError> {
        self.0 += 1;
        assert!(self.0 < 2, "an adapter with a bug");
        Ok(())
    }
}

#[test]
fn p2_adapter_panic_turns_into_passthrough() {
    let stream = [CARD, CARD, "data: part", "ial\n\n", CARD, END].concat();
    for size in [1, 7, stream.len()] {
        let mut pipeline = Pipeline::new(None, settings(Inject::Final, 1 << 20));
        pipeline.tap = Some(Box::new(Tap::with_adapter(Box::new(PanickingAdapter(0)), context())));
        let mut out = Vec::new();
        for chunk in stream.as_bytes().chunks(size) {
            pipeline.push(Bytes::copy_from_slice(chunk));
            while let Some(piece) = pipeline.take() {
                if let Output::Bytes(bytes) = piece {
                    out.extend_from_slice(&bytes);
                }
            }
        }
        pipeline.finish(super::End::Clean);
        assert_eq!(pipeline.take(), None);
        assert_eq!(out, stream.as_bytes());
        assert!(pipeline.stream_stats().panicked && !pipeline.stream_stats().injected);
    }
}

/// Adapter that sends text, and a finish if `finish` is set, and panics at the second frame.
struct TextThenPanic {
    finish: bool,
    frames: u32,
}

impl crate::provider::Adapter for TextThenPanic {
    fn provider(&self) -> Option<&'static str> {
        Some("panics")
    }

    fn frame(
        &mut self,
        _: &Event<'_>,
        sink: &mut dyn crate::provider::Sink,
    ) -> Result<(), crate::provider::ParseError> {
        self.frames += 1;
        assert!(self.frames < 2, "an adapter with a bug");
        sink.signal(Signal::Text("half [", crate::provider::JsonPath::ROOT));
        if self.finish {
            sink.signal(Signal::Finish(FinishReason::Stop));
        }
        Ok(())
    }
}

/// A transcoded client cannot get the upstream's bytes, so it gets an error, unless its answer has ended.
#[test]
fn p2_adapter_panic_before_the_end_is_a_dialect_error() {
    for finish in [false, true] {
        let output_format = OutputFormat { profile: crate::profile::Profile::OpenAi, ..OutputFormat::default() };
        let mut pipeline =
            Pipeline::new(Some(context()), Settings { output_format, ..settings(Inject::Final, 1 << 20) });
        pipeline.tap = Some(Box::new(Tap::with_adapter(Box::new(TextThenPanic { finish, frames: 0 }), context())));
        pipeline.push(Bytes::from([CARD, CARD, CARD].concat()));
        pipeline.finish(super::End::Clean);
        let mut out = Vec::new();
        while let Some(piece) = pipeline.take() {
            if let Output::Bytes(bytes) = piece {
                out.extend_from_slice(&bytes);
            }
        }
        let out = String::from_utf8_lossy(&out);
        assert!(pipeline.stream_stats().panicked);
        assert!(out.contains("half [") && out.ends_with("data: [DONE]\n\n"), "{out}");
        assert_eq!(out.matches("\"error\"").count(), usize::from(!finish), "{out}");
        assert_eq!(out.matches("\"finish_reason\":\"stop\"").count(), usize::from(finish), "{out}");
    }
}

#[test]
fn native_frame_without_envelope_holds_the_bare_record() {
    let record = Tap::new(context()).record(false);
    let frame = crate::profile::native::frame(
        record.clone(),
        &crate::provider::Envelope::from_record,
        Some(&Default::default()),
        Eol::Lf,
    );
    let event = Event::read(&frame);
    assert_eq!(event.name, "citations");
    let read: Option<crate::citation::Record> = event.data.and_then(|data| serde_json::from_str(&data).ok());
    assert_eq!(read, Some(record));
}
