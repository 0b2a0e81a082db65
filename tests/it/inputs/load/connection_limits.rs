//! More connections than file descriptors.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use citetap::replay::{Script, Scripted, Step, Upstream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    net::{Client, LIMIT, eventually, get, post, route, tencent, within},
    process::{Running, citetap, confined},
    relay::memory::MIB,
};

/// Open files of the proxy, instead of the usual thousands; connections, instead of 50,000.
const FILES: usize = 128;
const CONNECTIONS: usize = 400;

/// `serve` with this limit.
async fn with_files(dir: &Path, toml: &str, files: usize) -> Running {
    std::fs::write(dir.join("citetap.toml"), toml).unwrap();
    let plain = citetap(dir, &["serve", "--listen", "127.0.0.1:0"]);
    Running::start(confined(&plain, &format!("ulimit -n {files}"))).await
}

/// A connection that may or may not be served: sends `/healthz` and returns the response within the time.
async fn healthy(running: &Running, limit: Duration) -> Option<()> {
    let asking = async {
        let mut stream = TcpStream::connect(running.addr).await.ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        response.starts_with("HTTP/1.1 200").then_some(())
    };
    tokio::time::timeout(limit, asking).await.ok().flatten()
}

async fn upstream() -> Upstream {
    let steps = [Step::Send(tencent::references("m", &[1]).into()), Step::Pause(Duration::from_secs(60))];
    let open = Scripted::new("/open", Script::sse_steps(steps));
    Upstream::bind(vec![open, Scripted::new("/", Script::sse(tencent::answer("m")))]).await.unwrap()
}

fn toml(upstream: &Upstream) -> String {
    format!("store = \"memory:\"\n{}provider = \"tencent\"\n", route("chat", &upstream.url()))
}

/// Silent connections hold a file until the header timeout. Connections beyond the limit are rejected at once. Files
/// remain for earlier connections and their upstreams.
#[tokio::test]
async fn l53_connections_over_the_file_limit_are_shed() {
    let upstream = upstream().await;
    let dir = tempfile::tempdir().unwrap();
    let running = with_files(dir.path(), &toml(&upstream), FILES).await;
    let mut open = running.post("/chat/open").await;
    open.until("reference_chunks").await;
    let mut crowd = Vec::new();
    for _ in 0..CONNECTIONS {
        crowd.push(TcpStream::connect(running.addr).await.unwrap());
    }
    let began = Instant::now();
    let answered = eventually(|| healthy(&running, Duration::from_secs(2))).await;
    assert!(answered.is_some() && began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(running.logged("accept failed", 0).await.is_empty(), "files were not exhausted");
    // A chat is rejected with a reason.
    let refused = eventually(|| async {
        let mut stream = TcpStream::connect(running.addr).await.ok()?;
        stream.write_all(b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}").await.ok()?;
        let mut response = String::new();
        let _ = tokio::time::timeout(Duration::from_secs(2), stream.read_to_string(&mut response)).await;
        response.starts_with("HTTP/1.1 503").then_some(response)
    });
    let refused = refused.await.expect("a 503").to_lowercase();
    assert!(refused.contains("retry-after: 1") && refused.contains("connection: close"), "{refused}");
    // Earlier connections continue, and all are served when the crowd is gone.
    let metrics = eventually(|| async {
        let mut stream = TcpStream::connect(running.addr).await.ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.ok()?;
        let mut response = String::new();
        tokio::time::timeout(Duration::from_secs(2), stream.read_to_string(&mut response)).await.ok()?.ok()?;
        response.contains("citetap_streams_in_flight 1").then_some(())
    });
    assert!(metrics.await.is_some(), "the open stream is open still");
    drop(crowd);
    let served = eventually(|| async {
        let whole = Client::h1(running.addr).await.try_send(post("/chat", "{}")).await.ok()?.whole().await;
        (whole.status == 200 && whole.error.is_none()).then_some(())
    });
    assert!(served.await.is_some());
}

/// Each of a client's h2 streams may need an upstream connection. Streams that would use reserved files are rejected
/// with Retry-After; streams with a connection, and operators, are served.
#[tokio::test]
async fn l53_streams_of_one_connection_leave_files_to_others() {
    const STREAMS: usize = 300;
    let upstream = upstream().await;
    let dir = tempfile::tempdir().unwrap();
    let running = with_files(dir.path(), &toml(&upstream), FILES).await;
    let mut client = Client::h2(running.addr).await;
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..STREAMS {
        let mut response = client.send(post("/chat/open", "{}")).await;
        if response.status == 200 {
            response.until("reference_chunks").await;
            open.push(response);
        } else {
            assert_eq!(response.header("retry-after"), Some("1"));
            let problem = response.is_problem(503, "overloaded").await;
            assert!(problem["detail"].as_str().unwrap().contains("ulimit -n"));
            refused += 1;
        }
    }
    assert!(open.len() > FILES / 2 && refused > STREAMS - FILES, "{} open, {refused} refused", open.len());
    assert_eq!(upstream.request_count(), open.len());
    for _ in 0..8 {
        assert_eq!(healthy(&running, Duration::from_secs(5)).await, Some(()), "operators");
    }
    assert!(running.logged("accept failed", 0).await.is_empty(), "files were not exhausted");
    drop(open);
    let served = eventually(|| async {
        let whole = Client::h1(running.addr).await.try_send(post("/chat", "{}")).await.ok()?.whole().await;
        (whole.status == 200 && whole.error.is_none()).then_some(())
    });
    assert!(served.await.is_some());
}

/// The same when all arrive at once, before any has its file.
#[tokio::test]
async fn l53_burst_of_streams_leaves_files_to_others() {
    const STREAMS: usize = 300;
    let upstream = upstream().await;
    let dir = tempfile::tempdir().unwrap();
    let running = with_files(dir.path(), &toml(&upstream), FILES).await;
    let client = Client::h2(running.addr).await;
    let mut rush = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        rush.spawn(client.send_parallel(post("/chat/open", "{}")));
    }
    let responses = within("all answers", rush.join_all()).await;
    let statuses: Vec<u16> = responses.iter().map(|response| response.as_ref().unwrap().status.as_u16()).collect();
    let of = |status: u16| statuses.iter().filter(|got| **got == status).count();
    assert_eq!(of(200) + of(503), STREAMS, "{statuses:?}");
    assert!(of(200) > 10 && of(503) > STREAMS - FILES, "{statuses:?}");
    assert_eq!(healthy(&running, Duration::from_secs(5)).await, Some(()), "operators");
    assert!(running.logged("accept failed", 0).await.is_empty(), "files were not exhausted");
}

/// The usual soft limit of 1,024 is raised to the hard limit.
#[tokio::test]
async fn l53_file_limit_is_raised_and_too_low_is_reported() {
    let upstream = upstream().await;
    let dir = tempfile::tempdir().unwrap();
    let toml = toml(&upstream).replace("[[routes]]", "[limits]\nstreams = 600\n[[routes]]");
    std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
    let serve = citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let check = citetap(dir.path(), &["check"]);
    let advice = "limits.streams = 600 needs about 1200 open files, and there may be 1199: raise ulimit -Hn, or lower it; \
                beyond that new requests get 503\n";
    let warned = "limits.streams needs more open files (ulimit -Hn)";
    for (hard, lacks) in [(1200, false), (1199, true)] {
        let limits = format!("ulimit -S -n 64; ulimit -H -n {hard}");
        let running = Running::start(confined(&serve, &limits)).await;
        assert_eq!(running.files(), (hard, hard), "soft and hard");
        let log = running.log();
        let warning = log.iter().find(|line| line["message"] == warned);
        assert_eq!(
            warning.map(|line| [&line["needed"], &line["there"]].map(|n| n.as_u64())),
            lacks.then_some([Some(1200), Some(1199)])
        );
        let checked = crate::process::run(confined(&check, &limits), "");
        assert_eq!((checked.code, checked.err.contains(advice)), (0, lacks), "{}", checked.err);
        assert!(checked.err.ends_with("the configuration is valid\n"));
    }
}

/// Files used by unexpected code, simulated by lowering the limit at runtime.
#[tokio::test]
async fn l54_accept_is_retried_without_free_files() {
    let upstream = upstream().await;
    let dir = tempfile::tempdir().unwrap();
    let running = Running::serve(dir.path(), &toml(&upstream)).await;
    let mut open = running.post("/chat/open").await;
    open.until("reference_chunks").await;
    running.limit("nofile", "4");
    let mut crowd = Vec::new();
    for _ in 0..20 {
        crowd.push(TcpStream::connect(running.addr).await.unwrap());
    }
    running.logged("accept failed", 1).await;
    // It does not spin meanwhile.
    let (before, began) = (running.cpu(), Instant::now());
    tokio::time::sleep(Duration::from_millis(700)).await;
    let (spent, passed) = (running.cpu() - before, began.elapsed());
    assert!(spent * 2 < passed, "{spent:?} of {passed:?}");
    assert!(running.log().len() < 200, "nor fills the log");
    running.limit("nofile", "1024");
    within("service again", async {
        let whole = Client::h1(running.addr).await.send(post("/chat", "{}")).await.whole().await;
        assert_eq!((whole.status.as_u16(), whole.error), (200, None));
    })
    .await;
    assert_eq!(upstream.cancelled(), 0, "earlier connections are still open");
}

/// citetap does not read the container's memory limit: the operator sets `limits.held_total` below it. Frames beyond it
/// are relayed untapped, and memory does not grow.
#[tokio::test]
async fn l58_frames_over_held_total_pass_untapped() {
    const STREAMS: usize = 24;
    const HELD: u64 = 8 * MIB;
    let large = bytes::Bytes::from("data: ".to_owned() + &"x".repeat(3 << 20));
    let steps =
        [Step::Send(tencent::references("m", &[1]).into()), Step::Send(large), Step::Pause(Duration::from_secs(60))];
    let scripts =
        vec![Scripted::new("/held", Script::sse_steps(steps)), Scripted::new("/", Script::sse(tencent::answer("m")))];
    let upstream = Upstream::bind(scripts).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let limits = "[limits]\nframe = \"4MiB\"\nheld_total = \"8MiB\"\n";
    let toml = toml(&upstream).replace("[[routes]]", &format!("{limits}[[routes]]"));
    let running = Running::serve(dir.path(), &toml).await;
    for _ in 0..4 {
        running.post("/chat").await.whole().await;
    }
    let before = running.peak_memory();
    let mut readers = Vec::new();
    for _ in 0..STREAMS {
        let mut response = running.post("/chat/held").await;
        readers.push(tokio::spawn(async move {
            // Untapped frames arrive.
            while let Some(Ok(_)) = response.piece().await {}
        }));
    }
    assert!(
        upstream
            .until(LIMIT, |upstream| upstream.requests().iter().filter(|seen| seen.bytes_out > 3 << 20).count()
                == STREAMS)
            .await
    );
    within("others are served", async {
        let whole = running.post("/chat").await.whole().await;
        assert_eq!(whole.error, None);
        assert_eq!(Client::h1(running.addr).await.send(get("/healthz")).await.status, 200);
    })
    .await;
    let grown = running.peak_memory() - before;
    // A growing frame is copied, and each connection has buffers.
    assert!(grown < 3 * HELD, "{} MiB; all of them would be {}", grown / MIB, 3 * STREAMS);
    readers.iter().for_each(tokio::task::JoinHandle::abort);
}
