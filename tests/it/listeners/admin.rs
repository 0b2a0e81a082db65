//! `admin_listen`: a second listener for the API and the operators.

use std::{net::SocketAddr, time::Duration};

use super::{ID, assert_streams, serve, upstream};
use crate::{
    net::{Client, LIMIT, get, post, tencent},
    process::{Running, citetap, confined, pause, run},
};

async fn status(addr: SocketAddr, path: &str) -> u16 {
    Client::h1(addr).await.send(get(path)).await.status.as_u16()
}

fn admin(running: &Running) -> SocketAddr {
    let logged = running.log().into_iter().find(|line| line["message"] == "listening").unwrap();
    logged["admin"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn own_endpoints_are_on_the_admin_listener() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let toml = "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"";
    let rest = format!("[[routes]]\nname = \"all\"\nprefix = \"/\"\nupstream = \"{}/all\"\n", upstream.url());
    let mut running = Running::start(serve(dir.path(), &format!("{toml}\n{rest}"), &upstream)).await;
    let admin = admin(&running);
    assert_ne!(admin, running.addr);
    assert_streams(&mut Client::h1(running.addr).await).await;

    let own = ["/citations", "/stats", "/metrics", "/version", "/", "/console/routes", "/component.js"];
    for path in own {
        let before = upstream.request_count();
        assert_eq!(status(running.addr, path).await, 200, "{path}");
        assert_eq!(upstream.request_count(), before + 1, "{path} is the route's");
        assert_eq!(upstream.requests()[before].path, format!("/all{path}"));
        assert_eq!(status(admin, path).await, 200, "{path}");
        assert_eq!(upstream.request_count(), before + 1, "{path} is citetap's");
    }
    for (path, expected) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        for addr in [running.addr, admin] {
            assert_eq!(Client::h1(addr).await.send(get(path)).await.whole().await.text(), expected);
        }
    }
    let record = Client::h1(admin).await.send(get(&format!("/citations/{ID}"))).await.json().await;
    assert_eq!(record["messageId"], ID);
    assert_streams(&mut Client::h1(admin).await).await;

    // Both listeners close. Requests in flight on either may finish.
    let mut open = Vec::new();
    for addr in [running.addr, admin] {
        let mut response = Client::h1(addr).await.send(post("/chat/slow", "{}")).await;
        response.until("reference_chunks").await;
        open.push(response);
    }
    running.signal("TERM");
    running.logged("draining", 1).await;
    for addr in [running.addr, admin] {
        let began = std::time::Instant::now();
        while tokio::net::TcpStream::connect(addr).await.is_ok() {
            assert!(began.elapsed() < LIMIT, "{addr} is still open");
            pause().await;
        }
    }
    for response in open {
        let whole = response.whole().await;
        assert!(whole.error.is_none() && whole.text().ends_with(&tencent::finish(ID)));
    }
    assert!(running.ended(Duration::from_secs(10)).await.success());
}

#[tokio::test]
async fn health_uses_the_admin_listener_if_listen_is_systemd() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let toml = "listen = \"127.0.0.1:0\"\nadmin_listen = \"unix:a.sock\"";
    let running = Running::start(serve(dir.path(), toml, &upstream)).await;
    assert_eq!(status(running.addr, "/metrics").await, 404);
    drop(serve(dir.path(), "listen = \"systemd\"\nadmin_listen = \"unix:a.sock\"", &upstream));
    let ran = run(citetap(dir.path(), &["health", "--ready"]), "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// Regression: it used to exit with success.
#[tokio::test]
async fn worker_that_cannot_start_fails_startup() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let command = serve(dir.path(), "listen = \"127.0.0.1:0\"\nworkers = 64", &upstream);
    let ran = run(confined(&command, "ulimit -n 60"), "");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("(workers): Too many open files"), "{}", ran.err);
}
