//! `demo` and `serve` as processes: output, logs and signals.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use citetap::{
    citation::Record,
    replay::{Script, Scripted, Step, Upstream},
};
use serde_json::Value;

use crate::{
    net::{Client, eventually, get, post, route, tencent},
    process::{Running, as_sent, citetap, dead_port, run, shell, the_record},
};

/// Maximum time of a shutdown that waits for nothing.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

async fn demo(dir: &Path, more: &[&str]) -> Running {
    Running::start(citetap(dir, &[&["demo", "--listen", "127.0.0.1:0", "--speed", "100"], more].concat())).await
}

async fn upstream(script: Script) -> Upstream {
    Upstream::bind(vec![Scripted::new("/", script)]).await.unwrap()
}

/// Two documents, a pause until `after`, then the rest of the answer.
fn paused(id: &str, after: Duration) -> Script {
    let steps = [tencent::references(id, &[1, 2]), tencent::text(id, "第一句[1]。") + &tencent::finish(id)];
    let [first, rest] = steps.map(|text| Step::Send(Bytes::from(text)));
    Script::sse_steps([first, Step::Pause(after), rest])
}

#[tokio::test]
async fn demo_prints_commands_that_work_as_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = demo(dir.path(), &["--history", "0"]).await;
    assert_ne!(demo.addr.port(), 0, "the actual port, not the requested 0");
    let printed = demo.out().join("\n");
    let lines: Vec<&str> = printed.lines().filter_map(|line| Some(&line[line.find("curl ")?..])).collect();
    assert_eq!(lines.len(), 8, "{printed}");
    assert!(printed.contains(&format!("Open http://{}/ in a browser", demo.addr)), "{printed}");
    assert!(!printed.contains("made-up"), "{printed}");

    let doubao = the_record(&shell(lines[0]));
    let tencent = the_record(&shell(lines[1]));
    assert!(doubao.stored && doubao.complete && doubao.citations.len() == 10, "{doubao:?}");
    assert!(tencent.stored && tencent.complete && !tencent.citations.is_empty(), "{tencent:?}");
    let openai = the_record(&shell(lines[2]));
    assert!(openai.stored && openai.complete && openai.stats.cited_count == 4, "{openai:?}");
    let kept: Record = serde_json::from_slice(&shell(lines[3])).unwrap();
    assert_eq!(as_sent(kept), as_sent(doubao), "the event differs from the stored record");
    let chunks = String::from_utf8(shell(lines[4])).unwrap();
    assert!(chunks.contains("\"url_citation\"") && chunks.ends_with("data: [DONE]\n\n"), "{chunks}");
    assert!(chunks.contains(&format!("\"id\":\"{}\"", tencent.message_id)), "{chunks}");
    let models: Value = serde_json::from_slice(&shell(lines[5])).unwrap();
    for model in models["data"].as_array().unwrap() {
        let body = serde_json::json!({"model": model["id"], "messages": [{"role": "user", "content": "?"}]});
        let body = Client::h1(demo.addr).await.send(post("/v1/chat/completions", body.to_string())).await.json().await;
        let message = &body["choices"][0]["message"];
        assert!(message["content"].as_str().is_some_and(|text| text.chars().count() > 20), "{body}");
        assert!(message["annotations"].as_array().is_some_and(|sources| sources.len() > 2), "{body}");
        assert_eq!(body["citetap"]["stored"], true);
    }
    let english = the_record(&shell(lines[6]));
    assert!(english.stored && !english.citations.is_empty());
    let listed = demo.get("/console/routes").await.json().await;
    let routes = listed["routes"].as_array().unwrap();
    assert!(routes.len() == 4 && routes.iter().all(|route| route["questions"][0].is_string()), "{listed}");
    let all: Value = serde_json::from_slice(&shell(lines[7])).unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 4);
    assert!(dir.path().join("citetap-demo.db").exists(), "the store it speaks of");

    demo.signal("INT");
    assert_eq!(demo.ended(SHUTDOWN_LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn demo_with_fresh_ids_stores_every_answer() {
    let dir = tempfile::tempdir().unwrap();
    let demo = demo(dir.path(), &["--fresh-ids", "--store", "other.db", "--history", "0"]).await;
    let mut ids = std::collections::BTreeSet::new();
    for path in ["/doubao/x", "/doubao/x", "/tencent/x", "/tencent/x", "/doubao-en/x", "/openai/x", "/openai/x"] {
        let asks = post(path, r#"{"stream":true}"#);
        let record = the_record(&Client::h1(demo.addr).await.send(asks).await.whole().await.bytes());
        assert!(record.stored && ids.insert(record.message_id.clone()), "{path}: {}", record.message_id);
    }
    let all = demo.get("/citations").await.json().await;
    assert_eq!(all["items"].as_array().unwrap().len(), ids.len());
    assert!(dir.path().join("other.db").exists());
}

#[tokio::test]
async fn demo_generates_history_once() {
    let dir = tempfile::tempdir().unwrap();
    let began = std::time::Instant::now();
    let first = demo(dir.path(), &["--history", "20"]).await;
    assert!(began.elapsed() < SHUTDOWN_LIMIT, "{:?}", began.elapsed());
    let printed = first.out().join("\n");
    assert!(printed.contains("made-up answers of the last 20 days (--history 0: none)"), "{printed}");
    let kept = first.get("/citations?limit=1000").await.json().await["items"].as_array().unwrap().len();
    assert!(kept > 60, "{kept}");
    let stats = first.get("/stats").await.json().await;
    assert_eq!(stats["totals"]["messages"], kept);
    assert!(stats["days"].as_array().unwrap().len() > 15, "{stats}");
    let live = the_record(&first.post("/doubao/x").await.whole().await.bytes());
    assert_eq!(live.message_id, "35730705466983426", "the live answers changed");
    drop(first);

    let second = demo(dir.path(), &[]).await;
    assert!(!second.out().join("\n").contains("made-up"), "only in an empty store");
    let again = second.get("/citations?limit=1000").await.json().await["items"].as_array().unwrap().len();
    assert_eq!(again, kept + 1);
    let ran = run(citetap(dir.path(), &["demo", "--history", "31"]), "");
    assert_eq!(ran.code, 2, "{ran:?}");
}

/// A request without `stream` gets a whole response, as from an OpenAI-like service, with the same record.
#[tokio::test]
async fn demo_answers_unstreamed_requests_with_a_document() {
    let dir = tempfile::tempdir().unwrap();
    let demo = demo(dir.path(), &[]).await;
    let asks = post("/openai/v1/chat/completions", r#"{"stream":true}"#);
    let streamed = the_record(&Client::h1(demo.addr).await.send(asks).await.whole().await.bytes());
    let whole = demo.post("/openai/v1/chat/completions").await.json().await;
    assert_eq!((&whole["object"], &whole["id"]), (&"chat.completion".into(), &streamed.message_id.as_str().into()));
    let kept: Record =
        serde_json::from_value(demo.get(&format!("/citations/{}", streamed.message_id)).await.json().await).unwrap();
    assert_eq!((kept.citations, kept.stats), (streamed.citations, streamed.stats));
}

#[tokio::test]
async fn interrupted_demo_ends_soon_during_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Running::start(citetap(dir.path(), &["demo", "--listen", "127.0.0.1:0", "--speed", "0.1"])).await;
    let mut response = demo.post("/doubao/chat").await;
    response.until("event: SSE_ACK").await;
    demo.signal("INT");
    assert_eq!(demo.ended(SHUTDOWN_LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn port_in_use_is_named_in_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ran = run(citetap(dir.path(), &["demo", "--listen", &taken.local_addr().unwrap().to_string()]), "");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("could not listen") && ran.err.contains("--listen"), "{}", ran.err);
}

#[tokio::test]
async fn sidecar_runs_with_environment_variables_only() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream(Script::sse(tencent::answer("side-1"))).await;
    let mut command = citetap(dir.path(), &["serve"]);
    command
        .env("CITETAP_UPSTREAM", upstream.url())
        .env("CITETAP_LISTEN", "127.0.0.1:0")
        .env("CITETAP_STORE", "memory:");
    let serve = Running::start(command).await;
    let record = the_record(&serve.post("/any/path?x=1").await.whole().await.bytes());
    assert_eq!((record.message_id.as_str(), record.provider.as_str(), record.stored), ("side-1", "tencent", true));
    assert_eq!(upstream.requests()[0].path, "/any/path?x=1");
    let kept: Record = serde_json::from_value(serve.get("/citations/side-1").await.json().await).unwrap();
    assert_eq!(kept, record);
}

#[tokio::test]
async fn exposed_address_without_keys_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let ran = run(citetap(dir.path(), &["serve", "--upstream", "http://127.0.0.1:1", "--listen", listen]), "");
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{listen}");
        for way in ["[[tenants]]", "127.0.0.1", "auth = \"none\""] {
            assert!(ran.err.contains(way), "{listen}: {}", ran.err);
        }
    }
    let mut open = citetap(dir.path(), &["serve", "--upstream", "http://127.0.0.1:1", "--listen", "0.0.0.0:0"]);
    open.env("CITETAP__AUTH", "none");
    let open = Running::start(open).await;
    let local = ([127, 0, 0, 1], open.addr.port()).into();
    assert_eq!(Client::h1(local).await.send(get("/healthz")).await.status, 200);
}

#[tokio::test]
async fn each_stream_logs_one_json_line() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream(Script::sse(tencent::answer("m-1"))).await;
    let toml = format!("store = \"memory:\"\n{}", route("chat", &upstream.url()));
    let mut serve = Running::serve(dir.path(), &toml).await;
    for _ in 0..3 {
        serve.post("/chat/x").await.whole().await;
    }
    assert_eq!(serve.get("/chat/y?gone").await.whole().await.status, 200);
    let ended = serve.logged("stream ended", 4).await;
    for line in &ended {
        assert_eq!(
            (&line["route"], &line["provider"], &line["status"]),
            (&"chat".into(), &"tencent".into(), &200.into())
        );
        assert_eq!(
            (&line["outcome"], &line["citations"], &line["injected"]),
            (&"complete".into(), &2.into(), &true.into())
        );
        for number in ["ttfb_ms", "duration_ms", "frames", "bytes_in", "bytes_out"] {
            assert!(line[number].is_u64(), "{number}: {line}");
        }
        assert!(line["bytes_out"].as_u64() > line["bytes_in"].as_u64(), "{line}");
    }
    serve.signal("TERM");
    assert_eq!(serve.ended(SHUTDOWN_LIMIT).await.code(), Some(0));
    assert_eq!(serve.logged("stream ended", 4).await.len(), 4, "once each");
    assert_eq!(serve.logged("stopped", 1).await.len(), 1);
    assert_eq!(serve.err(), Vec::<String>::new(), "the log is on standard output");
}

#[tokio::test]
async fn drain_lets_streams_finish_and_a_second_signal_ends_them() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::bind(vec![
        Scripted::new("/slow", paused("slow-1", Duration::from_millis(700))),
        Scripted::new("/endless", paused("endless-1", Duration::from_secs(600))),
    ])
    .await
    .unwrap();
    let toml = format!("store = \"sqlite:drain.db\"\n{}", route("chat", &upstream.url()));

    let mut serve = Running::serve(dir.path(), &toml).await;
    let mut response = serve.post("/chat/slow").await;
    let mut seen = response.until("reference_chunks").await.into_bytes();
    serve.signal("TERM");
    serve.logged("draining", 1).await;
    seen.extend(response.whole().await.bytes());
    let record = the_record(&seen);
    assert!(record.stored && record.complete, "{record:?}");
    assert_eq!(serve.ended(SHUTDOWN_LIMIT).await.code(), Some(0));

    let mut serve = Running::serve(dir.path(), &toml).await;
    let kept: Record = serde_json::from_value(serve.get("/citations/slow-1").await.json().await).unwrap();
    assert_eq!(kept, record, "flushed before the end");
    let mut response = serve.post("/chat/endless").await;
    response.until("reference_chunks").await;
    serve.signal("TERM");
    serve.logged("draining", 1).await;
    serve.signal("INT");
    assert_eq!(serve.ended(SHUTDOWN_LIMIT).await.code(), Some(0));
}

/// Browsers and pools keep idle connections. They must not delay the shutdown.
#[tokio::test]
async fn idle_connections_do_not_delay_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve =
        Running::serve(dir.path(), &format!("store = \"memory:\"\n{}", route("x", "http://127.0.0.1:1"))).await;
    let _silent = tokio::net::TcpStream::connect(serve.addr).await.unwrap();
    let (mut h1, mut h2) = (Client::h1(serve.addr).await, Client::h2(serve.addr).await);
    for client in [&mut h1, &mut h2] {
        assert_eq!(client.send(get("/healthz")).await.whole().await.status, 200);
    }
    serve.signal("TERM");
    assert_eq!(serve.ended(SHUTDOWN_LIMIT).await.code(), Some(0));
    assert!(h1.try_send(get("/healthz")).await.is_err());
}

#[tokio::test]
async fn sighup_reloads_the_routes() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream(paused("hup-1", Duration::from_millis(1500))).await;
    let named = |name: &str| format!("store = \"memory:\"\n{}", route(name, &upstream.url()));
    let serve = Running::serve(dir.path(), &named("old")).await;
    let mut response = serve.post("/old/x").await;
    let mut seen = response.until("reference_chunks").await.into_bytes();

    std::fs::write(dir.path().join("citetap.toml"), named("new")).unwrap();
    serve.signal("HUP");
    serve.logged("routes reloaded; other settings take a restart", 1).await;
    serve.get("/old/x").await.is_problem(404, "no-route").await;
    assert_eq!(serve.post("/new/x").await.status, 200);

    std::fs::write(dir.path().join("citetap.toml"), named("third").replace("upstream", "upstraem")).unwrap();
    serve.signal("HUP");
    let refused = serve.logged("routes not reloaded", 2).await;
    assert_eq!(refused[0]["level"], "ERROR");
    assert!(refused.iter().any(|line| line["error"].as_str().unwrap().contains("did you mean")), "{refused:?}");
    assert_eq!(serve.post("/new/x").await.status, 200, "as they were");
    serve.get("/third/x").await.is_problem(404, "no-route").await;

    seen.extend(response.whole().await.bytes());
    let record = the_record(&seen);
    assert!(record.complete && record.route == "old", "an open stream keeps its route: {record:?}");
}

/// `citetap serve 2>&1 | logger`: chats continue after the logger dies.
#[tokio::test]
async fn closed_log_pipe_does_not_stop_chats() {
    let dir = tempfile::tempdir().unwrap();
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], dead_port()));
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = citetap(dir.path(), &["serve", "--upstream", "http://127.0.0.1:1", "--store", "memory:"]);
    command.args(["--listen", &addr.to_string()]).stdout(writer.try_clone().unwrap()).stderr(writer);
    drop(reader);
    let mut child = command.spawn().unwrap();
    drop(command);
    let up = eventually(|| async { tokio::net::TcpStream::connect(addr).await.ok() }).await;
    let mut seen = Vec::new();
    if up.is_some() {
        for path in ["/chat", "/chat", "/healthz"] {
            let response = Client::h1(addr).await.try_send(get(path)).await;
            seen.push(response.map_or(0, |response| response.status.as_u16()));
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen, [502, 502, 200]);
}

/// A store that cannot be opened is reported at startup, not by the first chat.
#[tokio::test]
async fn unopenable_store_fails_at_startup() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("broken.db"), "this is no database, however long one looks at it".repeat(100))
        .unwrap();
    for store in ["sqlite:broken.db", "sqlite:no/such/folder/x.db"] {
        let args = ["serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--store", store];
        let ran = run(citetap(dir.path(), &args), "");
        assert_eq!(ran.code, 1, "{store}: {ran:?}");
        assert!(ran.err.starts_with("citetap: store: "), "{store}: {}", ran.err);
    }
}
