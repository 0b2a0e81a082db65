//! The HTTP API: `/citations`, tenants, what operators ask.

mod flight;
mod formats;
mod list;
mod normalize;
mod one;
mod openapi;
mod ops;
mod render;
mod search;
mod stats;
mod tasks;
pub mod tenants;

use std::time::Duration;

use bytes::Bytes;
use citetap::{
    citation::Record,
    replay::{Script, Scripted, Step, Upstream},
    store::Entry,
};
use http::Method;

use crate::net::{Answer, Client, Proxy, request, route, tencent};

/// The route `/chat` in front of these paths, and `toml` before it.
async fn proxy(scripts: Vec<(&str, Script)>, toml: &str) -> (Upstream, Proxy) {
    let scripts = scripts.into_iter().map(|(path, script)| Scripted::new(path, script)).collect();
    let upstream = Upstream::bind(scripts).await.unwrap();
    let toml = format!("{toml}\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
    let proxy = Proxy::start(&toml).await;
    (upstream, proxy)
}

/// The proxy in front of whole answers: `/chat/ID` answers message ID.
async fn answering(ids: &[&str]) -> (Upstream, Proxy) {
    let paths: Vec<String> = ids.iter().map(|id| format!("/{id}")).collect();
    let scripts = paths.iter().zip(ids).map(|(path, id)| (path.as_str(), Script::sse(tencent::answer(id)))).collect();
    proxy(scripts, "").await
}

/// These pieces, with a pause between them.
fn steps(pieces: &[String], pause: Duration) -> Script {
    let mut steps = Vec::new();
    for piece in pieces {
        steps.extend([Step::Send(Bytes::from(piece.clone())), Step::Pause(pause)]);
    }
    steps.pop();
    Script::sse_steps(steps)
}

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

async fn ask(proxy: &Proxy, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    Client::h1(proxy.addr).await.send(request(method, path, headers, "")).await
}

async fn record(answer: Answer) -> Record {
    serde_json::from_value(answer.json().await).unwrap()
}

/// Streams message `id` to its end and gives the record of its event.
async fn streamed(proxy: &Proxy, id: &str) -> Record {
    let whole = proxy.post(&format!("/chat/{id}"), "{}").await.whole().await;
    assert_eq!(whole.error, None);
    let (_, mut ours) = whole.split();
    assert_eq!(ours.len(), 1);
    assert!(ours[0].stored);
    ours.remove(0)
}

/// Puts records into the store as they are.
async fn put(proxy: &Proxy, entries: &[Entry]) {
    proxy.app.store.put(entries).await.unwrap();
}
