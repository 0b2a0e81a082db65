//! Search blocks and their result cards, which both protocols share.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    citation::ledger::Reference,
    provider::{Signal, Sink, WEB, code, json::Node, published},
};

const BLOCK: &[&str] = &["search_query_result_block", "searchQueryResultBlock", "search_block", "searchBlock"];
const RESULTS: &[&str] = &["results", "result_list", "resultList"];
const CARDS: &[&str] =
    &["text_card", "textCard", "video_card", "videoCard", "image_card", "imageCard", "image_result", "imageResult"];

/// Reads the content of a block if it is a search. Returns whether it is.
pub fn read_search(content: &Node<'_>, left: u8, block_id: &str, sink: &mut dyn Sink) -> bool {
    if let Some(block) = content.first(BLOCK) {
        return block.with_decoded(left, |block, _| {
            emit_round(block, block_id, sink);
            true
        });
    }
    // The older protocol also sends the search without a wrapper.
    if content.first(RESULTS).is_some() || content.get("queries").is_some() {
        emit_round(content, block_id, sink);
        return true;
    }
    false
}

fn emit_round(block: &Node<'_>, block_id: &str, sink: &mut dyn Sink) {
    let queries = block.first(&["queries", "query_list", "queryList"]).map(Node::as_list).unwrap_or_default();
    let queries = queries.iter().filter_map(|q| q.as_str().or_else(|| q.text(&["query", "text"])));
    sink.signal(Signal::SearchRound {
        key: block_id,
        summary: block.text(&["summary"]),
        queries: queries.map(Cow::Borrowed).collect(),
    });
    let results = block.first(RESULTS).map(Node::as_list).unwrap_or_default();
    for (position, result) in (1..).zip(results) {
        let found = CARDS.iter().find_map(|key| result.get(key).filter(|card| card.is_map()).map(|card| (*key, card)));
        let (kind, card) = found.unwrap_or(("", result));
        emit_reference(card, kind, position, sink);
    }
}

fn emit_reference(card: &Node<'_>, kind: &str, position: u32, sink: &mut dyn Sink) {
    if !card.is_map() {
        return sink.signal(Signal::InvalidReference { id: None, position, code: code::NOT_AN_OBJECT });
    }
    let url = card.text(&["url", "video_url", "videoUrl", "main_site_url", "mainSiteUrl", "mobile_url", "link"]);
    let title = card.text(&["title", "img_caption", "imgCaption"]);
    if url.is_none() && title.is_none() {
        let id = card.id(&["id", "doc_id", "docId"]);
        return sink.signal(Signal::InvalidReference { id, position, code: code::MISSING_TITLE_AND_URL });
    }
    let doc_id = card.id(&["doc_id", "docId"]);
    let mut metadata = Vec::new();
    let mut add = |key: &'static str, value: Option<String>| {
        if let Some(value) = value {
            metadata.push((key, Value::String(value)));
        }
    };
    add("docId", doc_id.clone());
    add("cardId", card.id(&["id"]));
    match kind {
        "video_card" | "videoCard" => add("resultKind", Some("video".to_owned())),
        "image_card" | "imageCard" | "image_result" | "imageResult" => add("resultKind", Some("image".to_owned())),
        _ if card.text(&["main_site_url", "img_caption"]).is_some() => add("resultKind", Some("image".to_owned())),
        _ => {}
    }
    // Counted from zero, and zero is omitted: the first card of a list has no rank, the second has 1.
    let rank = card.index(&["original_doc_rank", "originalDocRank"]);
    sink.signal(Signal::Reference(Reference {
        number: card.index(&["index"]).or(rank),
        position: Some(position),
        rank: rank.map(|rank| rank + 1),
        score: None,
        url,
        title,
        snippet: card.text(&["summary", "snippet", "description", "content"]),
        site_name: card.text(&[
            "sitename",
            "site_name",
            "siteName",
            "source_name",
            "sourceName",
            "platform",
            "source_app_name",
            "sourceAppName",
        ]),
        icon_url: card.text(&["logo_url", "logoUrl", "icon_url", "iconUrl"]),
        // Despite its name, a timestamp text with a UTC offset.
        published: card.first(&["publish_time_second", "publishTimeSecond", "publish_time"]).and_then(published),
        doc_id: doc_id.map(Cow::Owned),
        kind: WEB,
        cited: false,
        metadata,
    }));
}
