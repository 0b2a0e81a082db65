use std::{
    fs,
    future::ready,
    path::PathBuf,
    pin::Pin,
    sync::LazyLock,
    task::{Context as Task, Poll, Waker},
    time::Duration,
};

use http_body::{Body, Frame};
use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    body::{BoxError, Clocks, Commit, Keeper, Report, Supplying, TapBody},
    later,
    tap::Tap,
    tests::{CARD, END, context, settings},
    whole::Passed,
    *,
};
use crate::{
    citation::supplement::Supply,
    provider::{Adapter, Ends, Envelope, Kind, Sink, Unread},
};

/// Two cards that are worth passing on first.
fn cards() -> Bytes {
    let long = CARD.replace("\"T\"", &format!("\"{}\"", "T".repeat(later::FROM)));
    Bytes::from(long.clone() + &long.replace("a.example", "b.example").replace("\"index\":1", "\"index\":2"))
}

fn cited(pipeline: &Pipeline) -> usize {
    pipeline.tap().map_or(0, |tap| tap.record(false).citations.len())
}

#[test]
fn bytes_leave_before_they_are_read_and_are_read_all_the_same() {
    for inject in [Inject::Final, Inject::Off] {
        let mut pipeline = Pipeline::new(Some(context()), settings(inject, 1 << 20));
        pipeline.push(cards());
        assert_eq!(pipeline.take(), Some(Out::Bytes(cards())), "{inject:?}");
        assert_eq!((pipeline.is_behind(), cited(&pipeline)), (true, 0), "{inject:?}");
        let record = pipeline.abandon();
        assert_eq!(record.map(|record| record.citations.len()), Some(2), "{inject:?}");
        assert!(!pipeline.is_behind(), "{inject:?}");
    }
}

#[test]
fn whatever_depends_on_the_reading_waits_for_it() {
    let pushed = || {
        let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
        pipeline.push([b"id: 1\n".as_slice(), &cards()].concat().into());
        assert!(matches!(pipeline.take(), Some(Out::Bytes(_))) && pipeline.is_behind());
        pipeline
    };
    let mut next = pushed();
    next.push(Bytes::from_static(b"data"));
    assert_eq!((next.take(), cited(&next)), (None, 2));
    let mut end = pushed();
    end.finish(super::End::Clean);
    assert!(matches!(end.take(), Some(Out::Commit(record)) if record.citations.len() == 2));
    assert_eq!(pushed().heartbeat(), None, "after an id");
}

#[test]
fn what_may_be_the_finish_is_read_first_and_what_comes_before_it_is_not() {
    let mut pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
    pipeline.push([&*cards(), END.as_bytes()].concat().into());
    assert_eq!(pipeline.take(), Some(Out::Bytes(cards())));
    assert_eq!((pipeline.is_behind(), cited(&pipeline)), (true, 0));
    assert!(matches!(pipeline.take(), Some(Out::Commit(record)) if record.citations.len() == 2));
}

#[test]
fn small_chunks_large_ones_and_live_ones_are_read_first() {
    let behind = |inject, chunk: &[u8]| {
        let mut pipeline = Pipeline::new(Some(context()), settings(inject, 1 << 20));
        pipeline.push(Bytes::copy_from_slice(chunk));
        pipeline.is_behind()
    };
    let comment = |len: usize| [&vec![b':'; len - 2], b"\n\n".as_slice()].concat();
    assert!(behind(Inject::Final, &comment(later::FROM)) && !behind(Inject::Final, &comment(later::FROM - 1)));
    assert!(behind(Inject::Final, &comment(later::MOST)) && !behind(Inject::Final, &comment(later::MOST + 1)));
    assert!(!behind(Inject::Live, &comment(later::FROM)));
}

/// Counts how often it was told of progress, and the sources that it then saw.
#[derive(Default)]
struct Counts {
    progress: usize,
    sources: usize,
}

impl Keeper for Counts {
    fn supplement(&mut self) -> Supplying {
        Box::pin(ready(Supply::None))
    }

    fn commit(&mut self, _: Box<Record>) -> Commit {
        Box::pin(ready(true))
    }

    fn store(&mut self, _: Box<Record>) {}

    fn listens(&self) -> bool {
        true
    }
    fn came(&mut self, _: Option<&Tap>) {}

    fn progress(&mut self, tap: &Tap) {
        self.progress += 1;
        self.sources = tap.citable();
    }

    fn tell(&mut self, tap: &Tap) {
        self.sources = tap.citable();
    }

    fn ended(&mut self, _: &Report, _: &Pipeline) {}
}

/// One chunk, and then silence.
struct Once(Option<Bytes>);

impl Body for Once {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.take().map_or(Poll::Pending, |chunk| Poll::Ready(Some(Ok(Frame::data(chunk)))))
    }
}

/// Whoever sends a body on writes what it got before it asks again.
#[tokio::test]
async fn a_body_lets_bytes_leave_before_it_reads_them() {
    let body = || {
        let pipeline = Pipeline::new(Some(context()), settings(Inject::Final, 1 << 20));
        let clocks = Clocks { idle: Duration::from_secs(9), heartbeat: None, deadline: None };
        TapBody::new(Once(Some(cards())), pipeline, Counts::default(), clocks, std::future::pending())
    };
    let task = &mut Task::from_waker(Waker::noop());
    let seen = |body: &TapBody<Once, Counts>| (body.keeper().progress, body.keeper().sources);

    let mut first = body();
    assert!(matches!(Pin::new(&mut first).poll_frame(task), Poll::Ready(Some(Ok(_)))));
    assert_eq!(seen(&first), (0, 0), "handed out");
    assert!(Pin::new(&mut first).poll_frame(task).is_pending());
    assert_eq!(seen(&first), (1, 2), "read");

    let mut asked = body();
    assert!(matches!(Pin::new(&mut asked).poll_frame(task), Poll::Ready(Some(Ok(_)))));
    asked.tell();
    assert_eq!(asked.keeper().sources, 2, "whoever asks is told all");
}

/// Says that nothing ends, and panics.
struct Panics;

impl Adapter for Panics {
    fn provider(&self) -> Option<&'static str> {
        Some("panics")
    }

    fn frame(&mut self, _: &Event<'_>, _: &mut dyn Sink) -> Result<(), Unread> {
        panic!("an adapter with a bug")
    }

    fn ends(&self) -> Ends {
        |_| false
    }

    fn envelope(&self) -> Envelope<'_> {
        Envelope::Bare
    }
}

/// P2: what was held for the tap goes out when the tap is lost, not with the next bytes.
#[test]
fn p2_a_panic_over_what_was_passed_on_holds_nothing_back() {
    let mut pipeline = Pipeline::new(None, settings(Inject::Final, 1 << 20));
    pipeline.tap = Some(Box::new(Tap::with(Box::new(Panics), context())));
    pipeline.push([&*cards(), b"data: part"].concat().into());
    assert_eq!((pipeline.take(), pipeline.take()), (Some(Out::Bytes(cards())), None));
    pipeline.catch_up();
    assert_eq!(pipeline.take(), Some(Out::Bytes(Bytes::from_static(b"data: part"))));
    assert!(pipeline.tally().panicked && pipeline.tap().is_none());
}

pub(super) static STREAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = |name| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let files =
        ["doubao", "samantha", "tencent", "openai", "sse"].into_iter().flat_map(|n| fs::read_dir(folder(n)).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "sse"));
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
});

/// Also says how often something was behind.
fn pass(
    kind: Kind,
    inject: Inject,
    later_from: usize,
    chunks: &[&[u8]],
    end: super::End,
    most: usize,
) -> (Passed, u32) {
    let context = Context { provider: kind, ..context() };
    let settings = Settings { budget: Budget::new(most), ..settings(inject, 1 << 20) };
    let mut pipeline = Pipeline::new(Some(context), settings);
    pipeline.later_from = later_from;
    let (mut passed, mut behind) = (Passed::default(), 0);
    for chunk in chunks {
        pipeline.push(Bytes::copy_from_slice(chunk));
        behind += u32::from(pipeline.is_behind());
        drain(&mut pipeline, &mut passed);
    }
    pipeline.finish(end);
    drain(&mut pipeline, &mut passed);
    passed.tally = pipeline.tally();
    (passed, behind)
}

pub(super) fn drain(pipeline: &mut Pipeline, passed: &mut Passed) {
    while let Some(out) = pipeline.take() {
        match out {
            Out::Bytes(bytes) => passed.pieces.push((false, bytes)),
            Out::Event(bytes) => passed.pieces.push((true, bytes)),
            Out::Store(record) => passed.record = Some(record),
            Out::Await => {}
            Out::Commit(record) => {
                passed.record = Some(record);
                pipeline.committed(true);
            }
        }
    }
}

/// Also within a BOM, and between a CR and its LF.
#[test]
fn broken_at_every_byte_it_is_read_as_it_would_have_been() {
    for (eol, end) in [("\n", ""), ("\n", END), ("\r\n", ""), ("\r\n", END), ("\r", ""), ("\r", END)] {
        let stream = format!("\u{feff}{CARD}: comment\n\n\n{CARD}{end}{CARD}").replace('\n', eol);
        for at in 0..=stream.len() {
            let (one, two) = stream.as_bytes().split_at(at);
            let pass = |later_from| {
                let (passed, _) =
                    pass(Kind::Doubao, Inject::Final, later_from, &[one, two], super::End::Clean, 1 << 20);
                (passed.out(), passed.record, passed.tally)
            };
            assert_eq!(pass(0), pass(usize::MAX), "{eol:?}, {end:?}, at {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    /// Read first or read later: nobody but the clock can tell.
    #[test]
    fn what_is_read_later_is_read_as_it_would_have_been(
        stream in select(&STREAMS[..]),
        kind in select(vec![Kind::Doubao, Kind::Tencent, Kind::OpenAi, Kind::Auto]),
        inject in select(vec![Inject::Final, Inject::Off, Inject::Live]),
        end in select(vec![super::End::Clean, super::End::Cut, super::End::Shutdown]),
        most in select(vec![1 << 20, 300]),
        places in vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut at: Vec<usize> = places.iter().map(|place| place.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let (first, none) = pass(kind, inject, usize::MAX, &chunks, end, most);
        let (later, some) = pass(kind, inject, 0, &chunks, end, most);
        prop_assert_eq!(none, 0);
        prop_assert!(some == 0 || inject != Inject::Live);
        prop_assert_eq!(first.out(), later.out());
        prop_assert_eq!(first.ours(), later.ours());
        prop_assert_eq!(first.record, later.record);
        prop_assert_eq!(first.tally, later.tally);
    }
}
