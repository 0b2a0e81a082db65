//! Adds sources to a chat completion that the upstream sent as one document. All other bytes stay unchanged.

use std::ops::Range;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Positions;
use crate::{
    citation::{Record, record::CitationStatus},
    provider::{openai::shapes, splice::Pairs},
};

/// Adds the sources in the members where clients look for them, unless the upstream has filled these. `None` if the document
/// is no chat completion.
pub fn document(json: &[u8], record: &Record, positions: &Positions) -> Option<Vec<u8>> {
    let json = std::str::from_utf8(json).ok()?;
    let completion: &RawValue = serde_json::from_str(json).ok()?;
    let Pairs(members) = serde_json::from_str(completion.get()).ok()?;
    let choices = members.iter().rev().find(|(key, _)| key == "choices")?.1;
    let choices: Vec<&RawValue> = serde_json::from_str(choices.get()).ok()?;
    let Pairs(choice) = serde_json::from_str(choices.first()?.get()).ok()?;
    let message = choice.iter().rev().find(|(key, _)| key == "message")?.1;

    let mut record = record.clone();
    record.citations.retain(|citation| citation.status != CitationStatus::Filtered);
    let mut edits = Edits { json, edits: Vec::new() };
    let annotations = to_json(&shapes::annotations(&record, &|citation| positions.span(citation)))?;
    edits.add_members(message, &[("annotations", &annotations)])?;
    edits.add_members(
        completion,
        &[
            ("citations", &to_json(&shapes::urls(&record))?),
            ("search_results", &to_json(&shapes::search_results(&record))?),
            ("citetap", &to_json(&record)?),
        ],
    )?;
    edits.apply()
}

fn to_json(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

struct Edits<'j> {
    json: &'j str,
    edits: Vec<(Range<usize>, String)>,
}

impl Edits<'_> {
    /// Adds members to an object, unless it has one of that name that is not empty.
    fn add_members(&mut self, object: &RawValue, members: &[(&str, &str)]) -> Option<()> {
        let Pairs(has) = serde_json::from_str(object.get()).ok()?;
        let mut added = String::new();
        for (key, value) in members {
            match has.iter().rev().find(|(name, _)| name == key) {
                None => {
                    let comma = if has.is_empty() && added.is_empty() { "" } else { "," };
                    added.push_str(&format!("{comma}\"{key}\":{value}"));
                }
                Some((_, empty)) if is_empty(empty) => {
                    self.edits.push((self.range_of(empty)?, (*value).to_owned()));
                }
                Some(_) => {}
            }
        }
        let end = self.range_of(object)?.end.checked_sub(1)?;
        self.edits.push((end..end, added));
        Some(())
    }

    /// Byte range of a raw value, which is a slice of the document.
    fn range_of(&self, value: &RawValue) -> Option<Range<usize>> {
        let start = (value.get().as_ptr() as usize).checked_sub(self.json.as_ptr() as usize)?;
        Some(start..start + value.get().len())
    }

    fn apply(mut self) -> Option<Vec<u8>> {
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut out = Vec::new();
        let mut from = 0;
        for (range, text) in self.edits {
            out.extend_from_slice(self.json.get(from..range.start)?.as_bytes());
            out.extend_from_slice(text.as_bytes());
            from = range.end;
        }
        out.extend_from_slice(self.json.get(from..)?.as_bytes());
        Some(out)
    }
}

fn is_empty(value: &RawValue) -> bool {
    let inner = value.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    value.get() == "null" || inner.is_some_and(|inner| inner.trim().is_empty())
}
