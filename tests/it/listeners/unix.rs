//! Unix sockets.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use tokio::net::UnixStream;

use super::{assert_large_answer, assert_streams, serve, upstream};
use crate::{
    net::{Client, get, post},
    process::{Running, citetap, run, the_record},
};

const UNIX: &str = "listen = \"unix:c.sock\"\nsocket_mode = \"600\"";

async fn client(path: &Path, http2: bool) -> Client {
    Client::over(UnixStream::connect(path).await.unwrap(), http2).await
}

#[tokio::test]
async fn unix_socket_serves_and_is_removed_at_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let path = dir.path().join("c.sock");
    let mut first = Running::start_elsewhere(serve(dir.path(), UNIX, &upstream)).await;
    assert_eq!(first.logged("listening", 1).await[0]["listen"], format!("unix:{}", path.display()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for http2 in [false, true] {
        let mut client = client(&path, http2).await;
        assert_streams(&mut client).await;
        assert_large_answer(&mut client).await;
        assert_eq!(client.send(get("/metrics")).await.status, 200);
    }
    for args in [&["health"][..], &["health", "--ready"], &["health", "--url", "unix:c.sock"]] {
        let ran = run(citetap(dir.path(), args), "");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    }
    let second = run(citetap(dir.path(), &["serve"]), "");
    assert!(second.code == 1 && second.err.contains("another process listens there"), "{second:?}");

    let mut response = client(&path, false).await.send(post("/chat/slow", "{}")).await;
    let mut seen = response.until("reference_chunks").await.into_bytes();
    first.signal("TERM");
    first.logged("draining", 1).await;
    seen.extend(response.whole().await.bytes());
    assert!(the_record(&seen).complete);
    assert!(first.ended(Duration::from_secs(10)).await.success());
    assert!(!path.exists());

    let ran = run(citetap(dir.path(), &["health"]), "");
    assert!(ran.code == 1 && ran.err.contains("c.sock/healthz: could not connect"), "{ran:?}");
}

#[tokio::test]
async fn socket_of_a_killed_server_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let path = dir.path().join("c.sock");
    Running::start_elsewhere(serve(dir.path(), UNIX, &upstream)).await.kill();
    assert!(path.exists());
    let again = Running::start_elsewhere(citetap(dir.path(), &["serve"])).await;
    assert_streams(&mut client(&path, false).await).await;
    drop(again);
}
