//! Inputs that a proxy meets sooner or later. The name of each test starts with its number. Three rules hold for all:
//! the client receives the upstream's bytes and at most our one frame; nothing panics or grows without bound, and the
//! next event and the next client are unaffected; input that cannot be parsed is relayed untapped and counted.
//!
//! Sizes that are too large for a test are scaled down by a named constant, and tests assert growth instead of time.

mod content;
mod framing;
mod http;
mod json;
mod load;
pub mod raw_upstream;
mod store;

use std::time::Duration;

use bytes::Bytes;
use citetap::{
    citation::Record,
    replay::{Script, Scripted, Step, Upstream},
};

use crate::net::{Client, Proxy, Whole, post, route};

/// One proxy of one dialect in front of many streams, each at its own path.
struct Bench {
    _upstream: Upstream,
    proxy: Proxy,
    client: Client,
    inputs: Vec<Vec<u8>>,
}

impl Bench {
    /// Streams of a provider's dialect, each as a list of pieces.
    async fn new(provider: &str, streams: Vec<Vec<Bytes>>) -> Self {
        Self::with(provider, streams, "").await
    }

    /// The same with additional configuration before the route.
    async fn with(provider: &str, streams: Vec<Vec<Bytes>>, toml: &str) -> Self {
        let inputs = streams.iter().map(|pieces| pieces.concat()).collect();
        let script = |pieces: Vec<Bytes>| Script::sse_steps(pieces.into_iter().map(Step::Send).collect::<Vec<_>>());
        let scripts = streams.into_iter().enumerate();
        let scripts = scripts.map(|(n, pieces)| Scripted::new(format!("/{n}"), script(pieces))).collect();
        let upstream = Upstream::bind(scripts).await.unwrap();
        let toml = format!("{toml}\n{}provider = \"{provider}\"\n", route("chat", &upstream.url()));
        let proxy = Proxy::start(&toml).await;
        let client = Client::h1(proxy.addr).await;
        Self { _upstream: upstream, proxy, client, inputs }
    }

    /// Reads stream `n` to its clean end, checks that the bytes are the upstream's, and returns the records of our
    /// events.
    async fn pass(&mut self, n: usize) -> Vec<Record> {
        let whole = self.stream(n).await;
        assert_eq!(whole.error, None, "stream {n}");
        let (theirs, ours) = whole.split();
        assert!(
            theirs == self.inputs[n],
            "stream {n}:\n{}\nwas\n{}",
            String::from_utf8_lossy(&theirs),
            String::from_utf8_lossy(&self.inputs[n])
        );
        ours
    }

    /// The same for streams with one event.
    async fn one(&mut self, n: usize) -> Record {
        let mut ours = self.pass(n).await;
        assert_eq!(ours.len(), 1, "stream {n}: one event");
        ours.remove(0)
    }

    async fn stream(&mut self, n: usize) -> Whole {
        let response = self.client.send(post(&format!("/chat/{n}"), "{}")).await;
        assert_eq!(response.status, 200);
        response.whole().await
    }
}

/// The only record of a one-piece stream in Tencent's dialect.
async fn tapped(stream: impl Into<Bytes>) -> Record {
    Bench::new("tencent", vec![vec![stream.into()]]).await.one(0).await
}

/// The sum of a metric over all series with these labels.
async fn metric(proxy: &Proxy, name: &str, labels: &[&str]) -> f64 {
    let text = proxy.get("/metrics").await.whole().await.text();
    let series = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label))
    });
    series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// Splits the input into two pieces at every byte.
fn split_everywhere(stream: &[u8]) -> Vec<Vec<Bytes>> {
    let all = Bytes::copy_from_slice(stream);
    (1..stream.len()).map(|at| vec![all.slice(..at), all.slice(at..)]).collect()
}

/// Fails if four times the input takes far more than four times as long; quadratic code takes sixteen times. The best
/// of a few runs counts, because other load only adds time.
fn is_linear(mut work: impl FnMut(usize), n: usize) {
    let mut best = |n: usize| {
        let run = |_| {
            let began = on_processor();
            work(n);
            on_processor() - began
        };
        (0..3).map(run).min().unwrap().max(Duration::from_millis(1))
    };
    let (small, large) = (best(n), best(4 * n));
    assert!(large < small * 9, "{n} took {small:?}, four times as many {large:?}");
}

/// CPU time of this thread: the first number, in nanoseconds.
fn on_processor() -> Duration {
    // The kernel updates it when a thread leaves the CPU.
    std::thread::park_timeout(Duration::from_micros(1));
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

/// Frames of Doubao's dialect.
mod doubao {
    use serde_json::{Value, json};

    pub fn event(name: &str, json: &Value) -> String {
        format!("event: {name}\ndata: {json}\n\n")
    }

    /// A search block of message 12 with these cards.
    pub fn cards(block: &str, cards: &[Value]) -> String {
        let results: Vec<Value> = cards.iter().map(|card| json!({ "text_card": card })).collect();
        event(
            "STREAM_CHUNK",
            &json!({"message_id": "12", "patch_op": [{"patch_object": 1, "patch_value": {"content_block": [
                {"block_type": 10025, "block_id": block,
                 "content": {"search_query_result_block": {"queries": ["q"], "results": results}}}]}}]}),
        )
    }

    pub fn card(index: u32) -> Value {
        json!({"index": index, "title": format!("标题 {index}"), "url": format!("https://s{index}.example.com/")})
    }

    pub fn text(text: &str) -> String {
        event("CHUNK_DELTA", &json!({ "text": text }))
    }

    pub fn end(kind: u32) -> String {
        event("SSE_REPLY_END", &json!({ "end_type": kind }))
    }
}

/// OpenAI chunks.
mod openai {
    use serde_json::{Value, json};

    pub fn chunk(delta: &Value, finish: Option<&str>, more: &[(&str, Value)]) -> String {
        let mut json = json!({"id": "chat-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
                              "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        for (key, value) in more {
            json[*key] = value.clone();
        }
        format!("data: {json}\n\n")
    }

    pub fn citations(urls: &[&str]) -> String {
        chunk(&json!({"content": "一"}), None, &[("citations", json!(urls))])
    }
}

/// Tencent's dialect: the given references in a complete answer.
fn with_references(list: &serde_json::Value) -> String {
    let json = serde_json::json!({"completion_id": "m", "processes": {"stage": "finished_internal_searching"},
                                  "additional_content": {"reference_chunks": list}});
    format!("data:{json}\n\n{}", crate::net::tencent::finish("m"))
}
