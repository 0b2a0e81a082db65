//! Runs the pipeline over complete input: captures, documents, replays and tests.

use bytes::Bytes;

use super::{Budget, Context, End, Inject, Output, Pipeline, Settings, StreamStats, Supplement};
use crate::{
    citation::{Record, supplement::SearchOutcome},
    profile::OutputFormat,
};

/// Output of a complete stream.
#[derive(Debug, Default)]
pub struct OfflineOutput {
    /// The output in order, each piece with whether we injected it.
    pub pieces: Vec<(bool, Bytes)>,
    /// The record that was stored last.
    pub record: Option<Box<Record>>,
    pub stream_stats: StreamStats,
}

impl OfflineOutput {
    /// All bytes that the client gets.
    pub fn out(&self) -> Vec<u8> {
        self.concat(|_| true)
    }

    /// The bytes that the client gets, without our events.
    pub fn upstream_bytes(&self) -> Vec<u8> {
        self.concat(|injected| !injected)
    }

    /// Our events.
    pub fn injected(&self) -> Vec<&Bytes> {
        self.pieces.iter().filter(|(injected, _)| *injected).map(|(_, piece)| piece).collect()
    }

    fn concat(&self, wanted: impl Fn(bool) -> bool) -> Vec<u8> {
        let pieces = self.pieces.iter().filter(|(injected, _)| wanted(*injected)).map(|(_, piece)| &**piece);
        pieces.collect::<Vec<_>>().concat()
    }
}

/// Runs chunks through a pipeline whose store replies to every commit with `stored`.
pub fn run(
    context: Context,
    settings: Settings,
    chunks: impl IntoIterator<Item = Bytes>,
    end: End,
    stored: bool,
) -> OfflineOutput {
    run_with_search(context, settings, chunks, end, stored, &SearchOutcome::None)
}

/// Runs chunks through a pipeline whose own search gives `outcome`.
pub fn run_with_search(
    context: Context,
    settings: Settings,
    chunks: impl IntoIterator<Item = Bytes>,
    end: End,
    stored: bool,
    outcome: &SearchOutcome,
) -> OfflineOutput {
    let mut pipeline = Pipeline::new(Some(context), settings);
    let mut output = OfflineOutput::default();
    for chunk in chunks {
        pipeline.push(chunk);
        drain(&mut pipeline, &mut output, stored, outcome);
    }
    pipeline.finish(end);
    drain(&mut pipeline, &mut output, stored, outcome);
    output.stream_stats = pipeline.stream_stats();
    output
}

fn drain(pipeline: &mut Pipeline, output: &mut OfflineOutput, stored: bool, outcome: &SearchOutcome) {
    while let Some(next) = pipeline.take() {
        match next {
            Output::Bytes(bytes) => output.pieces.push((false, bytes)),
            Output::Event(bytes) => output.pieces.push((true, bytes)),
            Output::AwaitSearch => pipeline.supplemented(outcome.clone()),
            Output::Store(record) => output.record = Some(record),
            Output::Commit(record) => {
                output.record = Some(record);
                pipeline.committed(stored);
            }
        }
    }
}

/// Reads the record of one JSON document, see [`run_document`]. `None` if the document has no message or search of the
/// context's provider.
pub fn document_record(context: Context, json: Bytes) -> Option<Box<Record>> {
    run_document(context, json).record
}

/// Runs one JSON document through a pipeline that injects nothing. The record is not stored, and it is complete unless the
/// document reports an error.
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
    let mut output = run(context, settings, [json], End::Clean, false);
    if let Some(record) = &mut output.record {
        record.stored = false;
        record.complete = !output.stream_stats.fault;
    }
    output
}
