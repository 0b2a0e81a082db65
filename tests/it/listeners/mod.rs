//! Listeners of the real binary: TLS, Unix sockets, inherited sockets, and `admin_listen`.

mod admin;
mod inherited;
mod tls;
mod unix;

use std::{path::Path, process::Command, time::Duration};

use bytes::Bytes;
use citetap::replay::{Script, Scripted, Step, Upstream};

use crate::{
    net::{Client, post, route, tencent},
    process::citetap,
};

/// The answer of `/chat`, and `/chat/slow` with a pause in it.
const ID: &str = "listener-1";

async fn upstream() -> Upstream {
    let send = |text: String| Step::Send(Bytes::from(text));
    let whole = Script::sse_steps([send(tencent::answer(ID))]);
    let slow = Script::sse_steps([
        send(tencent::references(ID, &[1, 2])),
        Step::Pause(Duration::from_millis(800)),
        send(tencent::text(ID, "第一句[1]。") + &tencent::finish(ID)),
    ]);
    let bulk = Script::sse_steps([
        send(tencent::references(ID, &[1, 2])),
        Step::Bulk { len: BULK as u64, chunk: 48 * 1024 },
        send(tencent::finish(ID)),
    ]);
    let scripts = [("/slow", slow), ("/bulk", bulk), ("/", whole)];
    Upstream::bind(scripts.map(|(path, script)| Scripted::new(path, script)).into()).await.unwrap()
}

const BULK: usize = 3 << 20;

/// `serve` in `dir` with these lines before a route `/chat`.
fn serve(dir: &Path, toml: &str, upstream: &Upstream) -> Command {
    let route = route("chat", &upstream.url());
    let toml = format!("store = \"memory:\"\n{toml}\n{route}provider = \"tencent\"\n");
    std::fs::write(dir.join("citetap.toml"), toml).unwrap();
    citetap(dir, &["serve"])
}

/// Reads two answers in turn: each is the upstream's bytes and one event of ours.
async fn assert_streams(client: &mut Client) {
    for _ in 0..2 {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!(whole.error, None);
        let (theirs, ours) = whole.split();
        assert_eq!(String::from_utf8(theirs).unwrap(), tencent::answer(ID));
        assert_eq!(ours.len(), 1);
        assert!(ours[0].complete && ours[0].stored && ours[0].citations.len() == 2);
    }
}

/// An answer larger than any buffer, read slowly.
async fn assert_large_answer(client: &mut Client) {
    let mut response = client.send(post("/chat/bulk", "{}")).await;
    let mut seen = response.until("reference_chunks").await.into_bytes();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let rest = response.whole().await;
    assert_eq!(rest.error, None);
    seen.extend(rest.bytes());
    let (theirs, ours) = crate::net::split(&seen);
    assert_eq!(theirs.len(), tencent::references(ID, &[1, 2]).len() + BULK + tencent::finish(ID).len());
    assert!(theirs.ends_with(tencent::finish(ID).as_bytes()));
    assert!(ours[0].complete);
}
