//! Chat clients of every dialect, profile and marker style, which finish or disconnect.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use citetap::{citation::Record, profile::Profile};
use http::Method;
use tokio::{task::JoinSet, time::timeout};

use super::{
    report::Report,
    setup::{Ending, Item, Sent},
};
use crate::{
    api::tenants::{ALPHA, BETA},
    client::client,
    net::{Client, ClientResponse, request, split},
    rng::Rng,
};

/// Far more than the upstream idle timeout.
const SILENCE: Duration = Duration::from_secs(15);

/// h2 (0.4.20) counts small frames for cancelled streams and never forgets them, so it finally closes a connection with
/// many cancelled streams. That is the client's fault, not the proxy's.
const STREAMS_OF_H2: usize = 60;

pub struct ChatClients {
    pub addr: SocketAddr,
    pub items: Arc<Vec<Item>>,
    pub report: Arc<Report>,
    pub until: Instant,
}

/// One request: path, options and tenant.
struct ChatRequest {
    item: Item,
    tenant: usize,
    profile: Profile,
    keep: bool,
    inject: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disconnect {
    Never,
    After(usize),
    /// Reads nothing for a while, in part longer than the client stall timeout.
    Stalls(Duration),
}

impl ChatRequest {
    fn any(items: &[Item], rng: &mut Rng) -> (Self, http::Request<http_body_util::Full<bytes::Bytes>>) {
        let item = rng.pick(items).clone();
        let profiles = [Profile::Native, Profile::OpenAi, Profile::AiSdk, Profile::OpenWebUi];
        let profile = if item.is_transcodable { *rng.pick(&profiles) } else { Profile::Native };
        let markers = *rng.pick(&["keep", "keep", "keep", "link", "sup", "footnote", "strip"]);
        let inject = *rng.pick(&["final", "final", "live", "off"]);
        let tenant = rng.within(0..2);
        let mut path = item.path.clone();
        if item.is_transcodable && rng.one_in(4) {
            path = format!("/auto{path}");
        }
        let headers = [
            [ALPHA, BETA][tenant][0],
            ("x-citetap-profile", profile.as_str()),
            ("x-citetap-markers", markers),
            ("x-citetap-inject", inject),
        ];
        let request = request(Method::POST, &path, &headers, r#"{"stream":true,"messages":[]}"#);
        (Self { item, tenant, profile, keep: markers == "keep", inject }, request)
    }
}

impl ChatClients {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// One stream at a time, a few on each connection.
    pub async fn h1(self: Arc<Self>, mut rng: Rng) {
        while !self.is_over() {
            let mut client = Client::h1(self.addr).await;
            for _ in 0..rng.within(1..8) {
                let (ask, request) = ChatRequest::any(&self.items, &mut rng);
                // Likewise. A reused connection may have been closed meanwhile.
                let Ok(response) = client.try_send(request).await else { break };
                let leaves = leaves(&mut rng);
                let whole = self.read(ask, response, leaves).await;
                if !whole || self.is_over() {
                    break;
                }
            }
        }
    }

    /// Several streams at a time on a connection that is kept for a while.
    pub async fn h2(self: Arc<Self>, mut rng: Rng, at_once: usize) {
        let mut client = Client::h2(self.addr).await;
        let mut reading = JoinSet::new();
        let mut started = 0;
        while !self.is_over() {
            while reading.len() < at_once {
                started += 1;
                if started % STREAMS_OF_H2 == 0 {
                    client = Client::h2(self.addr).await;
                }
                let (ask, request) = ChatRequest::any(&self.items, &mut rng);
                let leaves = leaves(&mut rng);
                // A client that does not read many small frames closes its own connection with all streams.
                let mut own = match leaves {
                    Disconnect::Stalls(_) => Some(Client::h2(self.addr).await),
                    _ => None,
                };
                let response = match own.as_mut().unwrap_or(&mut client).try_send(request).await {
                    Ok(response) => response,
                    // If the upstream fails at once, the response may be cut before its headers.
                    Err(error) => {
                        if ask.item.ending == Ending::Clean {
                            self.report.fault(format!("{} has no answer: {error:?}", ask.item.path));
                        }
                        client = Client::h2(self.addr).await;
                        continue;
                    }
                };
                let this = Arc::clone(&self);
                reading.spawn(async move { this.read(ask, response, leaves).await });
            }
            reading.join_next().await.unwrap().unwrap();
        }
        reading.join_all().await;
    }

    /// Returns whether the response was read to a clean end.
    async fn read(&self, ask: ChatRequest, mut response: ClientResponse, leaves: Disconnect) -> bool {
        let report = &self.report;
        Report::add(&report.streams);
        let what = format!("chat {}", ask.item.path.split('/').take(3).collect::<Vec<_>>().join("/"));
        let status = response.status.as_u16();
        report.expect(if ask.item.path.starts_with("/fault") { &what } else { "chat" }, status, &[ask.item.status]);
        if status != ask.item.status {
            report.fault(format!("{} as {:?}: {}", ask.item.path, ask.profile, response.whole().await.text()));
            return false;
        }
        let mut bytes = Vec::new();
        // A client that reads nothing for long is disconnected.
        let may_be_dropped = matches!(leaves, Disconnect::Stalls(_));
        let mut pieces = 0;
        let clean = loop {
            match leaves {
                Disconnect::After(n) if pieces == n => {
                    Report::add(&report.left);
                    return false;
                }
                Disconnect::Stalls(wait) if pieces == 1 => {
                    Report::add(&report.stalled);
                    tokio::time::sleep(wait).await;
                }
                _ => {}
            }
            let Ok(next) = timeout(SILENCE, response.piece()).await else {
                // The proxy does not evaluate timeouts while it gets no CPU time.
                if ask.item.path != "/fault/idle" {
                    report.fault(format!("{} as {:?}: nothing came for {SILENCE:?}", ask.item.path, ask.profile));
                }
                return false;
            };
            match next {
                Some(Ok(piece)) => bytes.extend_from_slice(&piece),
                Some(Err(error)) => {
                    let message = format!("{error:?}");
                    if may_be_dropped && message.contains("too_many_data_frames") {
                        report.count("stalled, and its own library ended it".to_owned());
                    }
                    if ask.item.ending == Ending::Clean && !may_be_dropped {
                        report.fault(format!("{} as {:?} broke off: {message}", ask.item.path, ask.profile));
                    }
                    break false;
                }
                None => break true,
            }
            pieces += 1;
        };
        if !may_be_dropped || clean {
            self.check(&ask, &bytes, clean);
        }
        clean
    }

    fn check(&self, ask: &ChatRequest, bytes: &[u8], clean: bool) {
        let ChatRequest { item, profile, .. } = ask;
        let report = &self.report;
        if clean && item.ending == Ending::Abort {
            report.fault(format!("{} as {profile:?} ends as if it were whole", item.path));
        }
        if matches!(item.sent, Sent::Nothing) {
            return;
        }
        let records = if *profile == Profile::Native {
            let (theirs, ours) = split(bytes);
            let same = match &item.sent {
                _ if !ask.keep => true,
                // A cut frame need not be relayed.
                Sent::These(sent) if !clean => sent.starts_with(&theirs),
                Sent::These(sent) => sent == &theirs,
                Sent::SoMany(len) if !clean => theirs.len() <= *len,
                Sent::SoMany(len) => theirs.len() == *len,
                Sent::Nothing => true,
            };
            if !same {
                Report::add(&report.altered);
                let text = String::from_utf8_lossy(bytes).chars().take(4000).collect::<String>();
                report.fault(format!("altered: {} inject {}: {text}", item.path, ask.inject));
            }
            let finals = ours.iter().filter(|record| record.complete).count();
            if finals > 1 || (ask.inject == "off" && !ours.is_empty()) {
                report.fault(format!("{}: {} events, {finals} final", item.path, ours.len()));
            }
            ours
        } else if clean {
            client(*profile, bytes).records
        } else {
            Vec::new()
        };
        self.learn(ask, records);
    }

    fn learn(&self, ask: &ChatRequest, records: Vec<Record>) {
        if let Some(last) = records.into_iter().next_back() {
            let report = &self.report;
            let counter = if last.stored { &report.stored } else { &report.not_stored };
            counter.fetch_add(1, Relaxed);
            report.learn(ask.tenant, last.message_id, ask.item.has_fresh_ids);
        }
    }
}

fn leaves(rng: &mut Rng) -> Disconnect {
    match rng.within(0..40) {
        0..6 => Disconnect::After(rng.within(0..12)),
        6 => Disconnect::Stalls(rng.millis(100..900)),
        7 if rng.one_in(3) => Disconnect::Stalls(rng.millis(2500..3500)),
        _ => Disconnect::Never,
    }
}
