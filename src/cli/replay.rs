//! `citetap replay`: a saved stream through the same pipeline as a live one. Also the tool for bug reports.

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
    config::{self, Inject, Manner, Profile, Provider, Style},
    pipeline::{
        Budget, Context, End, Settings,
        whole::{self, Passed},
    },
    replay::{self, Capture, MAX_CAPTURE},
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  citetap replay answer.sse --output bibtex\n  curl -sN https://chat.example.com/… | citetap replay - --output json"
)]
pub struct Args {
    /// A capture: raw SSE, `curl -N` output, one JSON payload per line, or HAR; - reads standard input
    file: PathBuf,

    /// What the upstream speaks
    #[arg(short, long, value_name = "NAME", default_value = "auto", value_parser = PossibleValuesParser::new(Provider::NAMES))]
    provider: String,

    /// What to print [default: a table on a terminal, else json]
    #[arg(short, long, value_enum)]
    output: Option<Output>,

    /// Print only what citetap adds to the stream, and where
    #[arg(long, conflicts_with = "output")]
    diff: bool,

    /// What relative links are relative to
    #[arg(long, value_name = "URL")]
    link_base: Option<Url>,

    #[command(flatten)]
    how: export::How,

    /// When citation events are added
    #[arg(long, value_name = "WHEN", default_value = "final", value_parser = PossibleValuesParser::new(Inject::NAMES))]
    inject: String,

    /// The dialect of `--output sse`
    #[arg(long, value_name = "NAME", default_value = "native", value_parser = PossibleValuesParser::new(Profile::NAMES))]
    profile: String,

    /// What becomes of the markers in `--output sse`
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
    /// The export of that name; `None`: the record itself.
    fn format(self) -> Option<Format> {
        Format::named(self.to_possible_value()?.get_name())
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if args.diff && args.profile != Profile::Native.as_str() {
        return Err(Failure::Other(
            "--diff compares bytes: in another --profile none of them are the upstream's".into(),
        ));
    }
    let capture = read(&args.file)?;
    if capture.skipped > 0 {
        let _ = writeln!(io::stderr(), "citetap: {} lines of the capture are no part of the stream", capture.skipped);
    }
    let passed = pass(args, &capture);
    if args.diff {
        return print(diff(&passed).as_bytes());
    }
    let default = if io::stdout().is_terminal() { Output::Table } else { Output::Json };
    let output = args.output.unwrap_or(default);
    match (output, &passed.record) {
        (Output::Sse, _) => print(&passed.out()),
        (_, None) => Err(nothing(args)),
        (Output::Table, Some(record)) => print(shown(record).as_bytes()),
        (_, Some(record)) => print(export::rendered(record, output.format(), &args.how).as_bytes()),
    }
}

fn nothing(args: &Args) -> Failure {
    let hint = if args.provider == "auto" { "; no frame told which provider it is, try --provider" } else { "" };
    Failure::Other(format!("{}: no message of an assistant was found{hint}", args.file.display()))
}

fn read(path: &Path) -> Result<Capture, Failure> {
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

fn pass(args: &Args, capture: &Capture) -> Passed {
    let context = Context {
        route: "replay".to_owned(),
        // clap has checked all names.
        provider: args.provider.parse().unwrap_or(Provider::Auto),
        link_base: args.link_base.clone(),
        nonce: uuid::Uuid::new_v4().simple().to_string(),
        created: jiff::Timestamp::now(),
        fallback_id: uuid::Uuid::now_v7().to_string(),
        rules: config::default_rules(),
    };
    let settings = Settings {
        inject: args.inject.parse().unwrap_or_default(),
        emit_empty: false,
        manner: Manner {
            profile: args.profile.parse().unwrap_or_default(),
            markers: args.markers.parse().unwrap_or_default(),
            ..Manner::default()
        },
        whole: false,
        frame_cap: 4 << 20,
        budget: Budget::new(MAX_CAPTURE),
    };
    // Nothing is stored here, and the events say so.
    let mut passed = whole::pass(context, settings, [capture.sse.clone()], End::Clean, false);
    if let Some(record) = &mut passed.record {
        record.stored = false;
    }
    passed
}

fn shown(record: &Record) -> String {
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

/// Our frames, each with its place in the upstream's bytes.
fn diff(passed: &Passed) -> String {
    let (mut at, mut added, mut out) = (0, 0, String::new());
    for (ours, piece) in &passed.pieces {
        if !ours {
            at += piece.len();
            continue;
        }
        added += piece.len();
        out += &format!("@@ at byte {at} @@\n");
        for line in String::from_utf8_lossy(piece).lines() {
            out += &format!("+{line}\n");
        }
    }
    let events = passed.ours().len();
    let s = if events == 1 { "" } else { "s" };
    out + &format!("{at} bytes relayed as they came, {added} bytes added in {events} event{s}\n")
}
