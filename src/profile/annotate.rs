//! Sources added to a chat completion that an upstream sent whole: every byte that it said stays.

use std::ops::Range;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Positions;
use crate::{
    citation::{Record, record::CitationStatus},
    provider::{openai::shapes, splice::Pairs},
};

/// The document with the sources where clients look for them. What the upstream has there already is left alone.
/// `None`: it is no chat completion.
pub fn document(json: &[u8], record: &Record, positions: &Positions) -> Option<Vec<u8>> {
    let json = std::str::from_utf8(json).ok()?;
    let whole: &RawValue = serde_json::from_str(json).ok()?;
    let Pairs(members) = serde_json::from_str(whole.get()).ok()?;
    let choices = members.iter().rev().find(|(key, _)| key == "choices")?.1;
    let choices: Vec<&RawValue> = serde_json::from_str(choices.get()).ok()?;
    let Pairs(choice) = serde_json::from_str(choices.first()?.get()).ok()?;
    let message = choice.iter().rev().find(|(key, _)| key == "message")?.1;

    let mut record = record.clone();
    record.citations.retain(|citation| citation.status != CitationStatus::Filtered);
    let mut edits = Edits { json, edits: Vec::new() };
    edits
        .put(message, &[("annotations", &raw(&shapes::annotations(&record, &|citation| positions.span(citation)))?)])?;
    edits.put(
        whole,
        &[
            ("citations", &raw(&shapes::urls(&record))?),
            ("search_results", &raw(&shapes::search_results(&record))?),
            ("citetap", &raw(&record)?),
        ],
    )?;
    edits.apply()
}

fn raw(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

struct Edits<'j> {
    json: &'j str,
    edits: Vec<(Range<usize>, String)>,
}

impl Edits<'_> {
    /// Gives an object these members, where it has none of that name or one that says nothing.
    fn put(&mut self, object: &RawValue, members: &[(&str, &str)]) -> Option<()> {
        let Pairs(has) = serde_json::from_str(object.get()).ok()?;
        let mut added = String::new();
        for (key, value) in members {
            match has.iter().rev().find(|(name, _)| name == key) {
                None => {
                    let comma = if has.is_empty() && added.is_empty() { "" } else { "," };
                    added.push_str(&format!("{comma}\"{key}\":{value}"));
                }
                Some((_, empty)) if is_empty(empty) => {
                    let at = self.place(empty)?;
                    self.edits.push((at, (*value).to_owned()));
                }
                Some(_) => {}
            }
        }
        let end = self.place(object)?.end.checked_sub(1)?;
        self.edits.push((end..end, added));
        Some(())
    }

    /// A raw value is a piece of the document that it was read from.
    fn place(&self, value: &RawValue) -> Option<Range<usize>> {
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
