//! `citetap export`: fetches a record from a running citetap and prints it in an export format.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::builder::PossibleValuesParser;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use url::Url;

use super::{Failure, print};
use crate::{
    citation::{
        Record,
        export::{self, Format, Lang, Options},
        text,
    },
    transport::service_client,
};

/// Maximum size of a response: a record with the maximum number of citations, each field at its cap.
const MAX_RECORD: usize = 256 << 20;
/// Maximum number of bytes read from a key file. Bounds the read if the wrong file is named.
const MAX_KEY: u64 = 4096;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  citetap export 35790211840077314 --format bibtex >> references.bib\n  citetap export 35790211840077314 --cited --url https://citetap.example.com --key-file key.txt"
)]
pub struct Args {
    /// The id of the message
    id: String,

    /// What to print
    #[arg(short, long, value_name = "FORMAT", default_value = "markdown", value_parser = PossibleValuesParser::new(format_names()))]
    format: String,

    /// The URL of citetap
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8787")]
    url: Url,

    /// A file with your tenant's key; - reads standard input
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// The provider, where two providers use the same id
    #[arg(short, long, value_name = "NAME")]
    provider: Option<String>,

    #[command(flatten)]
    options: ExportArgs,

    /// Seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    timeout: f64,
}

/// Arguments that `replay` and `export` share.
#[derive(clap::Args)]
pub struct ExportArgs {
    /// Export only the sources that the answer cites
    #[arg(long)]
    cited: bool,

    /// Language of headings and labels [default: that of the sources]
    #[arg(long, value_name = "LANG", value_parser = PossibleValuesParser::new(Lang::NAMES))]
    lang: Option<String>,
}

impl ExportArgs {
    pub fn options(&self) -> Options {
        // clap has validated the name.
        Options { cited: self.cited, lang: self.lang.as_deref().and_then(Lang::from_name) }
    }
}

fn format_names() -> Vec<&'static str> {
    std::iter::once("json").chain(Format::ALL.map(Format::name)).collect()
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let limit = Duration::try_from_secs_f64(args.timeout)
        .map_err(|_| Failure::Other("--timeout is a number of seconds".to_owned()))?;
    let url = record_url(&args)?;
    let key = args.key_file.as_deref().map(read_key).transpose()?;
    let fetched = tokio::time::timeout(limit, fetch(&url, key, limit)).await;
    let record = fetched.map_err(|_| Failure::Other(format!("{url} did not answer within {} s", args.timeout)))??;
    print(render(&record, Format::from_name(&args.format), &args.options).as_bytes())
}

/// Renders the record in an export format, or as JSON without one.
pub fn render(record: &Record, format: Option<Format>, args: &ExportArgs) -> String {
    match format {
        Some(format) => export::render(record, format, args.options()),
        None => serde_json::to_string_pretty(record).unwrap_or_default() + "\n",
    }
}

fn record_url(args: &Args) -> Result<Url, Failure> {
    let mut url = args.url.clone();
    url.set_query(None);
    url.set_fragment(None);
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Failure::Other(format!("--url is an http or https URL, not {url}")));
    }
    // `extend` percent-encodes the segment, but drops `.` and removes a segment for `..`.
    if args.id.is_empty() || matches!(args.id.as_str(), "." | "..") {
        return Err(Failure::Other("this is not a message id".to_owned()));
    }
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["citations", &args.id]);
    }
    url.query_pairs_mut().append_pair("format", "json");
    if let Some(provider) = &args.provider {
        url.query_pairs_mut().append_pair("provider", provider);
    }
    Ok(url)
}

fn read_key(path: &Path) -> Result<HeaderValue, Failure> {
    let failed = |why: String| Failure::Other(format!("--key-file {}: {why}", path.display()));
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_KEY).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(MAX_KEY).read_to_string(&mut text))
    };
    read.map_err(|error| failed(error.to_string()))?;
    let mut key = HeaderValue::from_str(text.trim()).map_err(|_| failed("this is not a key".to_owned()))?;
    if key.is_empty() {
        return Err(failed("it is empty".to_owned()));
    }
    key.set_sensitive(true);
    Ok(key)
}

async fn fetch(url: &Url, key: Option<HeaderValue>, limit: Duration) -> Result<Record, Failure> {
    let failed = |why: String| Failure::Other(format!("{url}: {why}"));
    let client = service_client::builder(limit).build().map_err(|error| failed(service_client::why(&error)))?;
    let mut request = client.get(url.clone());
    if let Some(key) = key {
        request = request.header("x-citetap-key", key);
    }
    let response = request.send().await.map_err(|error| failed(service_client::why(&error)))?;
    let status = response.status();
    let body = Limited::new(reqwest::Body::from(response), MAX_RECORD).collect().await;
    let body = body.map_err(|error| failed(service_client::why(&*error)))?.to_bytes();
    if !status.is_success() {
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let detail = problem["detail"].as_str().map(|detail| format!(": {}", text::single_line(detail, 1024)));
        return Err(failed(format!("{status}{}", detail.unwrap_or_default())));
    }
    if status == StatusCode::ACCEPTED {
        let _ = writeln!(io::stderr(), "citetap: the message is still in flight; this is what is known so far");
    }
    serde_json::from_slice(&body).map_err(|error| failed(format!("this is not a record of citations: {error}")))
}
