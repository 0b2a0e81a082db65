//! `citetap replay`: runs a saved stream through the same pipeline as a live one.
//!
//! Also the tool to reproduce bug reports. Makes no network connection.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
};

use clap::{ValueEnum, builder::PossibleValuesParser};
use url::Url;

use super::{Failure, export, print, table};
use crate::{
    citation::{Record, export::Format},
    config::{self, Inject, OutputFormat, Profile, Provider, Style},
    pipeline::offline::OfflineOutput,
    provider::REGISTRY,
    replay::{self, CaptureFile, CaptureReader, HarRecords, MAX_CAPTURE},
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  citetap replay answer.sse --output bibtex\n  curl -sN https://chat.example.com/… | citetap replay - --output json"
)]
pub struct Args {
    /// A capture: raw SSE, `curl -N` output, one JSON payload per line, one JSON body, or HAR; - reads standard input
    file: PathBuf,

    /// Wire format of the upstream
    #[arg(short, long, value_name = "NAME", default_value = "auto", value_parser = PossibleValuesParser::new(REGISTRY.capture_names()))]
    provider: String,

    /// Only this stream of a HAR file with several, counted from 1
    #[arg(long, value_name = "N")]
    entry: Option<usize>,

    /// What to print [default: a table on a terminal, else json]
    #[arg(short, long, value_enum)]
    output: Option<Output>,

    /// Print only what citetap adds to the stream, and where
    #[arg(long, conflicts_with = "output")]
    diff: bool,

    /// Base URL of relative links
    #[arg(long, value_name = "URL", value_parser = config::plain_url)]
    link_base: Option<Url>,

    #[command(flatten)]
    export: export::ExportArgs,

    /// When citation events are added
    #[arg(long, value_name = "WHEN", default_value = "final", value_parser = PossibleValuesParser::new(Inject::NAMES))]
    inject: String,

    /// The dialect of `--output sse`
    #[arg(long, value_name = "NAME", default_value = "native", value_parser = PossibleValuesParser::new(Profile::NAMES))]
    profile: String,

    /// How inline markers are rewritten in `--output sse`
    #[arg(long, value_name = "STYLE", default_value = "keep", value_parser = PossibleValuesParser::new(Style::NAMES))]
    markers: String,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
    Sse,
    Markdown,
    Footnotes,
    Html,
    Csv,
    Bibtex,
    Ris,
    Csl,
    Prompt,
}

impl Output {
    /// The export format of that name. `None`: JSON of the record.
    fn format(self) -> Option<Format> {
        Format::from_name(self.to_possible_value()?.get_name())
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if args.diff && args.profile != Profile::Native.as_str() {
        return Err(Failure::Other(
            "--diff compares bytes: in another --profile none of them are the upstream's".into(),
        ));
    }
    let mut captured = read(&args.file)?;
    warn_skipped(&captured);
    if let Some(entry) = args.entry {
        captured = captured.only(entry).map_err(|which| failure(args, &format!("--entry is {which}")))?;
    }
    let list = captured.is_har() && args.entry.is_none() && !args.diff;
    let outputs = capture_reader(args).read(captured).map_err(|seen| no_message(args, &format!(" in {seen}")))?;
    let default = if io::stdout().is_terminal() { Output::Table } else { Output::Json };
    let output = args.output.unwrap_or(default);
    let found = HarRecords::of(&outputs);
    match output {
        Output::Json | Output::Table if list && found.records.is_empty() => Err(no_message(args, "")),
        Output::Json if list => {
            let json = serde_json::to_string_pretty(&found).unwrap_or_default();
            print(format!("{json}\n").as_bytes())
        }
        Output::Table if list => {
            let tables: Vec<String> = found.records.iter().map(|record| format_table(record)).collect();
            print(tables.join("\n").as_bytes())
        }
        output => print_stream(args, output, single_stream(args, &outputs)?),
    }
}

fn print_stream(args: &Args, output: Output, stream: &OfflineOutput) -> Result<(), Failure> {
    if args.diff {
        return print(diff(stream).as_bytes());
    }
    match (output, &stream.record) {
        (Output::Sse, _) => print(&stream.out()),
        (_, None) => Err(no_message(args, "")),
        (Output::Table, Some(record)) => print(format_table(record).as_bytes()),
        (_, Some(record)) => print(export::render(record, output.format(), &args.export).as_bytes()),
    }
}

/// Selects the stream for outputs that cover one stream: the only one, or the only one with a message.
fn single_stream<'a>(args: &Args, streams: &'a [OfflineOutput]) -> Result<&'a OfflineOutput, Failure> {
    let with_message: Vec<(usize, &OfflineOutput)> =
        (1..).zip(streams).filter(|(_, stream)| stream.record.is_some()).collect();
    match (streams, with_message.as_slice()) {
        ([only], _) => Ok(only),
        (_, [(_, only)]) => Ok(only),
        (_, []) => Err(no_message(args, "")),
        (_, several) => {
            let numbers: Vec<String> = several.iter().map(|(number, _)| number.to_string()).collect();
            let numbers = numbers.join(", ");
            Err(failure(args, &format!("the streams {numbers} have a message; choose one with --entry")))
        }
    }
}

fn failure(args: &Args, what: &str) -> Failure {
    Failure::Other(format!("{}: {what}", args.file.display()))
}

fn no_message(args: &Args, seen: &str) -> Failure {
    let hint = if args.provider == "auto" { "; no frame told which provider it is, try --provider" } else { "" };
    failure(args, &format!("no message of an assistant was found{seen}{hint}"))
}

fn warn_skipped(captured: &CaptureFile) {
    let CaptureFile::Streams(streams) = captured else { return };
    let skipped: usize = streams.iter().map(|capture| capture.skipped).sum();
    let what = match (captured.is_har(), skipped) {
        (_, 0) => return,
        (true, 1) => "entry of the HAR file is",
        (true, _) => "entries of the HAR file are",
        (false, 1) => "line of the capture is",
        (false, _) => "lines of the capture are",
    };
    let _ = writeln!(io::stderr(), "citetap: {skipped} {what} no part of the stream");
}

fn read(path: &Path) -> Result<CaptureFile, Failure> {
    let named = |error: String| Failure::Other(format!("{}: {error}", path.display()));
    let limit = MAX_CAPTURE as u64 + 1;
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| named(error.to_string()))?;
    replay::read(&bytes).map_err(|error| named(error.to_string()))
}

fn capture_reader(args: &Args) -> CaptureReader {
    CaptureReader {
        route: "replay",
        // clap has validated all names.
        provider: REGISTRY.for_capture(&args.provider).unwrap_or(Provider::AUTO),
        link_base: args.link_base.clone(),
        inject: args.inject.parse().unwrap_or_default(),
        output_format: OutputFormat {
            profile: args.profile.parse().unwrap_or_default(),
            markers: args.markers.parse().unwrap_or_default(),
            ..OutputFormat::default()
        },
        // Default of `limits.frame`.
        frame_cap: 4 << 20,
        rules: config::default_rules(),
    }
}

fn format_table(record: &Record) -> String {
    let mut rows = vec![["", "", "title", "site", "url"].map(str::to_owned).to_vec()];
    for citation in &record.citations {
        let mut number = citation.number.to_string();
        for alias in &citation.aliases {
            number += &format!(",{alias}");
        }
        let site = citation.site_name.as_deref().or(citation.hostname.as_deref()).unwrap_or("-");
        rows.push(vec![
            number,
            if citation.cited { "cited".to_owned() } else { String::new() },
            table::fit(citation.title.as_deref().unwrap_or("-"), 48),
            table::fit(site, 20),
            citation.url.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    let stats = &record.stats;
    let mut out = format!("message {} ({})", record.message_id, record.provider);
    if let Some(summary) = &record.summary {
        out += &format!(": {summary}");
    }
    out.push('\n');
    for query in &record.queries {
        out += &format!("  searched: {query}\n");
    }
    if !record.citations.is_empty() {
        out.push('\n');
        out += &table::align(&rows);
    }
    out += &format!(
        "\n{} sources, {} cited, {} duplicates, {} unusable{}\n",
        stats.kept_after_filter,
        stats.cited_count,
        stats.dedup_count,
        stats.failed_count,
        if record.complete { "" } else { "; the stream did not finish" }
    );
    let relative = |c: &crate::citation::Citation| {
        c.metadata.get("droppedUrl").is_some_and(|url| url.as_str().is_some_and(|url| url.starts_with('/')))
    };
    if record.citations.iter().any(relative) {
        out += "some links are relative: --link-base says what to\n";
    }
    if !stats.dangling_markers.is_empty() {
        let numbers: Vec<String> = stats.dangling_markers.iter().map(|n| format!("[{n}]")).collect();
        out += &format!("markers without a source: {}\n", numbers.join(" "));
    }
    out
}

/// Lists the frames that citetap adds, each with its byte offset in the upstream's stream.
fn diff(stream: &OfflineOutput) -> String {
    let (mut at, mut added, mut out) = (0, 0, String::new());
    for (injected, piece) in &stream.pieces {
        if !injected {
            at += piece.len();
            continue;
        }
        added += piece.len();
        out += &format!("@@ at byte {at} @@\n");
        for line in String::from_utf8_lossy(piece).lines() {
            out += &format!("+{line}\n");
        }
    }
    let events = stream.injected().len();
    let s = if events == 1 { "" } else { "s" };
    out + &format!("{at} bytes relayed as they came, {added} bytes added in {events} event{s}\n")
}
