use crate::profile::OutputFormat;
use std::sync::Arc;

use super::{offline::OfflineOutput, *};
use crate::provider::{FinishReason, Signal};

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

fn pass(inject: Inject, frame_cap: usize, chunks: &[&str], end: crate::pipeline::End) -> OfflineOutput {
    let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
    offline::run(context(), settings(inject, frame_cap), chunks, end, true)
}

/// Upstream pieces as their length, ours as `*`.
pub(super) fn shape(passed: &OfflineOutput) -> String {
    let parts: Vec<String> = passed
        .pieces
        .iter()
        .map(|(ours, piece)| if *ours { "*".to_owned() } else { piece.len().to_string() })
        .collect();
    parts.join(" ")
}

#[test]
fn one_chunk_leaves_as_one_piece_around_our_event() {
    let stream = [CARD, CARD, END, END].concat();
    let passed = pass(Inject::Final, 1 << 20, &[&stream], super::End::Clean);
    assert_eq!(shape(&passed), format!("{} * {}", 2 * CARD.len(), 2 * END.len()));
}

/// P3: a name behind a byte order mark is read like any other, however large the chunk is.
#[test]
fn p3_a_finish_behind_a_bom_in_a_large_chunk_follows_our_event() {
    let large = CARD.replace("\"T\"", &format!("\"{}\"", "T".repeat(2048)));
    let end = format!("\u{feff}{END}");
    let passed = pass(Inject::Final, 1 << 20, &[&(end.clone() + &large)], super::End::Clean);
    assert!(
        passed.stream_stats.finished && passed.injected().is_empty(),
        "what comes after the finish is not injected"
    );
    assert_eq!(passed.record.map(|record| (record.complete, record.citations.len())), Some((true, 1)));
    let passed = pass(Inject::Final, 1 << 20, &[&format!("\u{feff}{large}{END}")], super::End::Clean);
    assert_eq!(shape(&passed), format!("{} * {}", 3 + large.len(), END.len()));
}

/// P10: also within a BOM, and between a CR and its LF.
#[test]
fn p10_a_stream_broken_at_any_byte_is_read_the_same() {
    for (eol, end) in [("\n", ""), ("\n", END), ("\r\n", ""), ("\r\n", END), ("\r", ""), ("\r", END)] {
        let stream = format!("\u{feff}{CARD}: comment\n\n\n{CARD}{end}{CARD}").replace('\n', eol);
        let told = |chunks: &[&str]| {
            let passed = pass(Inject::Final, 1 << 20, chunks, super::End::Clean);
            (passed.out(), passed.record, passed.stream_stats)
        };
        let whole = told(&[&stream]);
        for at in (0..stream.len()).filter(|at| stream.is_char_boundary(*at)) {
            assert_eq!(told(&[&stream[..at], &stream[at..]]), whole, "{eol:?}, {end:?}, at {at}");
        }
    }
}

#[test]
fn an_incomplete_frame_is_held_only_while_our_event_is_due() {
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    pipeline.push(Bytes::from_static(b"data: {}\n\ndata: {\"par"));
    assert_eq!(pipeline.take(), Some(Output::Bytes(Bytes::from_static(b"data: {}\n\n"))));
    assert_eq!(pipeline.take(), None);
    let mut off = Pipeline::new(Some(context()), settings(Inject::Off, 1 << 20));
    off.push(Bytes::from_static(b"data: {}\n\ndata: {\"par"));
    assert_eq!(off.take(), Some(Output::Bytes(Bytes::from_static(b"data: {}\n\ndata: {\"par"))));
}

#[test]
fn a_frame_is_tapped_at_its_cap_and_passed_untapped_over_it() {
    for (cap, tapped) in [(CARD.len(), true), (CARD.len() - 1, false)] {
        for chunks in [vec![CARD, END], CARD.split_inclusive(',').chain([END]).collect()] {
            let passed = pass(Inject::Final, cap, &chunks, super::End::Clean);
            assert_eq!(passed.stream_stats.injected, tapped, "cap {cap}, {} chunks", chunks.len());
            assert_eq!(passed.stream_stats.oversized, u64::from(!tapped));
            assert_eq!(passed.upstream_bytes(), [CARD, END].concat().as_bytes());
        }
    }
}

/// A frame is whole with the CR of its blank line, whether or not an LF comes with it.
#[test]
fn p10_the_cap_of_a_frame_does_not_depend_on_its_chunks() {
    let [card, end] = [CARD, END].map(|frame| frame.replace('\n', "\r\n"));
    let whole = format!("{card}{end}");
    for output_format in [OutputFormat::default(), OutputFormat { markers: Style::Link, ..OutputFormat::default() }] {
        for (cap, tapped) in [(card.len(), true), (card.len() - 1, true), (card.len() - 2, false)] {
            for at in 1..whole.len() {
                let settings = Settings { output_format, ..settings(Inject::Final, cap) };
                let chunks = [&whole[..at], &whole[at..]].map(|chunk| Bytes::from(chunk.to_owned()));
                let passed = offline::run(context(), settings, chunks, super::End::Clean, true);
                assert_eq!(passed.stream_stats.injected, tapped, "cap {cap}, split at {at}");
                assert_eq!(passed.upstream_bytes(), whole.as_bytes());
            }
        }
    }
}

#[test]
fn all_streams_together_hold_no_more_than_the_budget_and_give_it_back() {
    let budget = Budget::new(8);
    let settings = Settings { budget: Arc::clone(&budget), ..settings(Inject::Final, 1 << 20) };
    let mut first = Pipeline::new(Some(context()), settings.clone());
    first.push(Bytes::from_static(b"data: 1"));
    assert_eq!((first.take(), budget.used()), (None, 7));
    let mut second = Pipeline::new(Some(context()), settings);
    second.push(Bytes::from_static(b"data: 2"));
    assert_eq!(second.take(), Some(Output::Bytes(Bytes::from_static(b"data: 2"))), "passed untapped");
    drop(first);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_cut_in_mid_frame_puts_our_event_before_the_part() {
    let passed = pass(Inject::Final, 1 << 20, &[CARD, "data: {\"par"], super::End::Cut);
    assert_eq!(shape(&passed), format!("{} * 11", CARD.len()));
    assert_eq!(passed.record.map(|record| record.complete), Some(false));
}

/// A frame that waits for an open marker is not lost with the oversized one behind it.
#[test]
fn what_waits_for_a_marker_goes_out_at_the_end() {
    let stream = format!("event: CHUNK_DELTA\ndata: {{\"text\":\"a [\"}}\n\ndata: {}", "x".repeat(100));
    for end in [super::End::Clean, super::End::Cut] {
        let output_format = OutputFormat { markers: Style::Link, ..OutputFormat::default() };
        let settings = Settings { output_format, ..settings(Inject::Final, 64) };
        let passed = offline::run(context(), settings, [Bytes::from(stream.clone())], end, true);
        assert_eq!(String::from_utf8_lossy(&passed.out()), stream, "{end:?}");
    }
}

#[test]
fn a_clean_end_without_a_finish_is_not_complete() {
    let passed = pass(Inject::Final, 1 << 20, &[CARD], super::End::Clean);
    assert_eq!(shape(&passed), format!("{} *", CARD.len()));
    assert_eq!(passed.record.map(|record| record.complete), Some(false));
}

#[test]
fn a_last_frame_without_its_blank_line_is_read_if_it_is_whole() {
    let end = END.trim_end();
    let passed = pass(Inject::Final, 1 << 20, &[CARD, end], super::End::Clean);
    assert_eq!(shape(&passed), format!("{} * {}", CARD.len(), end.len()));
    assert_eq!(passed.record.map(|record| record.complete), Some(true));
}

#[test]
fn what_comes_after_the_finish_updates_the_record_only() {
    let late = CARD.replace("a.example", "b.example").replace("\"index\":1", "\"index\":2");
    let passed = pass(Inject::Final, 1 << 20, &[CARD, END, &late], super::End::Clean);
    assert_eq!(passed.injected().len(), 1);
    let record = passed.record.map(|record| (record.late, record.complete, record.citations.len()));
    assert_eq!(record, Some((true, true, 2)));
}

#[test]
fn live_events_stop_at_their_cap_and_the_final_one_comes_all_the_same() {
    let frames: Vec<String> = (1..=MAX_LIVE_EVENTS + 5)
        .map(|n| CARD.replace("a.example", &format!("h{n}.example")).replace("\"index\":1", &format!("\"index\":{n}")))
        .collect();
    let chunks: Vec<&str> = frames.iter().map(String::as_str).chain([END]).collect();
    let passed = pass(Inject::Live, 1 << 20, &chunks, super::End::Clean);
    assert_eq!(passed.injected().len(), MAX_LIVE_EVENTS as usize + 1);
}

/// A frame that ended in CR was followed, in the next chunk, by no LF: the live event came a frame late.
#[test]
fn a_live_event_follows_its_frame_also_where_a_chunk_ends_in_cr() {
    let card = CARD.replace('\n', "\r");
    let stream = [card.as_str(), "data: {}\r\r", END].concat();
    for markers in [Style::Keep, Style::Link] {
        let output_format = OutputFormat { markers, ..OutputFormat::default() };
        let told = |chunks: &[&str]| {
            let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
            let settings = Settings { output_format, ..settings(Inject::Live, 1 << 20) };
            let passed = offline::run(context(), settings, chunks, super::End::Clean, true);
            (passed.injected().len(), passed.out())
        };
        let (whole, cut) = (told(&[&stream]), told(&[&card, &stream[card.len()..]]));
        assert_eq!((whole.0, whole.1), cut, "{markers:?}");
        assert_eq!(cut.0, 2, "{markers:?}");
    }
}

#[test]
fn heartbeats_stand_between_frames_before_the_finish_and_never_after_an_id() {
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    assert_eq!(pipeline.heartbeat(), None, "a BOM may still come");
    pipeline.push(Bytes::from_static(b"data: {}\r\n\r\n"));
    assert_eq!(pipeline.heartbeat(), None, "something is on its way out");
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

#[test]
fn who_leaves_leaves_the_record_behind_once() {
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    pipeline.push(Bytes::from_static(CARD.as_bytes()));
    let record = pipeline.abandon();
    assert_eq!(record.map(|record| (record.complete, record.citations.len())), Some((false, 1)));
    assert_eq!(pipeline.abandon(), None);
    // With the store already: not a second time.
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
fn our_line_stays_under_64_kib_whatever_the_list() {
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
        let passed = pass(Inject::Final, 8 << 20, &[&frame, END], super::End::Clean);
        let ours = passed.injected();
        let data = Event::read(ours[0]).data.map(|data| data.len());
        assert!(data.is_some_and(|len| len < crate::profile::native::MAX_LINE), "{count}: {data:?}");
        assert_eq!(passed.record.map(|record| record.citations.len()), Some(count));
    }
}

/// Panics at the second frame.
struct Panics(u32);

impl crate::provider::Adapter for Panics {
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
fn p2_an_adapter_that_panics_leaves_a_passthrough() {
    let stream = [CARD, CARD, "data: part", "ial\n\n", CARD, END].concat();
    for size in [1, 7, stream.len()] {
        let mut pipeline = Pipeline::new(None, settings(Inject::Final, 1 << 20));
        pipeline.tap = Some(Box::new(Tap::with_adapter(Box::new(Panics(0)), context())));
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

/// Says a piece of text, and the finish if it is to, then panics.
struct PanicsLater {
    finish: bool,
    frames: u32,
}

impl crate::provider::Adapter for PanicsLater {
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

/// In another dialect the upstream's bytes are no passthrough: the client hears of it, unless it has its answer.
#[test]
fn p2_an_adapter_that_panics_is_an_error_of_the_dialect_until_the_answer_has_ended() {
    for finish in [false, true] {
        let output_format = OutputFormat { profile: crate::profile::Profile::OpenAi, ..OutputFormat::default() };
        let mut pipeline =
            Pipeline::new(Some(context()), Settings { output_format, ..settings(Inject::Final, 1 << 20) });
        pipeline.tap = Some(Box::new(Tap::with_adapter(Box::new(PanicsLater { finish, frames: 0 }), context())));
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
fn without_a_dialect_the_record_travels_bare() {
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
