//! `citetap search`: runs one search through the configured service, without a server.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::Arc,
};

use super::{Failure, print, table};
use crate::{
    config,
    search::{self, Ask, Depth, Found, Query, Tavily, TimeRange, Topic},
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  TAVILY_API_KEY=… citetap search \"heat pump cold climate\" --max-results 10\n  citetap search \"chip export rules\" --topic news --time-range week --output json\n\n\
    The key comes from TAVILY_API_KEY, TAVILY_API_KEY_FILE, or [search] in the configuration; never from a flag."
)]
pub struct Args {
    /// What to search for
    query: String,

    /// Only within the domains of this type ([search.event_types])
    #[arg(long, value_name = "NAME")]
    event_type: Option<String>,

    /// Number of results, 1 to 20 [default: as configured, else 5]
    #[arg(short = 'n', long, value_name = "N")]
    max_results: Option<u32>,

    /// Kind of pages [default: as configured, else general]
    #[arg(long)]
    topic: Option<Topic>,

    /// How deep to search [default: as configured, else basic]
    #[arg(long)]
    search_depth: Option<Depth>,

    /// Maximum age of results
    #[arg(long)]
    time_range: Option<TimeRange>,

    /// Only this domain and those below it; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    include_domain: Vec<String>,

    /// Exclude this domain; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    exclude_domain: Vec<String>,

    /// What to print [default: a table on a terminal, else json]
    #[arg(short, long, value_enum)]
    output: Option<Output>,

    /// Configuration file [default: citetap.toml in the working directory, if there is one]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let (search, rules, connect) =
        config::load_search(args.config.as_deref(), std::env::vars_os(), &std::env::current_dir()?)?;
    let ask = Ask {
        query: args.query,
        event_type: args.event_type,
        topic: args.topic,
        search_depth: args.search_depth,
        time_range: args.time_range,
        max_results: args.max_results,
        include_domains: args.include_domain,
        exclude_domains: args.exclude_domain,
        ..Ask::default()
    };
    let query = Query::new(ask, &search).map_err(Failure::Other)?;
    let service = Tavily::new(&search, connect).ok_or_else(|| Failure::Other(search::NO_KEY.to_owned()))?;
    let progress = Progress::start("searching …");
    let context = search::context(Arc::clone(&rules));
    let found = match service.search(&query).await {
        Ok(answer) => search::record(context, &query, answer),
        Err(error) => Err(error),
    };
    drop(progress);
    let (record, dropped) = found.map_err(|error| Failure::Other(error.to_string()))?;
    let found = Found::new(record, &rules);
    let found = found.ok_or_else(|| Failure::Other("the search service's answer is no search response".to_owned()))?;
    let default = if io::stdout().is_terminal() { Output::Table } else { Output::Json };
    match args.output.unwrap_or(default) {
        Output::Json => {
            let json = serde_json::to_string_pretty(&found).unwrap_or_default();
            print(format!("{json}\n").as_bytes())
        }
        Output::Table => print(format_table(&found, dropped).as_bytes()),
    }
}

/// A progress line on a terminal, erased on drop.
struct Progress(bool);

impl Progress {
    fn start(what: &str) -> Self {
        let terminal = io::stderr().is_terminal();
        if terminal {
            let _ = write!(io::stderr(), "{what}");
        }
        Self(terminal)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.0 {
            // Carriage return, then CSI K: erase to the end of the line.
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

fn format_table(found: &Found, dropped: u32) -> String {
    let record = &found.record;
    let mut out = String::new();
    if !record.citations.is_empty() {
        let mut rows = vec![["", "score", "title", "site", "url"].map(str::to_owned).to_vec()];
        for citation in &record.citations {
            let score = citation.scores.map(|scores| scores.relevance);
            rows.push(vec![
                citation.number.to_string(),
                score.map_or_else(|| "-".to_owned(), |score| format!("{score:.2}")),
                table::fit(citation.title.as_deref().unwrap_or("-"), 48),
                table::fit(citation.site_name.as_deref().unwrap_or("-"), 24),
                citation.url.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        out += &table::align(&rows);
        out.push('\n');
    }
    let stats = &record.stats;
    out += &format!(
        "{} results, {} duplicates, {} unusable",
        stats.kept_after_filter, stats.dedup_count, stats.failed_count
    );
    if dropped > 0 {
        out += &format!(", {dropped} outside the domains");
    }
    out.push('\n');
    if let Some(verdict) = &found.corroboration {
        let s = if verdict.unique_domains == 1 { "" } else { "s" };
        out += &format!(
            "confidence {:.2}: {} domain{s}, average score {:.2}{}\n",
            verdict.confidence,
            verdict.unique_domains,
            verdict.average_score,
            if verdict.official_confirmed { ", worded as an official statement" } else { "" }
        );
    }
    out
}
