//! At the cap on streams, refusals are fast and admitted streams are unaffected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use super::super::raw_upstream::{STREAM, head, serve};
use crate::{
    net::{Client, get, post, route, split, tencent},
    process::Running,
};

const STREAMS: usize = 200;
const REFUSALS: usize = 400;

/// References at once, some text now and then, and the finish when the test requests it.
async fn answer(mut stream: TcpStream, mut finish_rx: watch::Receiver<bool>, requests: Arc<AtomicUsize>) {
    if head(&mut stream).await.is_empty() {
        return;
    }
    requests.fetch_add(1, Ordering::Relaxed);
    let begun = STREAM.to_owned() + &tencent::references("m", &[1, 2]);
    stream.write_all(begun.as_bytes()).await.unwrap();
    while tokio::time::timeout(Duration::from_millis(100), finish_rx.wait_for(|finish| *finish)).await.is_err() {
        stream.write_all(tencent::text("m", "又一句").as_bytes()).await.unwrap();
    }
    stream.write_all(tencent::finish("m").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    // Closing with unread bytes would send a reset.
    let _ = stream.read(&mut [0; 1024]).await;
}

/// The proxy is a separate process, so that measurements exclude the test's own load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l53_refusals_at_the_stream_cap_are_fast() {
    let (finish_tx, finish_rx) = watch::channel(false);
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let upstream = serve(move |stream| answer(stream, finish_rx.clone(), Arc::clone(&count))).await;
    let dir = tempfile::tempdir().unwrap();
    let route = route("chat", &format!("http://{upstream}"));
    let toml = format!("store = \"memory:\"\n[limits]\nstreams = {STREAMS}\n{route}provider = \"tencent\"\n");
    let running = Running::serve(dir.path(), &toml).await;

    let mut shared = Client::h2(running.addr).await;
    let mut admitted = Vec::new();
    for n in 0..STREAMS {
        let request = post("/chat", "{}");
        let response =
            if n % 2 == 0 { shared.send(request).await } else { Client::h1(running.addr).await.send(request).await };
        assert_eq!(response.status, 200, "stream {n}");
        admitted.push(tokio::spawn(response.whole()));
    }
    // New connections, a kept-alive one, and an admitted stream's connection.
    let (mut kept, mut times, mut health) = (Client::h1(running.addr).await, Vec::new(), Vec::new());
    for n in 0..REFUSALS {
        let mut fresh = Client::h1(running.addr).await;
        let client = [&mut kept, &mut shared, &mut fresh].into_iter().nth(n % 3).unwrap();
        let began = Instant::now();
        let refused = client.send(post("/chat", "{}")).await;
        times.push(began.elapsed());
        assert_eq!(refused.header("retry-after"), Some("1"));
        let problem = refused.is_problem(503, "overloaded").await;
        assert!(problem["detail"].as_str().unwrap().contains("limits.streams"));
        if n % 20 == 0 {
            let began = Instant::now();
            assert_eq!(Client::h1(running.addr).await.send(get("/healthz")).await.status, 200);
            health.push(began.elapsed());
        }
    }
    let running_still = admitted.iter().filter(|stream| !stream.is_finished()).count();
    assert_eq!(running_still, STREAMS, "an admitted stream ended early");
    times.sort();
    health.sort();
    let (median, most) = (times[REFUSALS / 2], times[REFUSALS - 1]);
    let summary =
        format!("refusals: median {median:?}, p99 {:?}, most {most:?}; health: {health:?}", times[REFUSALS * 99 / 100]);
    assert!(median < Duration::from_millis(100), "{summary}");
    assert!(health[health.len() / 2] < Duration::from_millis(100), "{summary}");
    assert_eq!(requests.load(Ordering::Relaxed), STREAMS, "refused requests did not reach the upstream");
    finish_tx.send(true).unwrap();
    for stream in admitted {
        let whole = stream.await.unwrap();
        assert_eq!(whole.error, None);
        let (theirs, ours) = split(&whole.bytes());
        let (begin, tick, end) =
            (tencent::references("m", &[1, 2]), tencent::text("m", "又一句"), tencent::finish("m"));
        let ticks = (theirs.len() - begin.len() - end.len()) / tick.len();
        assert_eq!(String::from_utf8(theirs).unwrap(), begin + &tick.repeat(ticks) + &end, "to the byte");
        assert_eq!((ours.len(), ours[0].complete, ticks > 0), (1, true, true));
    }
    assert_eq!(running.post("/chat").await.status, 200, "permits are free again");
}
