use std::{
    error::Error,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    body::BULK_FRAME,
    request_log::{MAX_RECORDED_BODY, Outcome},
    script::{Script, Scripted, Step},
    upstream::Upstream,
};

type Test = Result<(), Box<dyn Error>>;
type TestClient = Client<HttpConnector, Full<Bytes>>;

const SOON: Duration = Duration::from_secs(5);

fn client(h2: bool) -> TestClient {
    Client::builder(TokioExecutor::new()).http2_only(h2).build_http()
}

async fn upstream(script: Script) -> Result<Upstream, std::io::Error> {
    Upstream::bind(vec![Scripted::new("/", script)]).await
}

async fn get(client: &TestClient, upstream: &Upstream, path: &str) -> Result<Response<Incoming>, Box<dyn Error>> {
    Ok(client.get(format!("{}{path}", upstream.url()).parse()?).await?)
}

fn send(text: &'static str) -> Step {
    Step::Send(Bytes::from_static(text.as_bytes()))
}

/// The received bytes, and whether the body ended cleanly.
async fn read(mut body: Incoming) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => all.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Err(_) => return (all, false),
        }
    }
    (all, true)
}

#[tokio::test]
async fn upstream_plays_steps_in_order_and_time() -> Test {
    for h2 in [false, true] {
        let pause = Duration::from_millis(120);
        let steps = [
            send("data: 一\n\n"),
            Step::Pause(pause),
            send("data: 二\n\n"),
            Step::Pause(pause),
            Step::End,
            send("never"),
        ];
        let script = Script::sse_steps(steps).delay(pause).status(StatusCode::ACCEPTED);
        let upstream = upstream(script).await?;
        let start = Instant::now();
        let response = get(&client(h2), &upstream, "/x").await?;
        assert!(start.elapsed() >= pause);
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert_eq!(response.version(), if h2 { Version::HTTP_2 } else { Version::HTTP_11 });
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream; charset=utf-8");
        let mut body = response.into_body();
        let first = body.frame().await.ok_or("no first frame")??;
        assert_eq!(first.into_data().ok(), Some("data: 一\n\n".into()));
        let first = start.elapsed();
        assert_eq!(read(body).await, ("data: 二\n\n".into(), true));
        assert!(start.elapsed() - first > pause / 2, "the first frame waits for no other");
        assert!(start.elapsed() >= pause * 3);
        let seen = upstream.requests();
        assert_eq!((seen[0].outcome, seen[0].bytes_out), (Outcome::Ended, 22));
        assert_eq!(upstream.cancelled(), 0);
    }
    Ok(())
}

#[tokio::test]
async fn upstream_abort_flushes_and_then_fails() -> Test {
    for h2 in [false, true] {
        let scripts = [
            Script::sse_steps([send("data: 一\n\n"), send("data: "), Step::Abort, send("never")]),
            Script::sse("data: 一\n\ndata: 二\n\n").cut_after(17),
            Script::sse_steps([Step::Forever("data: 一\n\ndata: ".into(), Duration::ZERO)]).cut_after(17),
        ];
        for script in scripts {
            let upstream = upstream(script).await?;
            let response = get(&client(h2), &upstream, "/").await?;
            assert_eq!(read(response.into_body()).await, ("data: 一\n\ndata: ".into(), false));
            assert!(upstream.until(SOON, |up| up.requests()[0].outcome == Outcome::Aborted).await);
            assert_eq!(upstream.cancelled(), 0);
        }
        let upstream = upstream(Script::sse("data: 1\n\n").cut_after(10)).await?;
        let response = get(&client(h2), &upstream, "/").await?;
        assert_eq!(read(response.into_body()).await, ("data: 1\n\n".into(), true), "shorter than the cut");
    }
    Ok(())
}

#[tokio::test]
async fn upstream_counts_clients_that_leave() -> Test {
    for h2 in [false, true] {
        let routes = vec![
            Scripted::new("/forever", Script::sse_steps([Step::Forever(": x\n\n".into(), Duration::from_millis(5))])),
            Scripted::new("/quiet", Script::sse_steps([send(": x\n\n"), Step::Pause(SOON * 100)])),
            Scripted::new("/hang", Script::hang()),
            Scripted::new("/late", Script::sse("data: x\n\n").delay(SOON * 100)),
        ];
        let upstream = Upstream::bind(routes).await?;
        let client = client(h2);
        for (index, path) in ["/forever", "/quiet"].into_iter().enumerate() {
            let mut body = get(&client, &upstream, path).await?.into_body();
            body.frame().await.ok_or("no frame")??;
            assert_eq!(upstream.cancelled(), index);
            drop(body);
            assert!(upstream.until(SOON, |up| up.cancelled() == index + 1).await, "{path}, h2: {h2}");
        }
        for (index, path) in ["/hang", "/late"].into_iter().enumerate() {
            let response = tokio::time::timeout(Duration::from_millis(50), get(&client, &upstream, path)).await;
            assert!(response.is_err(), "{path} is not answered");
            assert!(upstream.until(SOON, |up| up.cancelled() == index + 3).await, "{path}, h2: {h2}");
        }
        assert!(upstream.requests().iter().all(|seen| seen.outcome == Outcome::Cancelled));
        assert_eq!(upstream.request_count(), 4);
        drop(client);
        assert!(upstream.until(SOON, |up| up.connections_open() == 0).await);
    }
    Ok(())
}

#[tokio::test]
async fn upstream_client_does_not_read_pauses_script() -> Test {
    const LEN: u64 = 1 << 32;
    // Most of this is what the kernel may buffer on loopback, at both ends.
    const BOUND: u64 = 24 << 20;
    for h2 in [false, true] {
        let upstream = upstream(Script::sse_steps([Step::Bulk { len: LEN, chunk: 16 * 1024 }])).await?;
        let mut body = get(&client(h2), &upstream, "/").await?.into_body();
        let bytes_out = || upstream.requests()[0].bytes_out;
        let mut before = 0;
        assert!(
            upstream
                .until(SOON, |_| {
                    let now = bytes_out();
                    std::mem::replace(&mut before, now) == now && now > 0
                })
                .await
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
        let stalled = bytes_out();
        assert!(stalled < BOUND, "{stalled}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(bytes_out(), stalled);
        let mut read = 0;
        while read < 2 * stalled {
            let data = body.frame().await.ok_or("ended")??.into_data().map_err(|_| "trailers")?;
            read += data.len() as u64;
        }
        assert!(bytes_out() >= read, "reading resumes the script");
    }
    Ok(())
}

#[tokio::test]
async fn upstream_bulk_bytes_follow_their_offset() -> Test {
    let upstream = upstream(Script::new([Step::Bulk { len: 100_003, chunk: 777 }, send("end")])).await?;
    let (body, clean) = read(get(&client(false), &upstream, "/").await?.into_body()).await;
    assert!(clean && body.ends_with(b"end"));
    assert_eq!(body.len(), 100_006);
    assert!(body[..100_003].iter().zip(BULK_FRAME.iter().cycle()).all(|(a, b)| a == b));
    Ok(())
}

#[tokio::test]
async fn upstream_echo_returns_the_request() -> Test {
    for h2 in [false, true] {
        let upstream = upstream(Script::echo()).await?;
        let request = Request::post(format!("{}/a/b?q=%E9%97%AE&x", upstream.url()))
            .header("x-twice", "1")
            .header("x-twice", "2")
            .body(Full::from("{\"问\":1}"))?;
        let response = client(h2).request(request).await?;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let echo: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
        assert_eq!(echo["method"], "POST");
        assert_eq!(echo["path"], "/a/b?q=%E9%97%AE&x");
        assert_eq!(echo["version"], if h2 { "HTTP/2.0" } else { "HTTP/1.1" });
        assert_eq!(echo["headers"]["x-twice"], serde_json::json!(["1", "2"]));
        assert_eq!((&echo["body"], &echo["bodyLength"]), (&"{\"问\":1}".into(), &9.into()));
        let seen = &upstream.requests()[0];
        assert_eq!((seen.body.as_ref(), seen.path.as_str()), ("{\"问\":1}".as_bytes(), "/a/b?q=%E9%97%AE&x"));
        assert_eq!(seen.outcome, Outcome::Ended);
    }
    Ok(())
}

#[tokio::test]
async fn upstream_long_request_body_is_kept_in_part() -> Test {
    let upstream = upstream(Script::json("{}")).await?;
    let long = vec![b'x'; 3 * MAX_RECORDED_BODY + 1];
    let request = Request::put(upstream.url()).body(Full::from(long))?;
    let body = client(false).request(request).await?.into_body().collect().await?.to_bytes();
    assert_eq!(body, "{}");
    let seen = &upstream.requests()[0];
    assert_eq!((seen.body.len(), seen.body_len), (MAX_RECORDED_BODY, 3 * MAX_RECORDED_BODY as u64 + 1));
    Ok(())
}

#[tokio::test]
async fn upstream_longest_path_wins_and_unknown_is_404() -> Test {
    let script = |text: &'static str| Script::json(text);
    let routes = vec![
        Scripted::new("/doubao", script("1")),
        Scripted::new("/doubao-en", script("2")),
        Scripted::new("/doubao", script("3")),
    ];
    let upstream = Upstream::bind(routes).await?;
    let client = client(false);
    for (path, body) in [("/doubao/chat/completion?a=1", "1"), ("/doubao-en", "2"), ("/doubao", "1")] {
        assert_eq!(read(get(&client, &upstream, path).await?.into_body()).await, (body.into(), true));
    }
    assert_eq!(get(&client, &upstream, "/other").await?.status(), StatusCode::NOT_FOUND);
    let head = client.request(Request::head(format!("{}/doubao", upstream.url())).body(Full::default())?).await?;
    assert_eq!(head.headers()[header::CONTENT_LENGTH], "1");
    assert_eq!(upstream.cancelled(), 0);
    Ok(())
}

#[tokio::test]
async fn upstream_trailers_arrive() -> Test {
    for h2 in [false, true] {
        let trailers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("\"x\""))]);
        let upstream = upstream(Script::sse_steps([send("data: x\n\n"), Step::Trailers(trailers.clone())])).await?;
        let request = Request::get(upstream.url()).header(header::TE, "trailers").body(Full::default())?;
        let body = client(h2).request(request).await?.into_body().collect().await?;
        assert_eq!(body.trailers(), Some(&trailers), "h2: {h2}");
        assert_eq!(body.to_bytes(), "data: x\n\n");
    }
    Ok(())
}

#[tokio::test]
async fn upstream_shutdown_and_drop_end_every_task() -> Test {
    for (h2, gently) in [(false, true), (false, false), (true, true), (true, false)] {
        let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let upstream = Upstream::bind(vec![Scripted::new(
            "/quiet",
            Script::sse_steps([send(": x\n\n"), Step::Pause(SOON * 100)]),
        )])
        .await?;
        let addr = upstream.addr();
        let client = client(h2);
        let mut body = get(&client, &upstream, "/quiet").await?.into_body();
        body.frame().await.ok_or("no frame")??;
        if gently {
            upstream.shutdown().await;
        } else {
            drop(upstream);
        }
        assert!(!read(body).await.1, "open responses are cut");
        drop(client);
        let end = Instant::now() + SOON;
        while tokio::runtime::Handle::current().metrics().num_alive_tasks() > before {
            assert!(Instant::now() < end, "a task is left");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(TcpStream::connect(addr).await.is_err());
    }
    Ok(())
}

#[tokio::test]
async fn upstream_sends_each_step_as_one_chunk() -> Test {
    let upstream = upstream(Script::sse_steps([send("data: a"), send("b\n\n")])).await?;
    let mut socket = TcpStream::connect(upstream.addr()).await?;
    socket.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
    let mut text = String::new();
    socket.read_to_string(&mut text).await?;
    assert!(text.ends_with("\r\n\r\n7\r\ndata: a\r\n3\r\nb\n\n\r\n0\r\n\r\n"), "{text}");
    Ok(())
}
