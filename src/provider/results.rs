//! Search responses, each one JSON document: Tavily's, and those of MCP search tools. They are handed in or
//! fetched by us; no chat stream is made of them.

use super::{
    Adapter, Envelope, Reason, Signal, Sink, Trail, Unread, WEB, code,
    json::{self, MAX_NESTED, Node},
    published,
};
use crate::{
    citation::{
        ledger::{Published, Reference},
        url::link,
    },
    sse::Event,
};

/// Where an MCP tool's results hide, outermost first: the message block of a chat client, the response in
/// it, JSON-RPC's own envelope, and the search result itself.
const WRAPPERS: &[&str] =
    &["metadata", "rawMcpToolResponse", "response", "webSearchResult", "result", "structuredContent"];
/// More wrappers than there are, fewer than a hostile document could nest.
const MAX_WRAPPED: u8 = 8;

pub struct Results {
    provider: &'static str,
    read: fn(&Node<'_>, &mut dyn Sink) -> bool,
}

impl Results {
    pub fn tavily() -> Self {
        Self { provider: "tavily", read: tavily }
    }

    pub fn mcp() -> Self {
        Self { provider: "mcp", read: mcp }
    }
}

impl Adapter for Results {
    fn provider(&self) -> Option<&'static str> {
        Some(self.provider)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), Unread> {
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        match json::with_parsed(data, |node| (self.read)(node, sink)) {
            Some(true) => Ok(()),
            _ => Err(Unread),
        }
    }

    fn envelope(&self) -> Envelope<'_> {
        Envelope::Bare
    }
}

/// `{"query":…,"results":[…],"response_time":…,"request_id":…}`
pub fn is_tavily(node: &Node<'_>) -> bool {
    const OF_TAVILY: &[&str] = &["query", "response_time", "request_id", "follow_up_questions"];
    has_results(node) && OF_TAVILY.iter().any(|key| node.get(key).is_some())
}

/// `{"response":{"webSearchResult":{"results":[…]}}}` and its kin.
pub fn is_mcp(node: &Node<'_>) -> bool {
    with_holder(node, MAX_NESTED, MAX_WRAPPED, &mut |_| ())
}

fn has_results(node: &Node<'_>) -> bool {
    matches!(node.get("results"), Some(Node::List(_)))
}

fn tavily(node: &Node<'_>, sink: &mut dyn Sink) -> bool {
    if !has_results(node) {
        return false;
    }
    if let Some(id) = node.id(&["request_id"]) {
        sink.signal(Signal::Message(&id));
    }
    if let Some(answer) = node.text(&["answer"]) {
        sink.signal(Signal::Text(answer, Trail::ROOT.key("answer")));
    }
    results(node, node.text(&["query"]), &["content", "snippet"], sink);
    true
}

fn mcp(node: &Node<'_>, sink: &mut dyn Sink) -> bool {
    // The chat client's own id of the message that the tool was called for.
    if let Some(id) = node.id(&["messageId", "message_id"]) {
        sink.signal(Signal::Message(&id));
    }
    with_holder(node, MAX_NESTED, MAX_WRAPPED, &mut |holder| {
        results(holder, holder.text(&["query"]), &["snippet", "content"], sink);
    })
}

/// Calls `read` with the object that has the `results`, wherever it is wrapped; says whether there is one.
fn with_holder(node: &Node<'_>, left: u8, deeper: u8, read: &mut dyn FnMut(&Node<'_>)) -> bool {
    node.opened(left, |node, left| {
        if has_results(node) {
            read(node);
            return true;
        }
        let Some(deeper) = deeper.checked_sub(1) else { return false };
        let wrapped = WRAPPERS.iter().filter_map(|key| node.get(key));
        // MCP's own form: a list of parts, one of which is a text that holds JSON.
        let parts = node.get("content").map(Node::list).unwrap_or_default();
        let texts = parts.iter().filter_map(|part| part.get("text"));
        wrapped.chain(texts).any(|inner| with_holder(inner, left, deeper, read))
    })
}

fn results(holder: &Node<'_>, query: Option<&str>, snippets: &[&str], sink: &mut dyn Sink) {
    let queries = query.map(Into::into).into_iter().collect();
    sink.signal(Signal::Round { key: "results", summary: None, queries });
    let list = holder.get("results").map(Node::list).unwrap_or_default();
    for (position, result) in (1..).zip(list) {
        reference(result, position, snippets, sink);
    }
    sink.signal(Signal::Finish(Reason::Stop));
}

fn reference(result: &Node<'_>, position: u32, snippets: &[&str], sink: &mut dyn Sink) {
    let url = result.text(&["url", "link"]);
    let title = result.text(&["title"]);
    if url.is_none() && title.is_none() {
        return sink.signal(Signal::Failed { id: None, position, code: code::MISSING_TITLE_AND_URL });
    }
    let site = url.and_then(|url| link(url, None)).map(|link| link.hostname);
    let date = result.any(&["published_date", "publishedDate"]);
    let written = date.and_then(Node::str).and_then(mail_date);
    let published = match &written {
        Some(time) => Some(Published::Text(time)),
        None => date.and_then(published),
    };
    sink.signal(Signal::Reference(Reference {
        number: Some(position),
        position: Some(position),
        rank: Some(position),
        url,
        title,
        snippet: result.text(snippets),
        site_name: site.as_deref(),
        icon_url: result.text(&["favicon"]),
        published,
        doc_id: None,
        score: score(result),
        kind: WEB,
        cited: false,
        metadata: Vec::new(),
    }));
}

/// The service's own relevance, 0 to 1, comparable within one response only. The one place where it is read.
fn score(result: &Node<'_>) -> Option<f64> {
    match result.get("score")? {
        Node::Float(score) => Some(*score),
        Node::Unsigned(score) => Some(*score as f64),
        _ => None,
    }
}

/// `Tue, 11 Nov 2025 09:00:00 GMT`, as news results have it.
fn mail_date(text: &str) -> Option<String> {
    let time = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    Some(time.timestamp().to_string())
}
