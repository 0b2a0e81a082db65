//! A search in parallel with a relayed chat: a scripted upstream, a scripted Tavily, and the proxy between them.

mod disconnects;
mod facade;
mod in_time;
mod late;
mod privacy;
mod requests;

use std::time::Duration;

use citetap::{
    citation::{Record, record::CitationOrigin},
    replay::{Script, Scripted, Step, Upstream},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::net::{Proxy, Whole, eventually, route, tencent};

/// The user's text: must be in no log, metric or record.
const QUESTION: &str = "canary question 金丝雀";
/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Chat {
    upstream: Upstream,
    tavily: Upstream,
    proxy: Proxy,
}

/// The route `/chat` of Tencent's dialect with these keys. `more` precedes it.
async fn chat(script: Script, tavily: Script, of_route: &str, more: &str) -> Chat {
    let upstream = Upstream::bind(vec![Scripted::new("/", script)]).await.unwrap();
    let tavily = Upstream::bind(vec![Scripted::new("/", tavily)]).await.unwrap();
    let search = if more.contains("[search]") { "" } else { "[search]\n" };
    let toml = format!(
        "{more}\n{search}key = \"test-key\"\nbase_url = \"{}\"\n{}provider = \"tencent\"\n{of_route}\n",
        tavily.url(),
        route("chat", &upstream.url()),
    );
    let proxy = Proxy::start(&toml).await;
    Chat { upstream, tavily, proxy }
}

impl Chat {
    async fn ask(&self) -> Whole {
        self.proxy.post("/chat", json!({ "query": QUESTION }).to_string()).await.whole().await
    }

    /// The stored record, once `is` returns true for it.
    async fn stored(&self, is: impl Fn(&Record) -> bool) -> Record {
        let last = tokio::sync::Mutex::new(None);
        let found = eventually(|| async {
            let entry = self.proxy.app.store.get("default", "m", None).await.unwrap()?;
            *last.lock().await = Some(entry.record.clone());
            is(&entry.record).then_some(entry.record)
        });
        found.await.unwrap_or_else(|| panic!("never so: {last:?}"))
    }

    /// A counter's value, or 0 if it does not exist.
    async fn metric(&self, name: &str) -> u64 {
        let text = self.proxy.get("/metrics").await.whole().await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    async fn outcome(&self, outcome: &str) -> u64 {
        self.metric(&format!("citetap_supplements_total{{route=\"chat\",outcome=\"{outcome}\"}}")).await
    }

    async fn skipped(&self, reason: &str) -> u64 {
        assert_eq!(self.outcome("skipped").await, 1);
        self.metric(&format!("citetap_supplements_skipped_total{{reason=\"{reason}\"}}")).await
    }
}

/// Search results: the first page of [`tencent::answer`], and two more.
fn results() -> Value {
    let result = |n: u32, url: &str| json!({"title": format!("补充 {n}"), "url": url, "content": "摘要", "score": 0.9, "raw_content": null});
    json!({"query": QUESTION, "answer": null, "images": [], "response_time": 1.2, "request_id": "req-1", "results": [
        result(1, "https://s1.example.com/"), result(2, "https://coin.example/2"), result(3, "https://other.example/3")]})
}

fn finds() -> Script {
    Script::json(results().to_string())
}

fn fails(status: u16) -> Script {
    Script::json("{}").status(StatusCode::from_u16(status).unwrap())
}

/// An answer of message `m`: these documents, a text, and the finish after a pause.
fn answer(documents: &[u32], pause: Duration) -> Script {
    let begin = if documents.is_empty() { String::new() } else { tencent::references("m", documents) };
    Script::sse_steps([
        Step::Send((begin + &tencent::text("m", "第一句[1]。")).into()),
        Step::Pause(pause),
        Step::Send(tencent::finish("m").into()),
    ])
}

fn bytes_of(documents: &[u32]) -> Vec<u8> {
    let begin = if documents.is_empty() { String::new() } else { tencent::references("m", documents) };
    (begin + &tencent::text("m", "第一句[1]。") + &tencent::finish("m")).into_bytes()
}

/// Citation numbers, and whether each is supplemental.
fn numbers(record: &Record) -> Vec<(u32, bool)> {
    record.citations.iter().map(|citation| (citation.number, citation.origin == CitationOrigin::Supplemental)).collect()
}

/// Time at the client between the piece before the finish and the finish.
fn finish_after(whole: &Whole) -> Duration {
    let is_finish = |(_, piece): &&(Duration, bytes::Bytes)| piece.windows(12).any(|part| part == b"event:finish");
    let finish = whole.pieces.iter().find(is_finish).expect("a finish").0;
    finish - whole.pieces[0].0
}
