//! The same with the real process, killed together with its consumer, and the commands in the manual.

use std::{collections::BTreeSet, time::Duration};

use citetap::replay::{Script, Scripted, Upstream};
use http::Method;
use serde_json::{Value, json};

use crate::{
    net::{Client, request, route, tencent},
    process::{Running, citetap, shell},
};

/// Versions of message `n`. Each has more documents than the one before, inserted at the front.
fn documents(n: u32, version: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..3 + version * 2).map(|k| n * 5 + k).collect();
    all.reverse();
    all
}

const MESSAGES: u32 = 6;
const VERSIONS: u32 = 3;

/// The point at which the consumer and citetap are killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kill {
    AfterReading,
    AfterProcessing,
    /// The commit is on its way: it may or may not take effect.
    WhileCommitting,
    AfterCommitting,
}

fn urls_of(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["url"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn consumer_resumes_after_a_kill_together_with_citetap() {
    let dir = tempfile::tempdir().unwrap();
    let mut scripts = Vec::new();
    for n in 0..MESSAGES {
        for version in 0..VERSIONS {
            let (id, path) = (format!("m-{n}"), format!("/m-{n}-{version}"));
            let stream =
                tencent::references(&id, &documents(n, version)) + &tencent::text(&id, "[1]") + &tencent::finish(&id);
            scripts.push(Scripted::new(&path, Script::sse(stream)));
        }
    }
    let upstream = Upstream::bind(scripts).await.unwrap();
    let toml = format!("store = \"sqlite:tasks.db\"\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
    let mut citetap = Running::serve(dir.path(), &toml).await;
    // Messages and their updates, some joining after others that were created later.
    let mut joining: Vec<(u32, u32)> =
        vec![(1, 0), (0, 0), (1, 1), (3, 0), (0, 1), (2, 0), (1, 2), (5, 1), (4, 0), (0, 2), (5, 2), (2, 2)];
    joining.reverse();
    let kills = [
        Kill::AfterReading,
        Kill::WhileCommitting,
        Kill::AfterCommitting,
        Kill::AfterProcessing,
        Kill::WhileCommitting,
    ];
    let mut kills = kills.into_iter().cycle();
    let (mut seen, mut committed) = (BTreeSet::new(), BTreeSet::new());
    let mut expected = BTreeSet::new();
    loop {
        let joined = joining.pop();
        if let Some((n, version)) = joined {
            let path = format!("/chat/m-{n}-{version}");
            let ask = request(Method::POST, &path, &[("x-task-id", "job")], "{}");
            let whole = Client::h1(citetap.addr).await.send(ask).await.whole().await;
            assert!(whole.split().1[0].stored);
            expected.extend(documents(n, version).into_iter().map(|n| format!("https://s{n}.example.com/")));
        }
        let page = citetap.get("/tasks/job/results?consumer=writer&limit=3").await.json().await;
        let urls = urls_of(&page);
        for url in &urls {
            assert!(!committed.contains(url), "{url} was committed");
        }
        if joined.is_none() && urls.is_empty() {
            break;
        }
        let kill = if joined.is_some() { kills.next() } else { None };
        if kill != Some(Kill::AfterReading) {
            seen.extend(urls.iter().cloned());
        }
        let put = request(Method::PUT, "/tasks/job/cursors/writer", &[], page["cursor"].to_string());
        match kill {
            Some(Kill::WhileCommitting) => {
                let mut client = Client::h1(citetap.addr).await;
                let sent = tokio::spawn(async move { client.try_send(put).await.map(|response| response.status) });
                tokio::time::sleep(Duration::from_micros(u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * 20)).await;
                citetap.kill();
                let answered = sent.await.unwrap();
                citetap = Running::serve(dir.path(), &toml).await;
                let left = urls_of(&citetap.get("/tasks/job/results?consumer=writer&limit=1000").await.json().await);
                let counts = urls.iter().filter(|url| !left.contains(url)).count();
                assert!(counts == 0 || counts == urls.len(), "a commit takes effect completely or not at all");
                if answered.is_ok_and(|status| status == 200) {
                    assert_eq!(counts, urls.len(), "a confirmed commit is durable");
                }
                if counts > 0 {
                    committed.extend(urls);
                }
            }
            None | Some(Kill::AfterCommitting) => {
                assert_eq!(Client::h1(citetap.addr).await.send(put).await.status, 200);
                committed.extend(urls);
                if kill.is_some() {
                    citetap.kill();
                    citetap = Running::serve(dir.path(), &toml).await;
                    let at = citetap.get("/tasks/job/cursors/writer").await.json().await;
                    assert_eq!(at["last_source_id"], page["cursor"]["last_source_id"], "a confirmed commit is durable");
                }
            }
            Some(Kill::AfterReading | Kill::AfterProcessing) => {
                citetap.kill();
                citetap = Running::serve(dir.path(), &toml).await;
            }
        }
    }
    assert_eq!(seen, expected, "each at least once");
    let at = citetap.get("/tasks/job/cursors/writer").await.json().await;
    assert_eq!(at["consumed_count"], expected.len());
}

/// Runs the commands of the manual in a shell next to the demo. A stand-in replaces `jq`, which not every machine has.
#[tokio::test]
async fn manual_commands_work_with_the_demo() {
    let dir = tempfile::tempdir().unwrap();
    let demo = Running::start(citetap(dir.path(), &["demo", "--listen", "127.0.0.1:0", "--speed", "100"])).await;
    let text = include_str!("../../../docs/src/tasks.md");
    let lines = text.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let lines = lines.replace("127.0.0.1:8787", &demo.addr.to_string());
    let jq = r#"jq() { sed 's/.*"cursor"://; s/}$//' "$2"; }"#;
    let output = shell(&format!("cd '{}'\n{jq}\n{lines}", dir.path().display()));
    let output: Vec<Value> = serde_json::Deserializer::from_slice(&output).into_iter().map(Result::unwrap).collect();
    let [committed, next, kept] = output.as_slice() else { panic!("{output:?}") };
    let page: Value = serde_json::from_slice(&std::fs::read(dir.path().join("page.json")).unwrap()).unwrap();
    assert_eq!((committed, &committed["consumed_count"]), (kept, &json!(4)));
    assert_eq!(committed["last_source_id"], page["items"][3]["source_id"]);
    assert_eq!(next["items"].as_array().unwrap().len(), 4);
    let queries: Vec<&Value> = next["items"].as_array().unwrap().iter().map(|item| &item["query_id"]).collect();
    assert_eq!(queries, ["q1", "q1", "q2", "q2"], "two messages, one task");
}
