//! How many instructions the work on a stream takes. Unlike times, these are the same on a busy machine.
//!
//! Setups are not counted. What a case returns is looked at afterwards: one that reads nothing would count well.

mod input;

use std::{hint::black_box, sync::Arc};

use bytes::Bytes;
use citetap::{
    citation::{Ledger, Record, Rules, ledger::LedgerSnapshot, ledger::Reference},
    marker::{Mark, Rewriter, Scanner, Style},
    pipeline::{End, Output, Pipeline},
    profile::{Positions, native},
    provider::{Adapter, Payload},
    sse::{Cut, Eol, Event, Splitter},
};
use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use input::{DELTAS, Known, REPEATS, Reading, Wire};
use jiff::Timestamp;

#[library_benchmark(setup = input::chunks_of, teardown = all_frames)]
#[bench::one_chunk(usize::MAX)]
#[bench::chunks_of_64(64)]
fn split(chunks: Vec<Vec<u8>>) -> (usize, Vec<Vec<u8>>) {
    let (mut splitter, mut frames) = (Splitter::default(), 0);
    for chunk in &chunks {
        let mut at = 0;
        while let Some(Cut::Frame(len) | Cut::Separator(len)) = splitter.advance(black_box(&chunk[at..])) {
            at += len;
            frames += 1;
        }
    }
    (frames, chunks)
}

fn all_frames((frames, _): (usize, Vec<Vec<u8>>)) {
    assert_eq!(frames, DELTAS);
}

#[library_benchmark(setup = Reading::deltas, teardown = all_texts)]
#[bench::doubao(Wire::Doubao)]
#[bench::samantha(Wire::Samantha)]
#[bench::lexiang(Wire::Lexiang)]
#[bench::openai(Wire::OpenAi)]
fn read_text(reading: Reading) -> Reading {
    read(reading)
}

#[library_benchmark(setup = Reading::references, teardown = all_references)]
#[bench::doubao(Wire::Doubao)]
#[bench::samantha(Wire::Samantha)]
#[bench::lexiang(Wire::Lexiang)]
#[bench::openai(Wire::OpenAi)]
fn read_references(reading: Reading) -> Reading {
    read(reading)
}

fn read(mut reading: Reading) -> Reading {
    for adapter in &mut reading.adapters {
        for frame in &reading.frames {
            let _ = adapter.frame(&Event::read(black_box(frame)), &mut reading.sink);
        }
    }
    reading
}

fn all_texts(reading: Reading) {
    assert_eq!(reading.sink.texts, DELTAS);
}

fn all_references(reading: Reading) {
    assert!(reading.sink.references >= 3 * REPEATS, "{}", reading.sink.references);
}

#[library_benchmark(teardown = eighty)]
#[bench::of_80_pages(args = (100, 80), setup = input::references)]
fn ledger_references(references: Vec<Reference<'static>>) -> (Ledger, Vec<Reference<'static>>) {
    let mut ledger = Ledger::new(None);
    for reference in &references {
        ledger.add_reference(black_box(reference));
    }
    (ledger, references)
}

fn eighty((ledger, _): (Ledger, Vec<Reference<'static>>)) {
    assert_eq!(ledger.len(), 80);
}

type Viewed = (Ledger, Arc<Rules>, Timestamp);

#[library_benchmark(setup = input::ledger, teardown = a_hundred)]
#[bench::of_100(100)]
fn ledger_view(viewed: Viewed) -> (LedgerSnapshot, Viewed) {
    let (ledger, rules, now) = &viewed;
    (black_box(ledger).snapshot(&rules.scores, *now), viewed)
}

fn a_hundred((view, _): (LedgerSnapshot, Viewed)) {
    assert_eq!(view.citations.len(), 100);
    assert_eq!(view.stats.cited_count, 3);
}

fn rewriter(style: Style) -> (Rewriter, Known, Vec<&'static str>) {
    (Rewriter::new(style), Known::new(), input::texts())
}

type Written = (String, Vec<Mark>, Rewriter, Known);

#[library_benchmark(setup = rewriter, teardown = marked)]
#[bench::keep(Style::Keep)]
#[bench::link(Style::Link)]
fn rewrite(rewriting: (Rewriter, Known, Vec<&'static str>)) -> Written {
    let (mut rewriter, known, texts) = rewriting;
    let (mut out, mut marks) = (String::new(), Vec::new());
    for text in texts {
        rewriter.push(black_box(text), &known, &mut out, &mut marks);
    }
    rewriter.finish(&known, &mut out, &mut marks);
    (out, marks, rewriter, known)
}

fn marked((out, marks, ..): Written) {
    assert!(out.len() > 50 * DELTAS && marks.len() == DELTAS, "{} {}", out.len(), marks.len());
}

#[library_benchmark(setup = input::texts, teardown = scanned)]
#[bench::text()]
fn scan(texts: Vec<&'static str>) -> Scanner {
    let mut scanner = Scanner::default();
    for text in texts {
        scanner.feed(black_box(text));
    }
    scanner
}

fn scanned(scanner: Scanner) {
    assert!(scanner.numbers().eq(1..=3));
}

type Dressing = (Box<dyn Adapter>, (Record, Positions));

fn dressing(sources: usize, wire: Wire) -> Dressing {
    let dressing = (input::adapter(wire), input::record(sources));
    input::settle();
    dressing
}

#[library_benchmark(setup = dressing, teardown = one_frame)]
#[bench::doubao_10(10, Wire::Doubao)]
#[bench::doubao_100(100, Wire::Doubao)]
#[bench::openai_10(10, Wire::OpenAi)]
#[bench::openai_100(100, Wire::OpenAi)]
fn encode(dressing: Dressing) -> (Bytes, (Record, Positions)) {
    let (adapter, (record, positions)) = dressing;
    let envelope = |payload: &Payload<'_>| adapter.envelope(payload);
    (native::frame(black_box(&record).clone(), &envelope, Some(&positions), Eol::Lf), (record, positions))
}

fn one_frame((frame, (record, _)): (Bytes, (Record, Positions))) {
    assert!(frame.len() > 300 * record.citations.len(), "{}", frame.len());
}

type Stream = (Pipeline, Vec<Bytes>);

#[library_benchmark(teardown = passed)]
#[bench::doubao(args = (Wire::Doubao), setup = input::tapped)]
#[bench::samantha(args = (Wire::Samantha), setup = input::tapped)]
#[bench::lexiang(args = (Wire::Lexiang), setup = input::tapped)]
#[bench::openai(args = (Wire::OpenAi), setup = input::tapped)]
#[bench::passthrough(args = (Wire::OpenAi), setup = input::untapped)]
fn stream(stream: Stream) -> (Pipeline, usize) {
    let (mut pipeline, chunks) = stream;
    let mut bytes = 0;
    for chunk in chunks {
        pipeline.push(black_box(chunk));
        bytes += drain(&mut pipeline);
    }
    pipeline.finish(End::Clean);
    bytes += drain(&mut pipeline);
    (pipeline, bytes)
}

/// Takes what comes out, as a client and a store would.
fn drain(pipeline: &mut Pipeline) -> usize {
    let mut len = 0;
    while let Some(out) = pipeline.take() {
        match black_box(out) {
            Output::Bytes(bytes) | Output::Event(bytes) => len += bytes.len(),
            Output::Commit(_) => pipeline.committed(true),
            Output::AwaitSearch | Output::Store(_) => {}
        }
    }
    len
}

fn passed((pipeline, bytes): (Pipeline, usize)) {
    assert!(bytes > 100 * DELTAS, "{bytes}");
    assert_eq!(pipeline.stream_stats().injected, pipeline.tap().is_some());
}

library_benchmark_group!(
    name = counts,
    benchmarks = [split, read_text, read_references, ledger_references, ledger_view, rewrite, scan, encode, stream]
);

// Instructions alone: caches differ from machine to machine.
main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = counts
);
