//! Consumers of a task see each item at least once, and never again after they committed it. Tested with consumers that
//! are killed at any point, messages that join meanwhile, and kills of citetap itself.

mod killed;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use citetap::{
    citation::{
        Record,
        record::{Citation, SearchRound},
        url::source_id,
    },
    replay::{Script, Scripted, Upstream},
    store::Entry,
};
use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::net::{Client, ClientResponse, Proxy, request, route, tencent};

const ROUNDS: u32 = 2;

/// A step of the random sequence.
#[derive(Debug, Clone)]
enum Step {
    /// A message joins the task or changes: a late source, or another score. Messages have the order of their numbers,
    /// but join in any order.
    Source {
        message: i64,
        round: u32,
        name: u8,
        score: u8,
    },
    Read {
        limit: usize,
    },
    /// Part of the page is processed but not committed.
    Process(usize),
    /// Commit the cursor of the page.
    Commit,
    /// Commit the cursor of the page, moved back to the processed items.
    CommitPart,
    /// Commit each item as position and count.
    CommitEach,
    /// Commit, but kill the consumer before the response arrives.
    CommitAndCrash,
    /// Kill the consumer: uncommitted items are lost.
    Crash,
    /// An old consumer wakes up and commits the page it has processed.
    Ghost,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_i64..4, 1..=ROUNDS, 0_u8..14, 0_u8..5)
            .prop_map(|(message, round, name, score)| Step::Source { message, round, name, score }),
        5 => (1_usize..5).prop_map(|limit| Step::Read { limit }),
        2 => (0_usize..4).prop_map(Step::Process),
        2 => Just(Step::Commit),
        2 => Just(Step::CommitPart),
        1 => Just(Step::CommitEach),
        1 => Just(Step::CommitAndCrash),
        1 => Just(Step::Crash),
        1 => Just(Step::Ghost),
    ]
}

/// Sources by name: search round and score.
type Sources = BTreeMap<u8, (u32, u8)>;

struct Task {
    like: Record,
    messages: BTreeMap<i64, Sources>,
    committed: HashSet<u8>,
    seen: BTreeSet<u8>,
}

impl Task {
    /// The remaining items in the protocol's order: query ascending, score descending, each source once.
    fn left(&self) -> Vec<u8> {
        let mut left = Vec::new();
        for sources in self.messages.values() {
            for round in 1..=ROUNDS {
                let mut of_round: Vec<(u8, u8)> = sources
                    .iter()
                    .filter(|(_, (of, _))| *of == round)
                    .map(|(name, (_, score))| (u8::MAX - score, *name))
                    .collect();
                of_round.sort_unstable();
                left.extend(of_round.into_iter().map(|(_, name)| name));
            }
        }
        let mut met = self.committed.clone();
        left.retain(|name| met.insert(*name));
        left
    }

    /// Checks a commit and its response. Only items that are already committed may be rejected.
    fn commits(&mut self, names: &[u8], status: u16) {
        let new = names.iter().any(|name| !self.committed.contains(name));
        assert!(status == 200 || (status == 409 && !new), "{status} for {names:?}");
        self.committed.extend(names);
    }

    fn entry(&self, message: i64) -> Entry {
        let mut record = self.like.clone();
        record.message_id = format!("m{message}");
        record.task_id = Some("task".to_owned());
        let rounds = (1..=ROUNDS).map(|round| SearchRound {
            round,
            queries: vec![format!("{message} {round}")],
            ..SearchRound::default()
        });
        record.rounds = rounds.collect();
        record.citations = Vec::new();
        for (name, (round, score)) in &self.messages[&message] {
            let mut scores = self.like.citations[0].scores.unwrap();
            scores.overall = f64::from(*score) / 10.0;
            let mut citation = Citation {
                source_id: source_id(&name.to_string()),
                title: Some(name.to_string()),
                // Equal scores are ordered by name.
                rank: (*name).into(),
                scores: Some(scores),
                ..self.like.citations[0].clone()
            };
            citation.metadata.insert("round".to_owned(), (*round).into());
            record.citations.push(citation);
        }
        Entry { tenant: "default".to_owned(), created_ms: message, record }
    }
}

/// A page and the number of processed items.
#[derive(Clone)]
struct Page {
    names: Vec<u8>,
    json: Value,
    done: usize,
}

async fn send(proxy: &Proxy, method: Method, path: &str, body: &Value) -> ClientResponse {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Client::h1(proxy.addr).await.send(request(method, path, &[], body)).await
}

async fn read(proxy: &Proxy, limit: usize) -> Page {
    let path = format!("/tasks/task/results?consumer=c&limit={limit}");
    let json = send(proxy, Method::GET, &path, &Value::Null).await.json().await;
    let names = json["items"].as_array().unwrap().iter();
    let names = names.map(|item| item["title"].as_str().unwrap().parse().unwrap()).collect();
    Page { names, json, done: 0 }
}

async fn commit(proxy: &Proxy, cursor: &Value) -> u16 {
    send(proxy, Method::PUT, "/tasks/task/cursors/c", cursor).await.status.as_u16()
}

/// The cursor of a page at the item before `end`.
fn part(page: &Page, end: usize) -> Value {
    let mut cursor = page.json["cursor"].clone();
    let last = &page.json["items"][end - 1];
    let before = cursor["consumed_count"].as_u64().unwrap() - page.names.len() as u64;
    cursor["last_query_id"] = last["query_id"].clone();
    cursor["last_source_id"] = last["source_id"].clone();
    cursor["consumed_count"] = (before + end as u64).into();
    cursor
}

async fn run(steps: Vec<Step>, store: &str) {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse(tencent::answer("like")))]).await.unwrap();
    let proxy = Proxy::start(&format!("{store}{}provider = \"tencent\"\n", route("chat", &upstream.url()))).await;
    proxy.post("/chat", "{}").await.whole().await;
    let like = proxy.stored("like").await;
    let (messages, committed, seen) = (BTreeMap::from([(9, Sources::new())]), HashSet::new(), BTreeSet::new());
    let mut task = Task { like, messages, committed, seen };
    proxy.app.store.put(&[task.entry(9)]).await.unwrap();
    let mut page: Option<Page> = None;
    let mut ghost: Option<Page> = None;
    for step in steps {
        match step {
            Step::Source { message, round, name, score } => {
                let sources = task.messages.entry(message).or_default();
                let (round, _) = *sources.get(&name).unwrap_or(&(round, 0));
                sources.insert(name, (round, score));
                proxy.app.store.put(&[task.entry(message)]).await.unwrap();
            }
            Step::Read { limit } => {
                let got = read(&proxy, limit).await;
                let left = task.left();
                assert_eq!(got.names, left[..limit.min(left.len())], "the protocol's order, nothing twice");
                assert_eq!(got.json["more"], left.len() > limit);
                if page.is_some() {
                    ghost = page;
                }
                page = Some(got);
            }
            Step::Process(count) => {
                let Some(page) = &mut page else { continue };
                page.done = page.names.len().min(page.done + count);
                task.seen.extend(&page.names[..page.done]);
            }
            Step::Commit | Step::CommitAndCrash => {
                let Some(whole) = page.take() else { continue };
                task.seen.extend(&whole.names);
                task.commits(&whole.names, commit(&proxy, &whole.json["cursor"]).await);
                ghost = Some(whole);
            }
            Step::CommitPart => {
                let Some(page) = page.as_ref().filter(|page| page.done > 0) else { continue };
                task.commits(&page.names[..page.done], commit(&proxy, &part(page, page.done)).await);
            }
            Step::CommitEach => {
                let Some(page) = page.take() else { continue };
                let cursor = send(&proxy, Method::GET, "/tasks/task/cursors/c", &Value::Null).await;
                let mut count =
                    if cursor.status == 200 { cursor.json().await["consumed_count"].as_u64().unwrap() } else { 0 };
                for (item, name) in page.json["items"].as_array().unwrap().iter().zip(&page.names) {
                    if task.committed.contains(name) {
                        continue;
                    }
                    task.seen.insert(*name);
                    count += 1;
                    let cursor = json!({ "task_id": "task", "last_query_id": item["query_id"],
                                         "last_source_id": item["source_id"], "consumed_count": count, "updated_at": "" });
                    assert_eq!(commit(&proxy, &cursor).await, 200);
                    task.committed.insert(*name);
                }
            }
            Step::Crash => ghost = page.take().or(ghost),
            Step::Ghost => {
                let Some(ghost) = &ghost else { continue };
                task.seen.extend(&ghost.names);
                task.commits(&ghost.names, commit(&proxy, &ghost.json["cursor"]).await);
            }
        }
    }
    loop {
        let got = read(&proxy, 3).await;
        if got.names.is_empty() {
            break;
        }
        assert!(got.names.iter().all(|name| !task.committed.contains(name)), "never again");
        task.seen.extend(&got.names);
        assert_eq!(commit(&proxy, &got.json["cursor"]).await, 200);
        task.committed.extend(&got.names);
    }
    let all: BTreeSet<u8> = task.messages.values().flat_map(BTreeMap::keys).copied().collect();
    assert_eq!(task.seen, all, "each at least once");
    let cursor = send(&proxy, Method::GET, "/tasks/task/cursors/c", &Value::Null).await;
    if !all.is_empty() {
        assert_eq!(cursor.json().await["consumed_count"], all.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn consumer_sees_each_item_and_none_after_its_commit(steps in prop::collection::vec(step(), 0..60), in_a_file in prop::bool::weighted(0.15)) {
        let dir = tempfile::tempdir().unwrap();
        let store = if in_a_file { format!("store = \"sqlite:{}\"\n", dir.path().join("s.db").display()) } else { String::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps, &store));
    }
}
