//! Frames that are known by others, at a glance among them, change nothing but the time it takes.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    Context, End, Inject, Out, Pipeline,
    later::FROM,
    later_tests::{STREAMS, drain},
    tests::{CARD, END, context, settings},
    whole::Passed,
};
use crate::{
    provider::{Kind, stencil::Stencils},
    sse::{Cut, Splitter},
};

/// As it is, or with every frame read when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    AsItIs,
    AtOnce,
}

fn pipeline(kind: Kind, inject: Inject, how: How, cap: usize) -> Pipeline {
    let mut pipeline = Pipeline::new(Some(Context { provider: kind, ..context() }), settings(inject, cap));
    if how == How::AtOnce {
        pipeline.hurried = true;
        pipeline.later_from = usize::MAX;
        pipeline.tap.as_mut().unwrap().stencils = Stencils::none();
    }
    pipeline
}

fn drain_all(pipeline: &mut Pipeline, passed: &mut Passed) {
    drain(pipeline, passed);
    while pipeline.is_behind() {
        pipeline.catch_up();
        drain(pipeline, passed);
    }
}

/// Everything that can be told of a stream afterwards, its text by its length and where its markers stand.
fn pass(kind: Kind, inject: Inject, how: How, cap: usize, chunks: &[&[u8]], end: End) -> (Passed, String) {
    let (mut pipeline, mut passed) = (pipeline(kind, inject, how, cap), Passed::default());
    for chunk in chunks {
        pipeline.push(Bytes::copy_from_slice(chunk));
        drain_all(&mut pipeline, &mut passed);
    }
    pipeline.finish(end);
    drain_all(&mut pipeline, &mut passed);
    passed.tally = pipeline.tally();
    let seen = pipeline.tap().map(|tap| {
        let (marks, length) = tap.seen().ledger.marks();
        format!("{:?} {length} {:?} {:?}", marks.collect::<Vec<_>>(), tap.record(false), tap.seen().usage)
    });
    (passed, seen.unwrap_or_default())
}

fn frames(stream: &str) -> Vec<&str> {
    let (mut splitter, mut at, mut all) = (Splitter::default(), 0, Vec::new());
    while let Some(Cut::Frame(len) | Cut::Glue(len)) = splitter.advance(&stream.as_bytes()[at..]) {
        all.push(&stream[at..at + len]);
        at += len;
    }
    all
}

/// What is put between two quotes, or between two commas.
const INNER: &[&str] = &[
    "",
    " ",
    "a[1]",
    "[2]",
    "中文[3]",
    "{}",
    "{\\\"text\\\":\\\"b[4]\\\"}",
    "\\n",
    "\\u4e2d[5]",
    "\\ud800",
    "\\",
    "\\x",
    "\u{1}",
    "0",
    "1",
    "2",
    "102",
    "111",
    "10000",
    "10040",
    "true",
    "text",
    "content",
    "id",
    "stop",
    "null",
    "error",
    "finish",
];
const OUTER: &[&str] = &[
    "\"n\":0",
    "\"n\":7",
    "\"n\":07",
    "\"n\":-7",
    "\"n\":1.5",
    "\"n\":1e9",
    "\"n\":null",
    "\"text\":\"x[6]\"",
    "\"index\":1",
    "\"content\":\"y[7]\"",
    "\"is_stop\":true",
    "\"finish_reason\":\"stop\"",
    "\"usage\":{\"total_tokens\":3}",
    "[]",
    "{}",
    "",
];

/// A frame with something else in it: between the quotes of one of its strings, keys among them, or between commas.
fn varied(frame: &str, which: prop::sample::Index, inner: bool, with: prop::sample::Index) -> String {
    let (mark, pool) = if inner { ('"', INNER) } else { (',', OUTER) };
    let marks: Vec<usize> = frame.match_indices(mark).map(|(at, _)| at).collect();
    if marks.len() < 2 {
        return frame.to_owned();
    }
    let at = which.index(marks.len() - 1);
    format!("{}{}{}", &frame[..=marks[at]], pool[with.index(pool.len())], &frame[marks[at + 1]..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// P1, P3, P10: whatever a stream's frames have in common.
    #[test]
    fn frames_that_are_alike_are_read_as_they_would_have_been(
        stream in select(&STREAMS[..]),
        kind in select(vec![Kind::Doubao, Kind::Tencent, Kind::OpenAi, Kind::Auto]),
        inject in select(vec![Inject::Final, Inject::Off, Inject::Live]),
        end in select(vec![End::Clean, End::Cut, End::Shutdown]),
        cap in select(vec![1 << 20, 1 << 20, 400, 60]),
        (from, to) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        variants in vec((any::<prop::sample::Index>(), any::<bool>(), any::<prop::sample::Index>(), 0..3_usize), 0..24),
        framed in any::<bool>(),
        places in vec(any::<prop::sample::Index>(), 0..20),
    ) {
        // Some frames come again, and with something else in them, some of them several times.
        let mut all: Vec<String> = frames(&String::from_utf8_lossy(&stream)).into_iter().map(str::to_owned).collect();
        prop_assume!(!all.is_empty());
        let (from, to) = (from.index(all.len()), to.index(all.len() + 1));
        for (which, inner, with, again) in variants {
            let frame = all[from].clone();
            all.extend(std::iter::repeat_n(frame.clone(), again));
            all.push(varied(&frame, which, inner, with));
            let last = all.len() - 1;
            all[to.min(last)..].rotate_right(1);
        }
        let whole = all.concat().into_bytes();
        // Frame by frame, or broken anywhere.
        let mut at: Vec<usize> = if framed {
            all.iter().scan(0, |at, frame| { *at += frame.len(); Some(*at) }).collect()
        } else {
            places.iter().map(|place| place.index(whole.len() + 1)).collect()
        };
        at.extend([0, whole.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
        let (now, seen_now) = pass(kind, inject, How::AtOnce, cap, &chunks, end);
        let (later, seen_later) = pass(kind, inject, How::AsItIs, cap, &chunks, end);
        prop_assert_eq!(now.out(), later.out());
        prop_assert_eq!(now.ours(), later.ours());
        prop_assert_eq!(now.record, later.record);
        prop_assert_eq!(now.tally, later.tally);
        prop_assert_eq!(seen_now, seen_later);
    }
}

const DELTA: &str = "event: CHUNK_DELTA\ndata: {\"text\":\"x[1]\"}\n\n";
/// The same without its marker.
const PLAIN: &str = "event: CHUNK_DELTA\ndata: {\"text\":\"x\"}\n\n";

fn push(pipeline: &mut Pipeline, frame: &'static str) {
    pipeline.push(Bytes::from_static(frame.as_bytes()));
    assert_eq!(pipeline.take(), Some(Out::Bytes(Bytes::from_static(frame.as_bytes()))), "it has left");
}

/// One that knows its message, and has put off one chunk.
fn putting_off() -> Pipeline {
    let mut pipeline = pipeline(Kind::Doubao, Inject::Final, How::AsItIs, 1 << 20);
    push(&mut pipeline, CARD);
    push(&mut pipeline, PLAIN);
    assert!(pipeline.is_current(), "it has an id to be asked by, and a frame by which others are known");
    push(&mut pipeline, DELTA);
    assert!(!pipeline.is_current() && !pipeline.is_behind());
    pipeline
}

fn cites(pipeline: &Pipeline) -> usize {
    pipeline.tap().map_or(0, |tap| tap.record(false).citations.iter().filter(|citation| citation.cited).count())
}

/// The numbers in the answer as far as it was read, and its length.
fn marks(pipeline: &Pipeline) -> (Vec<u32>, u64) {
    let (marks, length) = pipeline.tap().unwrap().seen().ledger.marks();
    (marks.map(|mark| mark.number).collect(), length)
}

#[test]
fn small_chunks_are_read_together() {
    let mut pipeline = putting_off();
    let mut count = 1;
    while !pipeline.is_behind() {
        assert!(count < 1000 && cites(&pipeline) == 0, "{count}");
        push(&mut pipeline, DELTA);
        count += 1;
    }
    assert!(count > 50, "{count}");
    pipeline.catch_up();
    assert_eq!((cites(&pipeline), pipeline.is_current()), (1, true));
    assert_eq!(pipeline.tally().frames, 2 + count);
    push(&mut pipeline, DELTA);
    assert!(!pipeline.is_current(), "and so are the next ones");
}

#[test]
fn texts_for_which_there_is_no_room_are_read_after_those_before_them() {
    let mut pipeline = putting_off();
    // A marker over the edge of what is kept.
    let open = Bytes::from(DELTA.replace("x[1]", &("y".repeat(500) + "[")));
    pipeline.push(open.clone());
    assert!(!pipeline.is_current());
    let rest = Bytes::from(DELTA.replace("x[1]", &("2] [1]".to_owned() + &"z".repeat(300))));
    pipeline.push(rest);
    assert!(pipeline.is_current(), "it is read, and all before it");
    assert_eq!(marks(&pipeline), (vec![1, 2], 812), "each piece once");
    // Longer than all there is.
    pipeline.push(Bytes::from(DELTA.replace("x[1]", &"[3]".repeat(250))));
    assert!(pipeline.is_current());
}

#[test]
fn several_frames_of_a_chunk_are_known_or_none() {
    let mut pipeline = putting_off();
    let (two, other) = ([DELTA, DELTA].concat(), [DELTA, &DELTA.replace("CHUNK_DELTA", "OTHER")].concat());
    let frames = pipeline.tally().frames;
    pipeline.push(Bytes::from(two));
    assert!(!pipeline.is_current() && pipeline.tally().frames == frames + 2);
    pipeline.push(Bytes::from(other));
    assert!(pipeline.is_current() && pipeline.tally().frames == frames + 4);
    assert_eq!(marks(&pipeline), (vec![1], 1 + 4 * 4), "each piece once");
}

/// Otherwise nobody would notice that all of this is for nothing.
#[test]
fn most_small_frames_of_an_answer_are_known_at_a_glance() {
    let fixture = |name: &str| {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        std::fs::read_to_string(file).unwrap()
    };
    let openai: String = (0..50)
        .map(|n| {
            let choice = format!("{{\"index\":0,\"delta\":{{\"content\":\"词{n}\"}},\"finish_reason\":null}}");
            format!("data: {{\"id\":\"c\",\"created\":1,\"model\":\"m\",\"choices\":[{choice}]}}\n\n")
        })
        .collect();
    for (kind, stream) in [
        (Kind::Doubao, fixture("doubao/seed.sse")),
        (Kind::Doubao, fixture("doubao/chunk-delta.sse")),
        (Kind::Tencent, fixture("tencent/full.sse")),
        (Kind::OpenAi, openai),
    ] {
        let mut pipeline = pipeline(kind, Inject::Final, How::AsItIs, 1 << 20);
        let small: Vec<&str> = frames(&stream).into_iter().filter(|frame| frame.len() < FROM).collect();
        let known = small.iter().filter(|frame| {
            pipeline.push(Bytes::copy_from_slice(frame.as_bytes()));
            let known = !pipeline.is_current();
            drain_all(&mut pipeline, &mut Passed::default());
            pipeline.catch_up();
            known
        });
        let known = known.count();
        assert!(known * 4 > small.len() * 3, "{kind:?}: {known} of {}", small.len());
    }
}

#[test]
fn whatever_depends_on_what_was_put_off_waits_for_it() {
    let mut finish = putting_off();
    finish.push(Bytes::from_static(END.as_bytes()));
    assert!(matches!(finish.take(), Some(Out::Commit(record)) if record.stats.cited_count == 1));
    let mut end = putting_off();
    end.finish(End::Clean);
    assert!(matches!(end.take(), Some(Out::Commit(record)) if record.stats.cited_count == 1));
    assert!(putting_off().abandon().is_some_and(|record| record.stats.cited_count == 1), "P6");
    let mut large = putting_off();
    large.push(Bytes::from([b": ", &vec![b'x'; FROM][..], b"\n\n"].concat()));
    assert_eq!(cites(&large), 1);
    let mut cut = putting_off();
    cut.push(Bytes::from_static(b"event: CHUNK"));
    assert_eq!((cites(&cut), cut.take()), (1, None), "part of a frame");
}

#[test]
fn nothing_is_put_off_once_somebody_asked_and_before_anybody_can() {
    let mut asked = putting_off();
    asked.hurry();
    assert_eq!((cites(&asked), asked.is_current()), (1, true));
    asked.push(Bytes::from_static(DELTA.as_bytes()));
    assert!(asked.is_current());
    let current = |inject, first: &str| {
        let mut pipeline = pipeline(Kind::Doubao, inject, How::AsItIs, 1 << 20);
        pipeline.push(Bytes::copy_from_slice(first.as_bytes()));
        pipeline.push(Bytes::from_static(PLAIN.as_bytes()));
        pipeline.push(Bytes::from_static(DELTA.as_bytes()));
        pipeline.is_current()
    };
    assert!(current(Inject::Final, "event: SSE_HEARTBEAT\ndata: {}\n\n"), "no id yet");
    assert!(current(Inject::Live, CARD), "its list may grow with any frame");
    assert!(!current(Inject::Final, CARD) && !current(Inject::Off, CARD));
}

#[test]
fn a_frame_beyond_the_cap_is_not_read_later_either() {
    let large = format!(": {}\n{DELTA}", "x".repeat(CARD.len()));
    let alike = DELTA.replace("x[1]", &("x".repeat(CARD.len()) + "[1]"));
    for (one, other) in [("", &large), (&*DELTA.replace("[1]", ""), &alike)] {
        for frames in [vec![CARD, one, other, END], vec![&*[CARD, one, other, END].concat()]] {
            let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, CARD.len()));
            frames.iter().for_each(|frame| pipeline.push(Bytes::copy_from_slice(frame.as_bytes())));
            drain_all(&mut pipeline, &mut Passed::default());
            assert_eq!((cites(&pipeline), pipeline.tally().oversized), (0, 1), "{frames:?}");
        }
    }
}
