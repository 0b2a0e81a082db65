//! Counts the instructions of the work on a stream. Unlike times, counts do not depend on the machine's load.
//!
//! Setups are not counted. Each teardown checks the result, because a case that does nothing would have a good count.

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
use input::{AdapterRun, DELTAS, PageSources, REPEATS, Wire};
use jiff::Timestamp;

#[library_benchmark(setup = input::chunks_of, teardown = assert_all_frames)]
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

fn assert_all_frames((frames, _): (usize, Vec<Vec<u8>>)) {
    assert_eq!(frames, DELTAS);
}

#[library_benchmark(setup = AdapterRun::deltas, teardown = assert_all_texts)]
#[bench::doubao(Wire::Doubao)]
#[bench::samantha(Wire::Samantha)]
#[bench::lexiang(Wire::Lexiang)]
#[bench::openai(Wire::OpenAi)]
fn read_text(run: AdapterRun) -> AdapterRun {
    read(run)
}

#[library_benchmark(setup = AdapterRun::references, teardown = assert_all_references)]
#[bench::doubao(Wire::Doubao)]
#[bench::samantha(Wire::Samantha)]
#[bench::lexiang(Wire::Lexiang)]
#[bench::openai(Wire::OpenAi)]
fn read_references(run: AdapterRun) -> AdapterRun {
    read(run)
}

fn read(mut run: AdapterRun) -> AdapterRun {
    for adapter in &mut run.adapters {
        for frame in &run.frames {
            let _ = adapter.frame(&Event::read(black_box(frame)), &mut run.sink);
        }
    }
    run
}

fn assert_all_texts(run: AdapterRun) {
    assert_eq!(run.sink.texts, DELTAS);
}

fn assert_all_references(run: AdapterRun) {
    assert!(run.sink.references >= 3 * REPEATS, "{}", run.sink.references);
}

#[library_benchmark(teardown = assert_80_sources)]
#[bench::of_80_pages(args = (100, 80), setup = input::references)]
fn ledger_references(references: Vec<Reference<'static>>) -> (Ledger, Vec<Reference<'static>>) {
    let mut ledger = Ledger::new(None);
    for reference in &references {
        ledger.add_reference(black_box(reference));
    }
    (ledger, references)
}

fn assert_80_sources((ledger, _): (Ledger, Vec<Reference<'static>>)) {
    assert_eq!(ledger.len(), 80);
}

type SnapshotInput = (Ledger, Arc<Rules>, Timestamp);

#[library_benchmark(setup = input::ledger, teardown = assert_100_sources)]
#[bench::of_100(100)]
fn ledger_view(snapshot_input: SnapshotInput) -> (LedgerSnapshot, SnapshotInput) {
    let (ledger, rules, now) = &snapshot_input;
    (black_box(ledger).snapshot(&rules.scores, *now), snapshot_input)
}

fn assert_100_sources((snapshot, _): (LedgerSnapshot, SnapshotInput)) {
    assert_eq!(snapshot.citations.len(), 100);
    assert_eq!(snapshot.stats.cited_count, 3);
}

fn rewriter(style: Style) -> (Rewriter, PageSources, Vec<&'static str>) {
    (Rewriter::new(style), PageSources::new(), input::texts())
}

type Rewritten = (String, Vec<Mark>, Rewriter, PageSources);

#[library_benchmark(setup = rewriter, teardown = assert_marked)]
#[bench::keep(Style::Keep)]
#[bench::link(Style::Link)]
fn rewrite(input: (Rewriter, PageSources, Vec<&'static str>)) -> Rewritten {
    let (mut rewriter, known, texts) = input;
    let (mut out, mut marks) = (String::new(), Vec::new());
    for text in texts {
        rewriter.push(black_box(text), &known, &mut out, &mut marks);
    }
    rewriter.finish(&known, &mut out, &mut marks);
    (out, marks, rewriter, known)
}

fn assert_marked((out, marks, ..): Rewritten) {
    assert!(out.len() > 50 * DELTAS && marks.len() == DELTAS, "{} {}", out.len(), marks.len());
}

#[library_benchmark(setup = input::texts, teardown = assert_scanned)]
#[bench::text()]
fn scan(texts: Vec<&'static str>) -> Scanner {
    let mut scanner = Scanner::default();
    for text in texts {
        scanner.feed(black_box(text));
    }
    scanner
}

fn assert_scanned(scanner: Scanner) {
    assert!(scanner.numbers().eq(1..=3));
}

type EncodeInput = (Box<dyn Adapter>, (Record, Positions));

fn encode_input(sources: usize, wire: Wire) -> EncodeInput {
    let prepared = (input::adapter(wire), input::record(sources));
    input::settle();
    prepared
}

#[library_benchmark(setup = encode_input, teardown = assert_frame)]
#[bench::doubao_10(10, Wire::Doubao)]
#[bench::doubao_100(100, Wire::Doubao)]
#[bench::openai_10(10, Wire::OpenAi)]
#[bench::openai_100(100, Wire::OpenAi)]
fn encode(input: EncodeInput) -> (Bytes, (Record, Positions)) {
    let (adapter, (record, positions)) = input;
    let envelope = |payload: &Payload<'_>| adapter.envelope(payload);
    (native::frame(black_box(&record).clone(), &envelope, Some(&positions), Eol::Lf), (record, positions))
}

fn assert_frame((frame, (record, _)): (Bytes, (Record, Positions))) {
    assert!(frame.len() > 300 * record.citations.len(), "{}", frame.len());
}

type Stream = (Pipeline, Vec<Bytes>);

#[library_benchmark(teardown = assert_relayed)]
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

/// Takes all output and confirms commits, as the relay does. Returns the number of bytes.
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

fn assert_relayed((pipeline, bytes): (Pipeline, usize)) {
    assert!(bytes > 100 * DELTAS, "{bytes}");
    assert_eq!(pipeline.stream_stats().injected, pipeline.tap().is_some());
}

library_benchmark_group!(
    name = counts,
    benchmarks = [split, read_text, read_references, ledger_references, ledger_view, rewrite, scan, encode, stream]
);

// Only instructions, because caches differ between machines.
main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = counts
);
