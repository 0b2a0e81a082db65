//! Behind a load balancer, replicas are replaced one after the other while people chat: nothing is cut, nothing lost.

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

use super::{Disk, House, Kind, on_each_engine};
use crate::{
    chance::Chance,
    crash::{
        book::{Book, Tally},
        load::{Heard, read_stream},
        streams::{DIALECTS, VARIANTS},
    },
    net::{Client, eventually, request},
    process::dead_port,
};

const CLIENTS: usize = 12;

on_each_engine!(replaced_under_load_nothing_is_lost);

/// HAProxy before both; killed when dropped.
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
        // Each request has a connection of its own to a replica: one that is refused there goes to the other.
        let config = format!(
            "global\n    maxconn 500\ndefaults\n    mode http\n    option http-server-close\n    option redispatch 1\n    \
             retries 10\n    timeout connect 2s\n    timeout client 60s\n    timeout server 60s\nfrontend clients\n    \
             bind {addr}\n    default_backend replicas\nbackend replicas\n    balance roundrobin\n    \
             option httpchk GET /readyz\n{servers}"
        );
        let file = dir.join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        // Debian puts it where only root looks by default.
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

/// How requests ended.
#[derive(Default)]
struct Ends {
    whole: AtomicUsize,
    /// A stream that did not come to its end.
    cut: AtomicUsize,
    /// No stream at all.
    refused: AtomicUsize,
    /// The same of a request that was under way when a replica was killed: nobody may send a POST again that has been read.
    interrupted: AtomicUsize,
    killed: AtomicBool,
}

/// Chats through the balancer until told to stop.
async fn chatter(addr: SocketAddr, mut chance: Chance, heard: Arc<Heard>, ends: Arc<Ends>, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        heard.streams.fetch_add(1, Relaxed);
        let path = format!("/{}/{:02}", chance.pick(&DIALECTS), chance.within(0..VARIANTS));
        let (began_before, ends) = (!ends.killed.load(Relaxed), &*ends);
        let refused = || if began_before && ends.killed.load(Relaxed) { &ends.interrupted } else { &ends.refused };
        let Ok(mut client) = Client::try_h1(addr).await else {
            refused().fetch_add(1, Relaxed);
            continue;
        };
        match client.try_send(request(http::Method::POST, &path, &[], r#"{"stream":true}"#)).await {
            Ok(answer) if answer.status == 200 => {
                let (records, whole) = read_stream(answer).await;
                heard.note(records);
                if whole { &ends.whole } else { &ends.cut }.fetch_add(1, Relaxed);
            }
            _ => drop(refused().fetch_add(1, Relaxed)),
        }
    }
}

async fn replaced_under_load_nothing_is_lost(kind: Kind) {
    let house = House::new(kind, Disk::Plain, Vec::new()).await;
    let mut replicas = vec![house.replica("10s", "127.0.0.1:0").await, house.replica("10s", "127.0.0.1:0").await];
    let addresses: Vec<SocketAddr> = replicas.iter().map(|replica| replica.addr).collect();
    let balancer = Balancer::start(house.dir.path(), &addresses).await;
    let (heard, ends, stop) = (Arc::<Heard>::default(), Arc::<Ends>::default(), Arc::<AtomicBool>::default());
    let (mut clients, mut chance) = (JoinSet::new(), Chance::new(3));
    for _ in 0..CLIENTS {
        let (heard, ends, stop) = (Arc::clone(&heard), Arc::clone(&ends), Arc::clone(&stop));
        clients.spawn(chatter(balancer.addr, chance.fork(), heard, ends, stop));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..2 {
        let listen = addresses[n].to_string();
        replicas[n].signal("TERM");
        let status = replicas[n].ended(Duration::from_secs(20)).await;
        assert!(status.success(), "{status:?}");
        replicas[n] = house.replica("10s", &listen).await;
        // The balancer must have seen it before the next one goes.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (whole, cut, refused) = (ends.whole.load(Relaxed), ends.cut.load(Relaxed), ends.refused.load(Relaxed));
    assert!(whole > 50, "{whole} streams came to their end");
    assert_eq!((cut, refused), (0, 0), "of {whole} streams while both replicas were replaced");

    // One is killed: what it was relaying is cut, and nothing that was told is lost.
    replicas.remove(0).kill();
    ends.killed.store(true, Relaxed);
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Relaxed);
    clients.join_all().await;
    assert_eq!(ends.refused.load(Relaxed), 0, "the other takes over");
    let (mut book, mut tally) = (Book::default(), Tally::default());
    book.enter(&heard, &mut tally);
    let back = house.replica("10s", "127.0.0.1:0").await;
    for replica in [&replicas[0], &back] {
        book.check_all(replica, &mut tally).await;
        book.check_list(replica, &mut tally).await;
    }
    said(kind, &tally, &ends);
    assert!(tally.is_clean(), "{:?}", tally.faults);
}

#[expect(clippy::print_stderr, reason = "for whoever wants to see how it went")]
fn said(kind: Kind, tally: &Tally, ends: &Ends) {
    eprintln!(
        "{kind:?}: {} whole, {} cut by the kill; {}",
        ends.whole.load(Relaxed),
        ends.cut.load(Relaxed),
        tally.line()
    );
}
