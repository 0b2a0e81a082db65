//! Requests that are cut: the upstream receives the whole request or sees that it was cut.

use std::sync::Arc;

use citetap::replay::{Script, Scripted, Upstream};

use super::{
    link::{self, Direction, Fault},
    matrix::{serve, unharmed},
    table::{Link, REQUESTS, Sees},
};
use crate::{
    net::{Client, LIMIT, post, route, tencent},
    process::Running,
};

/// The link breaks after this text.
const AFTER: &str = "今天";

fn body() -> String {
    format!("{{\"question\":\"{}{AFTER}{}\"}}", "前".repeat(100), "后".repeat(100))
}

async fn drive(citetap: &Running, upstream: &Upstream, link: &link::Link, (on, fault, sees): (Link, Fault, Sees)) {
    let id = name(on, fault);
    let addr = if on == Link::Client { link.addr } else { citetap.addr };
    let result = Client::h1(addr).await.try_send(post(&format!("/{id}"), body())).await;
    assert!(link.broke_at().is_some(), "the link broke");
    match (sees, result) {
        (Sees::All, Ok(response)) => {
            let whole = response.whole().await;
            assert_eq!(whole.error, None);
            assert!(whole.split().0 == tencent::answer(&id).into_bytes(), "{}", whole.text());
            assert!(upstream.requests()[0].body == body(), "every byte of it");
        }
        (Sees::Problem(status, kind), Ok(response)) => drop(response.is_problem(status, kind).await),
        (Sees::Nothing, Err(_)) => {}
        (_, result) => panic!("it was {:?}", result.map(|response| response.status)),
    }
    if sees != Sees::All {
        // It may not have reached the upstream at all, or only its headers.
        let cut = |upstream: &Upstream| upstream.requests().iter().all(|seen| seen.body_len < body().len() as u64);
        assert!(upstream.until(LIMIT, cut).await, "{:?}", upstream.requests());
        assert_eq!(citetap.get(&format!("/citations/{id}")).await.status, 404);
    }
    link.heal().await;
    let next = Client::h1(addr).await.send(post(&format!("/{id}"), body())).await.whole().await;
    assert_eq!(next.error, None);
    assert!(next.split().0 == tencent::answer(&id).into_bytes(), "the next request: {}", next.text());
}

fn name(on: Link, fault: Fault) -> String {
    let letters = |text: String| text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap().to_lowercase();
    format!("{}-{}", letters(format!("{on:?}")), letters(format!("{fault:?}")))
}

#[tokio::test]
async fn broken_request_arrives_whole_or_is_seen_as_cut() {
    let (mut routes, mut upstreams, mut links) = (String::new(), Vec::new(), Vec::new());
    for (on, fault, _) in REQUESTS {
        let id = name(on, fault);
        let scripts = vec![Scripted::new("/", Script::sse(tencent::answer(&id)))];
        let upstream = Upstream::bind(scripts).await.unwrap();
        let broken = |to| link::Link::new(to, Direction::Request, fault, AFTER.as_bytes());
        let link = (on == Link::Upstream).then(|| broken(upstream.addr()));
        let url = link.as_ref().map_or_else(|| upstream.url(), link::Link::url);
        routes += &format!("{}provider = \"tencent\"\n", route(&id, &url));
        upstreams.push(upstream);
        links.push(link);
    }
    let dir = tempfile::tempdir().unwrap();
    let citetap = Arc::new(serve(dir.path(), &routes).await);
    let mut driving = Vec::new();
    for ((cell, upstream), link) in REQUESTS.into_iter().zip(upstreams).zip(links) {
        let citetap = Arc::clone(&citetap);
        let link = link.unwrap_or_else(|| link::Link::new(citetap.addr, Direction::Request, cell.1, AFTER.as_bytes()));
        let drive = tokio::spawn(async move { drive(&citetap, &upstream, &link, cell).await });
        driving.push((cell, drive));
    }
    for (cell, drive) in driving {
        assert!(drive.await.is_ok(), "failed: {cell:?}");
    }
    unharmed(&citetap).await;
}
