//! citetap's own searches: checks a query, restricts it to the domains of its event type, and turns the search service's
//! response into a record. Called by `app::App::search` for `POST /search` and for the relay, and by `citetap search`.
//! Records made here are not stored by this module.

mod found;
pub mod query;
pub mod tavily;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use crate::config::search::{Depth, NO_KEY, Topic};
use crate::{
    citation::{
        Record, Rules,
        record::{CitationStatus, SearchRound},
    },
    config::{
        Search,
        search::{MAX_DOMAINS, MAX_RESULTS, domain},
    },
    pipeline::{Context, offline},
};
pub use found::Found;
pub use tavily::Tavily;

/// Characters of the longest query that is sent to the service.
pub const MAX_QUERY: usize = 2000;

/// What somebody asks for. Everything but the query has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SearchAsk)]
pub struct Ask {
    pub query: String,
    pub event_type: Option<String>,
    pub topic: Option<Topic>,
    pub search_depth: Option<Depth>,
    pub time_range: Option<TimeRange>,
    /// `2026-01-13`
    pub start_date: Option<String>,
    pub end_date: Option<String>,
    pub country: Option<String>,
    pub max_results: Option<u32>,
    #[serde(default)]
    pub include_domains: Vec<String>,
    #[serde(default)]
    pub exclude_domains: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeRange {
    Day,
    Week,
    Month,
    Year,
}

/// The service's request: checked, and within the domains of its event type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Query {
    pub query: String,
    pub topic: Topic,
    pub search_depth: Depth,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_range: Option<TimeRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    pub max_results: u32,
    /// Also enforced on the results. Empty allows any domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_domains: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_domains: Vec<String>,
    pub include_answer: bool,
    pub include_favicon: bool,
    #[serde(skip)]
    pub event_type: Option<String>,
}

impl Query {
    /// Checks a request, with the configuration's defaults. The error says what is valid.
    pub fn new(ask: Ask, search: &Search) -> Result<Self, String> {
        let query = ask.query.trim().to_owned();
        if query.is_empty() || query.chars().count() > MAX_QUERY {
            return Err(format!("query is a text of 1 to {MAX_QUERY} characters"));
        }
        let max_results = ask.max_results.unwrap_or(search.max_results);
        if !(1..=MAX_RESULTS).contains(&max_results) {
            return Err(format!("max_results is a number from 1 to {MAX_RESULTS}"));
        }
        let requested = parse_domains("include_domains", &ask.include_domains)?;
        let include_domains = match &ask.event_type {
            Some(name) => narrow_domains(name, enforced_domains(name, &search.event_types)?, requested)?,
            None => requested,
        };
        Ok(Self {
            query,
            topic: ask.topic.unwrap_or(search.topic),
            search_depth: ask.search_depth.unwrap_or(search.search_depth),
            time_range: ask.time_range,
            start_date: check_date("start_date", ask.start_date)?,
            end_date: check_date("end_date", ask.end_date)?,
            country: check_country(ask.country)?,
            max_results,
            include_domains,
            exclude_domains: parse_domains("exclude_domains", &ask.exclude_domains)?,
            include_answer: false,
            include_favicon: true,
            event_type: ask.event_type,
        })
    }

    fn allows(&self, hostname: Option<&str>) -> bool {
        self.include_domains.is_empty() || hostname.is_some_and(|host| is_within(host, &self.include_domains))
    }
}

/// The domains of an event type.
fn enforced_domains<'c>(name: &str, known: &'c BTreeMap<String, Vec<String>>) -> Result<&'c [String], String> {
    known.get(name).map(Vec::as_slice).ok_or_else(|| {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        match &names[..] {
            [] => "event_type: none is configured ([search.event_types])".to_owned(),
            names => format!("event_type is one of {}", names.join(", ")),
        }
    })
}

/// The requested domains within the enforced ones: a request can narrow an event type's list but not leave it.
fn narrow_domains(name: &str, enforced: &[String], requested: Vec<String>) -> Result<Vec<String>, String> {
    if requested.is_empty() || enforced.is_empty() {
        return Ok(if requested.is_empty() { enforced.to_vec() } else { requested });
    }
    let mut allowed: Vec<String> = requested.iter().filter(|domain| is_within(domain, enforced)).cloned().collect();
    allowed.extend(enforced.iter().filter(|domain| is_within(domain, &requested)).cloned());
    allowed.sort();
    allowed.dedup();
    if allowed.is_empty() {
        return Err(format!(
            "include_domains: none is within the domains of event_type {name}: {}",
            enforced.join(", ")
        ));
    }
    Ok(allowed)
}

/// True if the host is one of these domains or a subdomain of one.
fn is_within(host: &str, domains: &[String]) -> bool {
    let host = host.trim_end_matches('.');
    domains
        .iter()
        .any(|domain| host.strip_suffix(domain.as_str()).is_some_and(|below| below.is_empty() || below.ends_with('.')))
}

fn parse_domains(name: &str, requested: &[String]) -> Result<Vec<String>, String> {
    if requested.len() > MAX_DOMAINS {
        return Err(format!("{name} has {MAX_DOMAINS} domains at most"));
    }
    let parse = |text: &String| domain(text).ok_or_else(|| format!("{name} is a list of domains such as example.com"));
    requested.iter().map(parse).collect()
}

fn check_date(name: &str, requested: Option<String>) -> Result<Option<String>, String> {
    match requested {
        Some(text) if text.parse::<jiff::civil::Date>().is_err() => Err(format!("{name} is a date such as 2026-01-13")),
        valid => Ok(valid),
    }
}

fn check_country(requested: Option<String>) -> Result<Option<String>, String> {
    let is_plain = |text: &String| {
        (2..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphabetic() || c == ' ' || c == '-')
    };
    match requested {
        Some(text) if !is_plain(&text) => Err("country is its English name, such as china".to_owned()),
        valid => Ok(valid),
    }
}

/// Why a search has no result. Contains neither the key nor the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchError {
    /// 401, 403.
    KeyRefused,
    /// 429, with the service's `Retry-After`.
    RateLimited(Option<Duration>),
    /// 432, 433: the plan's credits are used up.
    QuotaUsedUp,
    /// 400, 422: the service's message, shortened.
    Refused(String),
    Timeout(Duration),
    /// The connection could not be opened, or it broke.
    Unreachable(String),
    /// Any other status, redirects included, with the service's `Retry-After`.
    Status(u16, Option<Duration>),
    /// The response is no search response.
    Unreadable(&'static str),
}

impl SearchError {
    /// The label in metrics and logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::KeyRefused => "key_refused",
            Self::RateLimited(_) => "rate_limited",
            Self::QuotaUsedUp => "quota",
            Self::Refused(_) => "refused",
            Self::Timeout(_) => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Status(..) => "status",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyRefused => f.write_str("the search service refused the key (search.key, TAVILY_API_KEY)"),
            Self::RateLimited(Some(wait)) => {
                write!(f, "the search service limits the rate; it wants {} s of rest", wait.as_secs())
            }
            Self::RateLimited(None) => f.write_str("the search service limits the rate"),
            Self::QuotaUsedUp => f.write_str("the search service says that the plan's credits are used up"),
            Self::Refused(why) => write!(f, "the search service refused the request: {why}"),
            Self::Timeout(after) => {
                write!(f, "the search service did not answer within {} s (search.timeout)", after.as_secs_f64())
            }
            Self::Unreachable(why) => write!(f, "the search service could not be asked: {why}"),
            Self::Status(status, _) => write!(f, "the search service answered with status {status}"),
            Self::Unreadable(why) => write!(f, "the search service's answer could not be read: {why}"),
        }
    }
}

impl std::error::Error for SearchError {}

/// The context of a search's record. The record gets a new id, because the service's id names a request, not a message.
pub fn context(rules: Arc<Rules>) -> Context {
    Context {
        route: "search".to_owned(),
        provider: crate::provider::tavily::PROVIDER,
        link_base: None,
        nonce: uuid::Uuid::new_v4().simple().to_string(),
        created: jiff::Timestamp::now(),
        fallback_id: uuid::Uuid::now_v7().to_string(),
        task: None,
        rules,
    }
}

/// Turns the service's response into a record and drops results outside the query's domains, which services may return.
/// Also returns how many were dropped.
pub fn record(context: Context, query: &Query, response: Bytes) -> Result<(Box<Record>, u32), SearchError> {
    let id = context.fallback_id.clone();
    let rules = Arc::clone(&context.rules);
    let record = offline::document_record(context, response);
    let mut record = record.ok_or(SearchError::Unreadable("it is no search response"))?;
    let request_id = std::mem::replace(&mut record.message_id, id);
    if request_id != record.message_id {
        record.metadata.insert("requestId".to_owned(), Value::String(request_id));
    }
    let (mut dropped, mut filtered) = (0, 0);
    record.citations.retain(|citation| {
        let is_allowed = query.allows(citation.hostname.as_deref());
        dropped += u32::from(!is_allowed);
        filtered += u32::from(!is_allowed && citation.status == CitationStatus::Filtered);
        is_allowed
    });
    record.stats.total_returned -= dropped;
    record.stats.filtered_count -= filtered;
    record.stats.kept_after_filter -= dropped - filtered;
    record.corroboration = rules.corroboration.corroborate(&record.citations);
    let cited = record.citations.iter().filter(|citation| citation.cited).count();
    record.stats.cited_count = u32::try_from(cited).unwrap_or(u32::MAX);
    if let Some(event_type) = &query.event_type {
        record.metadata.insert("eventType".to_owned(), Value::String(event_type.clone()));
    }
    if dropped > 0 {
        record.metadata.insert("droppedOutsideDomains".to_owned(), dropped.into());
    }
    // The service may not repeat the query, but a search's record names it.
    if record.queries.is_empty() {
        record.queries.push(query.query.clone());
        if record.rounds.is_empty() {
            record.rounds.push(SearchRound { round: 1, ..SearchRound::default() });
        }
        for round in &mut record.rounds {
            round.queries.push(query.query.clone());
        }
    }
    Ok((record, dropped))
}

#[cfg(test)]
mod tests;
