//! A rolling restart of replicas behind a load balancer during chats: nothing is cut or lost.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::{Cluster, Disk, Kind, on_each_engine};
use crate::{
    crash::{
        expected::{ExpectedRecords, Findings},
        load::{Observations, read_stream},
        streams::{DIALECTS, VARIANTS},
    },
    net::{Client, eventually, request},
    process::dead_port,
    rng::Rng,
};

const CLIENTS: usize = 12;

on_each_engine!(rolling_restart_under_load_loses_nothing);

/// HAProxy in front of both. Killed when dropped.
struct Balancer {
    child: Child,
    addr: SocketAddr,
}

impl Balancer {
    async fn start(dir: &Path, replicas: &[SocketAddr]) -> Self {
        let addr = SocketAddr::from(([127, 0, 0, 1], dead_port()));
        let servers: String = replicas
            .iter()
            .enumerate()
            .map(|(n, replica)| format!("    server r{n} {replica} check inter 100ms fall 1 rise 1\n"))
            .collect();
        // Each request has its own connection to a replica. If one refuses, the other is used.
        let config = format!(
            "global\n    maxconn 500\ndefaults\n    mode http\n    option http-server-close\n    option redispatch 1\n    \
             retries 10\n    timeout connect 2s\n    timeout client 60s\n    timeout server 60s\nfrontend clients\n    \
             bind {addr}\n    default_backend replicas\nbackend replicas\n    balance roundrobin\n    \
             option httpchk GET /readyz\n{servers}"
        );
        let file = dir.join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        // Debian installs it in a directory outside a normal user's PATH.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file).env("PATH", path);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("haproxy is installed; the test command does it");
        let balancer = Self { child, addr };
        let up = eventually(|| async { Client::try_h1(addr).await.ok() }).await;
        up.expect("haproxy listens");
        balancer
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts of how requests ended.
#[derive(Default)]
struct Ends {
    whole: AtomicUsize,
    /// A stream without its end.
    cut: AtomicUsize,
    /// No stream.
    refused: AtomicUsize,
    /// No stream, because its replica was killed: a POST that was read must not be retried.
    interrupted: AtomicUsize,
    killed: AtomicBool,
}

/// Chats through the balancer until stopped.
async fn chatter(
    addr: SocketAddr,
    mut rng: Rng,
    observations: Arc<Observations>,
    ends: Arc<Ends>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Relaxed) {
        observations.streams.fetch_add(1, Relaxed);
        let path = format!("/{}/{:02}", rng.pick(&DIALECTS), rng.within(0..VARIANTS));
        let (began_before, ends) = (!ends.killed.load(Relaxed), &*ends);
        let refused = || if began_before && ends.killed.load(Relaxed) { &ends.interrupted } else { &ends.refused };
        let Ok(mut client) = Client::try_h1(addr).await else {
            refused().fetch_add(1, Relaxed);
            continue;
        };
        match client.try_send(request(http::Method::POST, &path, &[], r#"{"stream":true}"#)).await {
            Ok(response) if response.status == 200 => {
                let (records, whole) = read_stream(response).await;
                observations.note(records);
                if whole { &ends.whole } else { &ends.cut }.fetch_add(1, Relaxed);
            }
            _ => drop(refused().fetch_add(1, Relaxed)),
        }
    }
}

async fn rolling_restart_under_load_loses_nothing(kind: Kind) {
    let cluster = Cluster::new(kind, Disk::Plain, Vec::new()).await;
    let mut replicas = vec![cluster.replica("10s", "127.0.0.1:0").await, cluster.replica("10s", "127.0.0.1:0").await];
    let addresses: Vec<SocketAddr> = replicas.iter().map(|replica| replica.addr).collect();
    let balancer = Balancer::start(cluster.dir.path(), &addresses).await;
    let (observations, ends, stop) =
        (Arc::<Observations>::default(), Arc::<Ends>::default(), Arc::<AtomicBool>::default());
    let (mut clients, mut rng) = (JoinSet::new(), Rng::new(3));
    for _ in 0..CLIENTS {
        let (observations, ends, stop) = (Arc::clone(&observations), Arc::clone(&ends), Arc::clone(&stop));
        clients.spawn(chatter(balancer.addr, rng.fork(), observations, ends, stop));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..2 {
        let listen = addresses[n].to_string();
        replicas[n].signal("TERM");
        let status = replicas[n].ended(Duration::from_secs(20)).await;
        assert!(status.success(), "{status:?}");
        replicas[n] = cluster.replica("10s", &listen).await;
        // Wait until the balancer has noticed before the next replica is restarted.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (whole, cut, refused) = (ends.whole.load(Relaxed), ends.cut.load(Relaxed), ends.refused.load(Relaxed));
    assert!(whole > 50, "only {whole} streams ended");
    assert_eq!((cut, refused), (0, 0), "of {whole} streams while both replicas were replaced");

    // One replica is killed: its streams are cut, and no record that was reported as stored is lost.
    replicas.remove(0).kill();
    ends.killed.store(true, Relaxed);
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Relaxed);
    clients.join_all().await;
    assert_eq!(ends.refused.load(Relaxed), 0, "the other takes over");
    let (mut expected, mut findings) = (ExpectedRecords::default(), Findings::default());
    expected.enter(&observations, &mut findings);
    let back = cluster.replica("10s", "127.0.0.1:0").await;
    for replica in [&replicas[0], &back] {
        expected.check_all(replica, &mut findings).await;
        expected.check_list(replica, &mut findings).await;
    }
    log(kind, &findings, &ends);
    assert!(findings.is_clean(), "{:?}", findings.faults);
}

#[expect(clippy::print_stderr, reason = "the counts are shown if the test fails or with --nocapture")]
fn log(kind: Kind, findings: &Findings, ends: &Ends) {
    eprintln!(
        "{kind:?}: {} whole, {} cut by the kill; {}",
        ends.whole.load(Relaxed),
        ends.cut.load(Relaxed),
        findings.line()
    );
}
