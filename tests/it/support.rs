//! Shared helpers.

use citetap::profile::OutputFormat;
use std::path::PathBuf;

use bytes::Bytes;
use citetap::{
    citation::supplement::SearchOutcome,
    pipeline::{
        Budget, Context, End, Inject, Settings, Supplement,
        offline::{self, OfflineOutput},
    },
    provider::Provider,
};

pub const NONCE: &str = "0011223344556677";

pub fn context(provider: Provider) -> Context {
    Context {
        route: "test".to_owned(),
        provider,
        link_base: url::Url::parse("https://lexiangla.com/").ok(),
        nonce: NONCE.to_owned(),
        created: "2026-01-13T09:18:07.049Z".parse().unwrap(),
        fallback_id: "018f0000-0000-7000-8000-000000000000".to_owned(),
        task: None,
        rules: citetap::config::default_rules(),
    }
}

pub fn settings(inject: Inject) -> Settings {
    Settings {
        inject,
        emit_empty: false,
        output_format: OutputFormat::default(),
        supplement: Supplement::Off,
        single_document: false,
        frame_cap: 4 << 20,
        budget: Budget::new(256 << 20),
    }
}

pub fn pass(provider: Provider, inject: Inject, chunks: Vec<Bytes>, end: End) -> OfflineOutput {
    offline::run(context(provider), settings(inject), chunks, end, true)
}

/// On a route with a supplementary search that returns these results.
pub fn pass_with(
    provider: Provider,
    inject: Inject,
    chunks: Vec<Bytes>,
    end: End,
    (supplement, supply): &(Supplement, SearchOutcome),
) -> OfflineOutput {
    let settings = Settings { supplement: *supplement, ..settings(inject) };
    offline::run_with_search(context(provider), settings, chunks, end, true, supply)
}

/// One chunk per byte.
pub fn bytewise(bytes: &[u8]) -> Vec<Bytes> {
    bytes.chunks(1).map(Bytes::copy_from_slice).collect()
}

pub fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}
