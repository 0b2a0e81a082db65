//! The HTTP API.

mod formats;
mod in_flight;
mod list;
mod normalize;
mod openapi;
mod ops;
mod record;
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

use crate::net::{Client, ClientResponse, Proxy, request, route, tencent};

/// A proxy with the route `/chat` to these scripts. `toml` precedes the route.
async fn proxy(scripts: Vec<(&str, Script)>, toml: &str) -> (Upstream, Proxy) {
    let scripts = scripts.into_iter().map(|(path, script)| Scripted::new(path, script)).collect();
    let upstream = Upstream::bind(scripts).await.unwrap();
    let toml = format!("{toml}\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
    let proxy = Proxy::start(&toml).await;
    (upstream, proxy)
}

/// A proxy in front of whole responses: `/chat/ID` answers with message ID.
async fn answering(ids: &[&str]) -> (Upstream, Proxy) {
    let paths: Vec<String> = ids.iter().map(|id| format!("/{id}")).collect();
    let scripts = paths.iter().zip(ids).map(|(path, id)| (path.as_str(), Script::sse(tencent::answer(id)))).collect();
    proxy(scripts, "").await
}

/// These pieces with a pause between them.
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

async fn ask(proxy: &Proxy, method: Method, path: &str, headers: &[(&str, &str)]) -> ClientResponse {
    Client::h1(proxy.addr).await.send(request(method, path, headers, "")).await
}

async fn record(response: ClientResponse) -> Record {
    serde_json::from_value(response.json().await).unwrap()
}

/// Streams message `id` to its end and returns the record of its event.
async fn streamed(proxy: &Proxy, id: &str) -> Record {
    let whole = proxy.post(&format!("/chat/{id}"), "{}").await.whole().await;
    assert_eq!(whole.error, None);
    let (_, mut ours) = whole.split();
    assert_eq!(ours.len(), 1);
    assert!(ours[0].stored);
    ours.remove(0)
}

/// Writes records into the store.
async fn put(proxy: &Proxy, entries: &[Entry]) {
    proxy.app.store.put(entries).await.unwrap();
}
