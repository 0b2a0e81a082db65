//! Signals and clock changes of the process.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use citetap::replay::{Script, Scripted, Step, Upstream};
use http::Method;

use crate::{
    net::{Client, LIMIT, request, route, split, tencent},
    process::{Running, citetap, pause},
};

/// The part of 1,000 live streams.
const STREAMS: usize = 100;
/// The part of 30 seconds, longer than the upstream idle timeout in this test.
const STOPPED: Duration = Duration::from_secs(2);

async fn serving(script: Script, toml: &str) -> (Upstream, Running, tempfile::TempDir) {
    let upstream = Upstream::bind(vec![Scripted::new("/", script)]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let toml = format!("store = \"sqlite:c.db\"\n{toml}\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
    let running = Running::serve(dir.path(), &toml).await;
    (upstream, running, dir)
}

#[tokio::test]
async fn l56_first_signal_drains_and_second_ends_at_once() {
    let open = || {
        Script::sse_steps([Step::Send(tencent::references("m", &[1, 2]).into()), Step::Pause(Duration::from_secs(60))])
    };
    let grace = Duration::from_millis(500);
    let (_upstream, mut running, _dir) = serving(open(), "[timeouts]\ndrain = \"500ms\"").await;
    let mut client = Client::h2(running.addr).await;
    let mut responses = Vec::new();
    for n in 0..STREAMS {
        let request = request(Method::POST, "/chat", &[], "{}");
        let mut response =
            if n % 2 == 0 { client.send(request).await } else { Client::h1(running.addr).await.send(request).await };
        let begun = response.until("reference_chunks").await;
        responses.push((response, begun));
    }
    let began = Instant::now();
    running.signal("TERM");
    for (response, begun) in responses {
        let rest = response.whole().await;
        assert!(rest.error.is_some(), "no clean end");
        let (theirs, ours) = split((begun + &rest.text()).as_bytes());
        assert_eq!(String::from_utf8(theirs).unwrap(), tencent::references("m", &[1, 2]));
        assert_eq!((ours.len(), ours[0].complete, ours[0].stored), (1, false, true));
    }
    let status = running.ended(LIMIT).await;
    assert!(status.success(), "{status}");
    assert!(began.elapsed() < grace + Duration::from_secs(4), "{:?}", began.elapsed());

    let (_upstream, mut running, _dir) = serving(open(), "[timeouts]\ndrain = \"60s\"").await;
    let mut response = running.post("/chat").await;
    response.until("reference_chunks").await;
    running.signal("TERM");
    running.logged("draining", 1).await;
    let began = Instant::now();
    running.signal("TERM");
    running.ended(LIMIT).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

/// While the process is stopped, its clock continues. Data that the upstream sent meanwhile must be read before the
/// idle timeout is evaluated.
#[tokio::test]
async fn l57_stopped_process_times_nobody_out() {
    let tick: bytes::Bytes = tencent::text("m", "又").into();
    let mut steps = vec![Step::Send(tencent::references("m", &[1, 2]).into())];
    for _ in 0..15 {
        steps.extend([Step::Send(tick.clone()), Step::Pause(Duration::from_millis(200))]);
    }
    steps.push(Step::Send(tencent::finish("m").into()));
    let timeouts = "[timeouts]\nupstream_idle = \"1s\"\nclient_stall = \"1s\"\nheartbeat = \"off\"";
    let (upstream, running, _dir) = serving(Script::sse_steps(steps), timeouts).await;
    let mut responses = Vec::new();
    let mut client = Client::h2(running.addr).await;
    for n in 0..20 {
        let request = request(Method::POST, "/chat", &[], "{}");
        let response =
            if n % 2 == 0 { client.send(request).await } else { Client::h1(running.addr).await.send(request).await };
        responses.push(tokio::spawn(response.whole()));
    }
    assert!(upstream.until(LIMIT, |upstream| upstream.request_count() == 20).await);
    running.signal("STOP");
    let stopped = Instant::now();
    while stopped.elapsed() < STOPPED {
        pause().await;
    }
    running.signal("CONT");
    for response in responses {
        let whole = response.await.unwrap();
        assert_eq!(whole.error, None);
        assert!(whole.split().1[0].complete);
    }
    assert_eq!(upstream.cancelled(), 0);
}

/// libfaketime moves the wall clock of this process. tests/run installs it.
fn movable_clock() -> PathBuf {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib"];
    let mut libraries = places.iter().map(|place| Path::new(place).join("faketime/libfaketimeMT.so.1"));
    libraries.find(|file| file.exists()).expect("no libfaketime: install Debian's faketime")
}

#[tokio::test]
async fn l57_wall_clock_jump_times_nobody_out() {
    let library = movable_clock();
    let mut steps = vec![Step::Send(tencent::references("m", &[1, 2]).into())];
    for _ in 0..15 {
        steps.extend([Step::Send(tencent::text("m", "又").into()), Step::Pause(Duration::from_millis(200))]);
    }
    steps.push(Step::Send(tencent::finish("m").into()));
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse_steps(steps))]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let clock = dir.path().join("clock");
    let turn_to = |offset: &str| std::fs::write(&clock, offset).unwrap();
    turn_to("+0");
    let toml = format!(
        "store = \"sqlite:c.db\"\n[timeouts]\nupstream_idle = \"1s\"\nclient_stall = \"1s\"\nfirst_byte = \"1s\"\n\
         heartbeat = \"500ms\"\n[records]\nsweep = \"1s\"\n{}provider = \"tencent\"\n",
        route("chat", &upstream.url())
    );
    std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
    let mut command = citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &clock);
    command.envs([("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("DONT_FAKE_MONOTONIC", "1"), ("FAKETIME_NO_CACHE", "1")]);
    let running = Running::start(command).await;

    let mut responses = Vec::new();
    for _ in 0..20 {
        let request = request(Method::POST, "/chat", &[], "{}");
        responses.push(tokio::spawn(Client::h1(running.addr).await.send(request).await.whole()));
    }
    for (begun, offset) in ["+1h", "-1h", "+400d", "+0"].iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        turn_to(offset);
        // Requests after a jump are served normally.
        let request = request(Method::POST, "/chat", &[], "{}");
        responses.push(tokio::spawn(Client::h1(running.addr).await.send(request).await.whole()));
        assert!(upstream.until(LIMIT, |upstream| upstream.request_count() == 21 + begun).await);
    }
    for response in responses {
        let whole = response.await.unwrap();
        assert_eq!(whole.error, None);
        let (_, ours) = whole.split();
        assert!(ours[0].complete && ours[0].stored);
    }
    assert_eq!(upstream.cancelled(), 0);
    turn_to("+1h");
    let server_time: jiff::Timestamp =
        running.get("/console/status").await.json().await["now"].as_str().unwrap().parse().unwrap();
    let ahead = server_time.as_second() - jiff::Timestamp::now().as_second();
    assert!((3500..3700).contains(&ahead), "its clock did jump: {ahead} s");
}
