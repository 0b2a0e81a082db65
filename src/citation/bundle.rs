//! Converts a record to search result bundles: one per search round, in the snake_case of the retrieval protocol. Called by the
//! task API and by `task_reader`.

use std::{borrow::Cow, collections::BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Rules,
    record::{Citation, CitationStatus, Record, SearchFailure, SearchRound, is_plain_id, path_id},
    text,
    url::source_id,
};

/// Joins the queries of one round in `query_text`.
const QUERY_SEPARATOR: &str = "; ";

/// Prefix of the `source_id` of a failed result, before the hash.
pub const FAILED_ID: &str = "failed-";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchResultBundle {
    /// What the client named, else the conversation, else the message.
    pub task_id: String,
    /// `q1`, `q2`, … in the order of the rounds.
    pub query_id: String,
    pub query_text: String,
    /// `market`, `tech`, `timeline`, `people`, `comparison` or `general`.
    pub query_intent: String,
    pub provider: String,
    pub executed_at: String,
    pub results: Vec<SearchResultItem>,
    pub stats: SearchResultStats,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchResultItem {
    pub source_id: String,
    pub rank: u32,
    /// Empty for a document that has none.
    pub url: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<String>,
    pub captured_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    pub score_relevance: f64,
    pub score_freshness: f64,
    pub score_authority: f64,
    pub score_final: f64,
    #[serde(flatten)]
    pub state: ItemState,
}

/// `status`, and the code that a failure must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum ItemState {
    Ok,
    Filtered,
    Failed { error_code: String },
}

/// `total_returned` is the sum of the others, always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SearchResultStats {
    pub total_returned: u32,
    pub kept_after_filter: u32,
    #[serde(default)]
    pub filtered_count: u32,
    /// May be more than are listed: records keep so many only, and old ones none.
    pub failed_count: u32,
    pub dedup_count: u32,
}

/// Lower-case words by which the intent of a query is recognized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intents {
    pub market: Vec<String>,
    pub tech: Vec<String>,
    pub timeline: Vec<String>,
    pub people: Vec<String>,
    pub comparison: Vec<String>,
}

impl Intents {
    /// The intent with the most words in the query; of several, the more specific one.
    pub fn of(&self, query: &str) -> &'static str {
        let query = query.to_lowercase();
        // The most specific first.
        let candidates = [
            ("comparison", &self.comparison),
            ("timeline", &self.timeline),
            ("people", &self.people),
            ("market", &self.market),
            ("tech", &self.tech),
        ];
        let mut best = ("general", 0);
        for (intent, words) in candidates {
            let hits = words.iter().filter(|word| text::has_word(&query, word)).count();
            if hits > best.1 {
                best = (intent, hits);
            }
        }
        best.0
    }
}

/// Id of the task that a record belongs to, usable in a URL path: the client's, else the conversation's, else the message's.
pub fn task_id(record: &Record) -> Cow<'_, str> {
    match (&record.task_id, &record.conversation_id) {
        (Some(task), _) => Cow::Borrowed(task),
        (None, Some(conversation)) if is_plain_id(conversation) => Cow::Borrowed(conversation),
        (None, Some(conversation)) if !conversation.is_empty() => Cow::Owned(path_id(conversation).0),
        (None, _) => Cow::Borrowed(&record.message_id),
    }
}

/// The bundles of a message that is a task of its own.
pub fn bundles(record: &Record, rules: &Rules) -> Vec<SearchResultBundle> {
    bundles_from(0, record, rules).0
}

/// The bundles of one message of a task, and the number of queries up to its end. `query_offset` is the number of queries in
/// the messages before it.
pub fn bundles_from(query_offset: usize, record: &Record, rules: &Rules) -> (Vec<SearchResultBundle>, usize) {
    let rounds = all_rounds(record);
    // Empty rounds are numbered too, so that a query keeps its id while the record grows.
    let bundle = |(index, round): (usize, &SearchRound)| {
        let query_text = query_text(record, round);
        let of_round = record.citations.iter().filter(|citation| round_of(citation) == round.round);
        let found = of_round.map(|citation| citation_item(record, citation, rules));
        let failed = round.failures.iter().map(|failure| failed_item(record, round, failure));
        let results: Vec<SearchResultItem> = found.chain(failed).collect();
        SearchResultBundle {
            task_id: task_id(record).into_owned(),
            query_id: format!("q{}", query_offset + index + 1),
            query_intent: rules.intents.of(&query_text).to_owned(),
            query_text,
            provider: round.provider.as_ref().unwrap_or(&record.provider).clone(),
            executed_at: record.created_at.clone(),
            stats: stats(round, &results),
            results,
        }
    };
    let listed = rounds.iter().enumerate().filter(|(index, round)| !is_empty_round(record, round, &rounds[..*index]));
    (listed.map(bundle).collect(), query_offset + rounds.len())
}

/// True for a round without results and without new queries, such as a search block resent under a new id.
fn is_empty_round(record: &Record, round: &SearchRound, earlier: &[SearchRound]) -> bool {
    let known = |query: &String| earlier.iter().any(|round| round.queries.contains(query));
    let counts = round.failed_count + round.dedup_count;
    counts == 0
        && round.queries.iter().all(known)
        && record.citations.iter().all(|citation| round_of(citation) != round.round)
}

/// The record's rounds and those that only its citations refer to. Failures and duplicates that no round counts, as in records
/// from before rounds existed, are added to the first.
fn all_rounds(record: &Record) -> Vec<SearchRound> {
    let mut rounds = record.rounds.clone();
    let numbers: BTreeSet<u32> = record.citations.iter().map(round_of).collect();
    for number in numbers {
        if rounds.iter().all(|round| round.round != number) {
            rounds.push(SearchRound { round: number, ..SearchRound::default() });
        }
    }
    rounds.sort_by_key(|round| round.round);
    let failed = record.stats.failed_count.saturating_sub(rounds.iter().map(|round| round.failed_count).sum());
    let dedup = record.stats.dedup_count.saturating_sub(rounds.iter().map(|round| round.dedup_count).sum());
    if failed + dedup > 0 {
        if rounds.is_empty() {
            rounds.push(SearchRound::default());
        }
        if let Some(first) = rounds.first_mut() {
            first.failed_count += failed;
            first.dedup_count += dedup;
        }
    }
    rounds
}

/// Round of the citation; 0 if it came before the first announced round.
fn round_of(citation: &Citation) -> u32 {
    let round = citation.metadata.get("round").and_then(serde_json::Value::as_u64);
    round.and_then(|round| u32::try_from(round).ok()).unwrap_or_default()
}

fn query_text(record: &Record, round: &SearchRound) -> String {
    let joined = |queries: &[String]| (!queries.is_empty()).then(|| queries.join(QUERY_SEPARATOR));
    joined(&round.queries)
        .or_else(|| round.summary.clone())
        .or_else(|| joined(&record.queries))
        .or_else(|| record.summary.clone())
        .unwrap_or_default()
}

fn citation_item(record: &Record, citation: &Citation, rules: &Rules) -> SearchResultItem {
    let scores = citation.scores.unwrap_or_else(|| {
        // A record from before scores existed: score it as of its creation.
        let created = record.created_at.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        rules.scores.score(citation, None, created)
    });
    let title = citation.title.as_ref().or(citation.site_name.as_ref()).or(citation.hostname.as_ref());
    let source_id = match citation.status {
        // Differs from the source's id, because another query may return the source without failure.
        CitationStatus::Failed => format!("{FAILED_ID}{}", citation.source_id),
        CitationStatus::Ok | CitationStatus::Filtered => citation.source_id.clone(),
    };
    SearchResultItem {
        source_id,
        rank: citation.rank,
        url: citation.url.clone().unwrap_or_default(),
        title: title.cloned().unwrap_or_default(),
        snippet: citation.content.clone(),
        content_text: None,
        language: None,
        published_at: citation.published_at.clone(),
        captured_at: record.created_at.clone(),
        http_status: None,
        score_relevance: scores.relevance,
        score_freshness: scores.freshness,
        score_authority: scores.authority,
        score_final: scores.overall,
        state: match citation.status {
            CitationStatus::Ok => ItemState::Ok,
            CitationStatus::Filtered => ItemState::Filtered,
            CitationStatus::Failed => {
                let code = citation.metadata.get("errorCode").and_then(serde_json::Value::as_str);
                ItemState::Failed { error_code: code.unwrap_or("unknown").to_owned() }
            }
        },
    }
}

/// The item of a failed result, with empty texts. Its id is stable and differs from every source id.
fn failed_item(record: &Record, round: &SearchRound, failure: &SearchFailure) -> SearchResultItem {
    let Record { provider, message_id, .. } = record;
    let id = failure.id.as_deref().unwrap_or_default();
    let key = format!("{provider}:{message_id}:{}:{}:{id}", round.round, failure.position);
    SearchResultItem {
        source_id: format!("{FAILED_ID}{}", source_id(&key)),
        rank: failure.position,
        url: String::new(),
        title: String::new(),
        snippet: None,
        content_text: None,
        language: None,
        published_at: None,
        captured_at: record.created_at.clone(),
        http_status: None,
        score_relevance: 0.0,
        score_freshness: 0.0,
        score_authority: 0.0,
        score_final: 0.0,
        state: ItemState::Failed { error_code: failure.error_code.clone() },
    }
}

fn stats(round: &SearchRound, results: &[SearchResultItem]) -> SearchResultStats {
    let count = |is_counted: fn(&ItemState) -> bool| {
        u32::try_from(results.iter().filter(|item| is_counted(&item.state)).count()).unwrap_or(u32::MAX)
    };
    let kept_after_filter = count(|state| *state == ItemState::Ok);
    let filtered_count = count(|state| *state == ItemState::Filtered);
    let failed_count = round.failed_count.max(count(|state| matches!(state, ItemState::Failed { .. })));
    let dedup_count = round.dedup_count;
    SearchResultStats {
        total_returned: kept_after_filter + filtered_count + failed_count + dedup_count,
        kept_after_filter,
        filtered_count,
        failed_count,
        dedup_count,
    }
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
