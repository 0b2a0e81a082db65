//! Reads references: `groundingMetadata` of searches, `urlContextMetadata` of fetched pages, and `citationMetadata` of
//! quoted texts.

mod item;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::offsets::Offsets;
use crate::{
    citation::ledger::MAX_CITATIONS,
    provider::{Signal, Sink, json::Node},
};
use item::Item;

/// Bytes of URLs and ids kept, so that a later support can name an earlier chunk. Chunks beyond are cited only by a
/// support that comes with them.
const MAX_NAMES: usize = 256 * 1024;

/// The references of one answer.
#[derive(Default)]
pub struct Sources {
    /// The grounding chunks so far, at most `MAX_CITATIONS`. Supports count them over all responses of a stream.
    chunks: Vec<Chunk>,
    /// Bytes of their names.
    names: usize,
    /// Position in `chunks` of the first chunk of the last list.
    last_list: usize,
    /// Chunks that a support names, and the first span of the text that they support.
    uses: BTreeMap<usize, Option<Span>>,
    offsets: Offsets,
}

/// A grounding chunk that was read before.
struct Chunk {
    digest: u64,
    url: Option<Box<str>>,
    doc: Option<Box<str>>,
}

/// Start and end of a part of the answer in code points.
pub type Span = (u64, u64);

impl Sources {
    /// Adds a delta of the answer, which supports refer to.
    pub fn add_text(&mut self, text: &str) {
        self.offsets.push(text);
    }

    /// Reads the metadata of a candidate.
    pub fn read(&mut self, candidate: &Node<'_>, sink: &mut dyn Sink) {
        let pages =
            candidate.get("urlContextMetadata").map(|metadata| list(metadata, "urlMetadata")).unwrap_or_default();
        if !pages.is_empty() {
            emit_round(Vec::new(), sink);
        }
        for (position, page) in (1..).zip(pages) {
            item::emit_page(page, position, sink);
        }
        if let Some(metadata) = candidate.get("citationMetadata") {
            // Older responses of the Gemini API use the second name.
            let quotes = ["citations", "citationSources"].into_iter().flat_map(|key| list(metadata, key));
            for (position, quote) in (1..).zip(quotes) {
                item::emit_quote(quote, position, sink);
            }
        }
        if let Some(metadata) = candidate.get("groundingMetadata") {
            self.read_grounding(metadata, sink);
        }
    }

    fn read_grounding(&mut self, metadata: &Node<'_>, sink: &mut dyn Sink) {
        const QUERIES: [&str; 3] = ["webSearchQueries", "retrievalQueries", "imageSearchQueries"];
        let queries = QUERIES.iter().flat_map(|key| list(metadata, key));
        let queries: Vec<Cow<'_, str>> = queries.filter_map(Node::as_str).map(Cow::Borrowed).collect();
        let items: Vec<Item<'_>> = list(metadata, "groundingChunks").iter().map(Item::new).collect();
        if !queries.is_empty() || !items.is_empty() {
            emit_round(queries, sink);
        }
        let used = self.read_supports(metadata);
        let first = self.add_chunks(&items);
        for (index, item) in (first..).zip(&items) {
            item.emit(index, self.uses.get(&index).copied(), sink);
        }
        // Earlier chunks that this response is the first to support.
        for index in used {
            let listed = (first..first + items.len()).contains(&index);
            if let (false, Some(chunk), Some(span)) = (listed, self.chunks.get(index), self.uses.get(&index)) {
                item::emit_use(chunk.url.as_deref(), chunk.doc.as_deref(), index, *span, sink);
            }
        }
    }

    /// Reads which chunks support which part of the text. Returns those that had no support, or no span, before.
    fn read_supports(&mut self, metadata: &Node<'_>) -> Vec<usize> {
        let mut used = Vec::new();
        for support in list(metadata, "groundingSupports") {
            let mut converted = None;
            for index in list(support, "groundingChunkIndices").iter().filter_map(Node::as_number) {
                let Some(index) = usize::try_from(index).ok().filter(|index| *index < MAX_CITATIONS) else { continue };
                if matches!(self.uses.get(&index), Some(Some(_))) {
                    continue;
                }
                let span = *converted.get_or_insert_with(|| support.get("segment").and_then(|it| self.span(it)));
                if self.uses.insert(index, span) != Some(span) {
                    used.push(index);
                }
            }
        }
        used
    }

    /// Converts a segment's offsets. `None`: it is in another part than the first one, or its text has another length.
    fn span(&self, segment: &Node<'_>) -> Option<Span> {
        let number = |key| segment.get(key).and_then(Node::as_number);
        // JSON leaves out a zero.
        let (start, end) = (number("startIndex").unwrap_or_default(), number("endIndex")?);
        if number("partIndex").is_some_and(|part| part != 0) || start >= end {
            return None;
        }
        let span = (self.offsets.chars_before(start)?, self.offsets.chars_before(end)?);
        let fits = |text: &str| text.chars().count() as u64 == span.1 - span.0;
        segment.get("text").and_then(Node::as_str).is_none_or(fits).then_some(span)
    }

    /// Remembers a list of chunks and returns the index of its first one. A stream may continue the list, or send it again
    /// with more entries.
    fn add_chunks(&mut self, items: &[Item<'_>]) -> usize {
        let digests: Vec<u64> = items.iter().map(digest).collect();
        let repeats = |first: usize| {
            let known = self.chunks.get(first..).unwrap_or_default();
            known.len() <= digests.len() && known.iter().zip(&digests).all(|(chunk, digest)| chunk.digest == *digest)
        };
        let first = [0, self.last_list].into_iter().find(|first| repeats(*first)).unwrap_or(self.chunks.len());
        if items.is_empty() {
            return self.chunks.len();
        }
        self.last_list = first;
        let known = self.chunks.len() - first;
        for (item, digest) in items.iter().zip(digests).skip(known) {
            if self.chunks.len() >= MAX_CITATIONS {
                break;
            }
            let (url, doc) = (item.url, item.doc.as_deref());
            let length = url.map_or(0, str::len) + doc.map_or(0, str::len);
            let fits = length <= MAX_NAMES - self.names;
            self.names += if fits { length } else { 0 };
            let keep = |name: Option<&str>| name.filter(|_| fits).map(Into::into);
            self.chunks.push(Chunk { digest, url: keep(url), doc: keep(doc) });
        }
        first
    }
}

/// Sends a search round. All searches of an answer share one key, because nothing distinguishes them.
fn emit_round(queries: Vec<Cow<'_, str>>, sink: &mut dyn Sink) {
    sink.signal(Signal::SearchRound { key: "search", summary: None, queries });
}

fn list<'n, 'j>(holder: &'n Node<'j>, key: &str) -> &'n [Node<'j>] {
    holder.get(key).map(Node::as_list).unwrap_or_default()
}

fn digest(item: &Item<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (item.url, item.doc.as_deref(), item.title).hash(&mut hasher);
    hasher.finish()
}
