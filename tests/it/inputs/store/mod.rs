//! Lookup, ids, store: s83 to s96.

mod faults;
mod ids;
mod lookups;
mod values;

use std::path::Path;

use citetap::replay::{Script, Scripted, Upstream};

use crate::net::{Proxy, route, tencent};

/// An upstream that answers each message at the path of its id.
async fn answering(ids: &[&str]) -> Upstream {
    let scripts = ids.iter().map(|id| Scripted::new(format!("/{id}"), Script::sse(tencent::answer(id)))).collect();
    Upstream::bind(scripts).await.unwrap()
}

/// The same with a proxy on a file in this folder.
async fn keeping(dir: &Path, ids: &[&str], toml: &str) -> (Upstream, Proxy) {
    let upstream = answering(ids).await;
    let proxy = on_file(dir, &upstream, toml).await;
    (upstream, proxy)
}

/// A proxy on a file in this folder.
async fn on_file(dir: &Path, upstream: &Upstream, toml: &str) -> Proxy {
    let store = format!("store = 'sqlite:{}'\n", dir.join("c.db").display());
    Proxy::start(&format!("{store}{toml}\n{}provider = \"tencent\"\n", route("chat", &upstream.url()))).await
}
