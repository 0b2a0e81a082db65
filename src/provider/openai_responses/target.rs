//! Where an annotation of ours can be added: the last text part of the answer, and the pages that the upstream has
//! announced itself.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{Place, envelope::AnnotationTarget};
use crate::{
    citation::{ledger::MAX_CITATIONS, url::link},
    provider::{Envelope, Payload, json::Node},
};

/// Bytes of an item's id that our frame repeats. An annotation is not added to an item with a longer id, which bounds the
/// memory per stream.
const MAX_ITEM_ID: usize = 256;

/// The last text part, as a client that follows the stream has it.
#[derive(Default)]
pub struct Target {
    /// Empty if no part can be annotated.
    item_id: String,
    place: Place,
    /// Annotations of the part. openai-node fails on an index that leaves a gap, and overwrites on one that exists.
    annotation_count: u64,
    /// Digests of the canonical URLs in annotations, at most `MAX_CITATIONS`; the record has no more sources.
    announced: HashSet<u64>,
}

impl Target {
    /// Makes a part the target. A part that is new has no annotations.
    pub fn enter(&mut self, item_id: Option<&str>, place: Place) {
        let item_id = item_id.filter(|id| id.len() <= MAX_ITEM_ID).unwrap_or_default();
        if self.item_id != item_id || self.place != place {
            item_id.clone_into(&mut self.item_id);
            self.place = place;
            self.annotation_count = 0;
        }
    }

    /// Makes a part the target if it has text. Clients replace the part they have, and its annotations.
    pub fn enter_part(&mut self, item_id: Option<&str>, place: Place, part: &Node<'_>) {
        if part.text(&["type"]) == Some("output_text") {
            self.enter(item_id, place);
            self.annotation_count = part.get("annotations").map_or(0, |list| list.as_list().len() as u64);
        }
    }

    /// Makes the last text part of a message the target.
    pub fn enter_item(&mut self, item: &Node<'_>, output_index: u64) {
        let parts = item.get("content").map(Node::as_list).unwrap_or_default();
        if item.text(&["type"]) == Some("message") {
            for (position, part) in (0..).zip(parts) {
                self.enter_part(item.text(&["id"]), (output_index, position), part);
            }
        }
    }

    /// Counts an annotation that the upstream has added to the part.
    pub fn count_annotation(&mut self, index: Option<u64>) {
        let count = index.map_or(self.annotation_count, |index| index.min(u64::MAX - 1)) + 1;
        self.annotation_count = self.annotation_count.max(count);
    }

    /// Remembers that the upstream has announced a page.
    pub fn announce(&mut self, url: &str) {
        if self.announced.len() < MAX_CITATIONS
            && let Some(digest) = digest(url)
        {
            self.announced.insert(digest);
        }
    }

    pub fn is_announced(&self, url: &str) -> bool {
        digest(url).is_some_and(|digest| self.announced.contains(&digest))
    }

    /// Encodes our frame.
    pub fn envelope(&self, payload: &Payload<'_>, sequence_number: u64) -> Envelope {
        let part = AnnotationTarget {
            item_id: &self.item_id,
            output_index: self.place.0,
            content_index: self.place.1,
            annotation_index: self.annotation_count,
        };
        let part = (!self.item_id.is_empty()).then_some(part);
        super::envelope::encode(payload, part, &|url| self.is_announced(url), sequence_number)
    }
}

fn digest(url: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    link(url, None)?.canonical.hash(&mut hasher);
    Some(hasher.finish())
}
