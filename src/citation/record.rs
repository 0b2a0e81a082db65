//! The citation record: one JSON shape for the event in the stream, the store and the API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{corroborate::Corroboration, score::Scores, text, url::source_id};

/// True for an id that needs no escaping in a URL path: `[A-Za-z0-9._:-]{1,128}`.
pub fn is_plain_id(id: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    (1..=128).contains(&id.len()) && id.bytes().all(is_plain)
}

/// The id for URL paths. An id that is not plain becomes `x-` and a hash, returned with the cleaned original.
pub fn path_id(id: &str) -> (String, Option<String>) {
    if is_plain_id(id) {
        return (id.to_owned(), None);
    }
    (format!("x-{}", source_id(id)), Some(text::single_line(id, 1024)))
}

/// What one message rests on. JSON in the spelling of the citation contract (camelCase).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Always `citations`.
    #[serde(rename = "type")]
    pub kind: RecordType,
    /// Version of this shape.
    pub version: u32,
    /// A string always: upstream ids exceed 2^53.
    pub message_id: String,
    pub conversation_id: Option<String>,
    /// The task that the client named in `x-task-id`; see [`task_id`](super::bundle::task_id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    pub provider: String,
    pub route: String,
    pub source: String,
    pub model: Option<String>,
    /// The upstream said that the answer is finished, and everything it named is here.
    pub complete: bool,
    /// Committed to the store before this was sent.
    pub stored: bool,
    /// A cap cut something: the list, or a field of it.
    pub truncated: bool,
    /// References came after the finish, the upstream's or a search's, and joined the stored record only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Repeats the response header `x-citetap-nonce`, so that nobody can forge our event.
    pub nonce: String,
    /// When the stream began (RFC 3339, UTC, milliseconds).
    pub created_at: String,
    pub summary: Option<String>,
    pub queries: Vec<String>,
    pub citations: Vec<Citation>,
    pub stats: RecordStats,
    /// How far the sources agree; null without sources, and in records that were kept before it was told.
    pub corroboration: Option<Corroboration>,
    /// The searches in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<SearchRound>,
    /// Facts about the message itself, such as an id outside our alphabet.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
}

/// The constant `citations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordType {
    Citations,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Citation {
    /// Unique in its record; numbers have gaps, so look up by number, never by position.
    pub number: u32,
    /// Further numbers under which the upstream named the same source.
    pub aliases: Vec<u32>,
    /// http or https, else null.
    pub url: Option<String>,
    pub title: Option<String>,
    /// The first excerpt.
    pub content: Option<String>,
    /// The host of `url` as parsed (ASCII).
    pub hostname: Option<String>,
    #[serde(rename = "type")]
    pub kind: CitationType,
    pub show_favicon: bool,
    pub site_name: Option<String>,
    pub icon_url: Option<String>,
    pub published_at: Option<String>,
    /// First 16 bytes of SHA-256 over the canonical URL (or `provider:docId`), hex.
    pub source_id: String,
    /// The upstream's own rank, else the order of arrival.
    pub rank: u32,
    pub origin: CitationOrigin,
    /// The answer's text names this number or one of its aliases, or the upstream says that it uses this source.
    pub cited: bool,
    pub status: CitationStatus,
    /// Always there, but for records that were kept before there were scores.
    pub scores: Option<Scores>,
    /// Every distinct excerpt, the first being `content`; empty where there is only that one.
    pub snippets: Vec<String>,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CitationType {
    #[default]
    Websearch,
    Knowledge,
    Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CitationOrigin {
    Upstream,
    Supplemental,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CitationStatus {
    Ok,
    Filtered,
    Failed,
}

/// One search of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchRound {
    /// As in `metadata.round` of its citations; 0 for those that came before any search was announced.
    pub round: u32,
    pub queries: Vec<String>,
    pub summary: Option<String>,
    pub failed_count: u32,
    pub dedup_count: u32,
    /// Who was asked, where it was not the upstream that searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What is known of those that failed; fewer than counted beyond the cap, and none in the event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<SearchFailure>,
}

/// A result that names no source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchFailure {
    /// Its place in its list, from 1.
    pub position: u32,
    /// What tells it from others, where the upstream gave it that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Stable, such as `missing_title_and_url`.
    pub error_code: String,
}

/// `total_returned` = `kept_after_filter` + `filtered_count` + `failed_count` + `dedup_count`, always.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordStats {
    pub total_returned: u32,
    pub kept_after_filter: u32,
    /// Kept in the record as `filtered`, and in no event.
    #[serde(default)]
    pub filtered_count: u32,
    pub failed_count: u32,
    pub dedup_count: u32,
    pub cited_count: u32,
    /// Numbers in the answer's text that no citation has.
    pub dangling_markers: Vec<u32>,
    /// What became of our own search beside the upstream; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplement: Option<SupplementStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Supplemented)]
pub enum SupplementStatus {
    /// Its sources are among the citations.
    Joined,
    /// It found nothing that the upstream had not named.
    Empty,
    Failed,
    /// It had not answered when this was written; the stored record follows.
    Pending,
}
