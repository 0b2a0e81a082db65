//! Two replicas that share a real PostgreSQL or Redis.

mod engine;
mod engine_faults;
mod in_flight;
mod rolling;

use citetap::{
    citation::Record,
    replay::{Script, Scripted, Step, Upstream},
};

use self::engine::{Disk, Engine, Kind};
use crate::{
    crash::streams,
    net::{route, tencent},
    process::{COMMIT, Running, citetap},
    rng::Rng,
};

/// Defines each test once per engine.
macro_rules! on_each_engine {
    ($($test:ident),+ $(,)?) => {
        mod postgres { $(#[tokio::test] async fn $test() { super::$test(super::Kind::Postgres).await; })+ }
        mod redis { $(#[tokio::test] async fn $test() { super::$test(super::Kind::Redis).await; })+ }
    };
}
use on_each_engine;

/// The upstream and the engine that replicas share.
struct Cluster {
    engine: Engine,
    upstream: Upstream,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// The upstream has the streams of the crash test, and these of Tencent's dialect under `/chat`.
    async fn new(kind: Kind, disk: Disk, chats: Vec<(&str, Script)>) -> Self {
        let engine = Engine::start(kind, disk).await;
        let mut scripts = streams::scripts(&mut Rng::new(7));
        scripts.extend(chats.into_iter().map(|(path, script)| Scripted::new(format!("/chat{path}"), script)));
        let upstream = Upstream::bind(scripts).await.unwrap();
        Self { engine, upstream, dir: tempfile::tempdir().unwrap() }
    }

    fn toml(&self) -> String {
        let mut toml =
            format!("store = \"{}\"\n[timeouts]\ndrain = \"10s\"\ndrain_delay = \"1s\"\n", self.engine.url());
        for dialect in streams::DIALECTS.into_iter().chain(["chat"]) {
            let provider = match dialect {
                "samantha" => "doubao",
                "chat" => "tencent",
                other => other,
            };
            toml += &route(dialect, &format!("{}/{dialect}", self.upstream.url()));
            toml += &format!("provider = \"{provider}\"\n");
        }
        toml
    }

    /// One replica. `commit`: its commit wait.
    async fn replica(&self, commit: &str, listen: &str) -> Running {
        let file = self.dir.path().join("citetap.toml");
        std::fs::write(&file, self.toml()).unwrap();
        let mut command = citetap(self.dir.path(), &["serve", "--listen", listen]);
        command.env(COMMIT, commit);
        Running::start(command).await
    }
}

/// The record that a replica returns.
async fn kept(replica: &Running, id: &str) -> Option<Record> {
    let response = replica.get(&format!("/citations/{id}")).await;
    if response.status == 200 { serde_json::from_value(response.json().await).ok() } else { None }
}
