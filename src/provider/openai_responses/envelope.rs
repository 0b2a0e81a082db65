//! Encodes our frame: an annotation that the upstream has not sent, or a keep-alive.
//!
//! openai-node checks the indices of an annotation and fails on a type that it does not know, so the frame has one of two
//! types that it knows. `keepalive` is what OpenAI sends in long silences.

use serde::Serialize;

use crate::{
    citation::Record,
    provider::{Envelope, Payload, openai::shapes},
};

const ANNOTATION: &str = "response.output_text.annotation.added";
const KEEP_ALIVE: &str = "keepalive";

/// The text part that an annotation is added to.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AnnotationTarget<'a> {
    pub item_id: &'a str,
    pub output_index: u64,
    pub content_index: u64,
    pub annotation_index: u64,
}

#[derive(Serialize)]
struct OwnFrame<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Some clients refuse an event without a number.
    sequence_number: u64,
    #[serde(flatten)]
    target: Option<AnnotationTarget<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotation: Option<UrlCitation<'a>>,
    citetap: &'a Record,
}

/// An annotation; in this API its fields are flat.
#[derive(Serialize)]
struct UrlCitation<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    url: &'a str,
    title: String,
    start_index: u64,
    end_index: u64,
}

/// Encodes the record. The final frame is an annotation for one page that is not announced, a cited one if there is any;
/// clients collect annotations, so a frame before it is a keep-alive.
pub fn encode(
    payload: &Payload<'_>,
    target: Option<AnnotationTarget<'_>>,
    is_announced: &dyn Fn(&str) -> bool,
    sequence_number: u64,
) -> Envelope {
    let annotation = target.zip(payload.span_lookup).and_then(|(_, span_lookup)| {
        let pages = || {
            let with_url = shapes::unfiltered(payload.record).filter_map(|it| Some((it, it.url.as_deref()?)));
            with_url.filter(|(_, url)| !is_announced(url))
        };
        let (citation, url) = pages().find(|(citation, _)| citation.cited).or_else(|| pages().next())?;
        let (start_index, end_index) = span_lookup(citation);
        Some(UrlCitation { kind: "url_citation", url, title: shapes::title(citation), start_index, end_index })
    });
    let event = if annotation.is_some() { ANNOTATION } else { KEEP_ALIVE };
    let frame = OwnFrame {
        kind: event,
        sequence_number,
        target: target.filter(|_| annotation.is_some()),
        annotation,
        citetap: payload.record,
    };
    // Named as the upstream's frames are: older openai-node wraps the data of other names.
    Envelope { event, ..Envelope::new(&frame) }
}
