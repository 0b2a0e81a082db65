//! The pipeline over a stream that is all there: captures, replays, tests.

use bytes::Bytes;

use super::{Budget, Context, End, Inject, Output, Pipeline, Settings, StreamStats, Supplement};
use crate::{
    citation::{Record, supplement::SearchOutcome},
    profile::OutputFormat,
};

/// What came of a stream.
#[derive(Debug, Default)]
pub struct OfflineOutput {
    /// In order, each with whether it is ours.
    pub pieces: Vec<(bool, Bytes)>,
    /// What went to the store last.
    pub record: Option<Box<Record>>,
    pub stream_stats: StreamStats,
}

impl OfflineOutput {
    /// What the client gets.
    pub fn out(&self) -> Vec<u8> {
        self.concat(|_| true)
    }

    /// What the client gets, without what is ours.
    pub fn upstream_bytes(&self) -> Vec<u8> {
        self.concat(|ours| !ours)
    }

    /// Our frames.
    pub fn injected(&self) -> Vec<&Bytes> {
        self.pieces.iter().filter(|(ours, _)| *ours).map(|(_, piece)| piece).collect()
    }

    fn concat(&self, wanted: impl Fn(bool) -> bool) -> Vec<u8> {
        let pieces: Vec<&[u8]> =
            self.pieces.iter().filter(|(ours, _)| wanted(*ours)).map(|(_, piece)| &**piece).collect();
        pieces.concat()
    }
}

/// Runs chunks through a pipeline whose store answers every commit with `stored`.
pub fn run(
    context: Context,
    settings: Settings,
    chunks: impl IntoIterator<Item = Bytes>,
    end: End,
    stored: bool,
) -> OfflineOutput {
    run_with_search(context, settings, chunks, end, stored, &SearchOutcome::None)
}

/// The same, where every search of our own gives `supply`.
pub fn run_with_search(
    context: Context,
    settings: Settings,
    chunks: impl IntoIterator<Item = Bytes>,
    end: End,
    stored: bool,
    supply: &SearchOutcome,
) -> OfflineOutput {
    let mut pipeline = Pipeline::new(Some(context), settings);
    let mut passed = OfflineOutput::default();
    for chunk in chunks {
        pipeline.push(chunk);
        drain(&mut pipeline, &mut passed, stored, supply);
    }
    pipeline.finish(end);
    drain(&mut pipeline, &mut passed, stored, supply);
    passed.stream_stats = pipeline.stream_stats();
    passed
}

fn drain(pipeline: &mut Pipeline, passed: &mut OfflineOutput, stored: bool, supply: &SearchOutcome) {
    while let Some(out) = pipeline.take() {
        match out {
            Output::Bytes(bytes) => passed.pieces.push((false, bytes)),
            Output::Event(bytes) => passed.pieces.push((true, bytes)),
            Output::AwaitSearch => pipeline.supplemented(supply.clone()),
            Output::Store(record) => passed.record = Some(record),
            Output::Commit(record) => {
                passed.record = Some(record);
                pipeline.committed(stored);
            }
        }
    }
}

/// The record of one JSON document, which is not stored. `None`: nothing in it is a message or a search of
/// that provider. It is complete unless it says that it failed, as there is no more of it to come.
pub fn document_record(context: Context, json: Bytes) -> Option<Box<Record>> {
    run_document(context, json).record
}

/// The same, with the bytes.
pub fn run_document(context: Context, json: Bytes) -> OfflineOutput {
    let settings = Settings {
        inject: Inject::Off,
        emit_empty: false,
        output_format: OutputFormat::default(),
        supplement: Supplement::Off,
        single_document: true,
        frame_cap: json.len(),
        budget: Budget::new(json.len()),
    };
    let mut passed = run(context, settings, [json], End::Clean, false);
    if let Some(record) = &mut passed.record {
        record.stored = false;
        record.complete = !passed.stream_stats.fault;
    }
    passed
}
