//! Clients of the API, clients with invalid requests, and disturbances.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Method;
use serde_json::json;
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::report::Report;
use crate::{
    api::tenants::{ALPHA, BETA},
    net::{Client, ClientResponse, LIMIT, request},
    process::Running,
    rng::Rng,
};

const FORMATS: [&str; 10] =
    ["json", "bundle", "markdown", "footnotes", "html", "csv", "bibtex", "ris", "csl", "prompt"];
/// Maximum time of `/healthz` on a busy machine.
const HEALTHY: Duration = Duration::from_secs(5);

pub struct ApiClients {
    pub addr: SocketAddr,
    pub report: Arc<Report>,
    /// Bodies for `/normalize`.
    pub captures: Arc<Vec<Bytes>>,
    pub until: Instant,
}

impl ApiClients {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    pub async fn api(self: Arc<Self>, mut rng: Rng) {
        while !self.is_over() {
            let h2 = rng.one_in(3);
            let mut client = if h2 { Client::h2(self.addr).await } else { Client::h1(self.addr).await };
            for _ in 0..rng.within(1..20) {
                self.one_call(&mut client, &mut rng).await;
                tokio::time::sleep(rng.millis(0..30)).await;
            }
        }
    }

    async fn ask(
        &self,
        client: &mut Client,
        tenant: usize,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> ClientResponse {
        let body = body.into();
        let ask = || request(method.clone(), path, [ALPHA, BETA][tenant], body.clone());
        match client.try_send(ask()).await {
            Ok(response) => response,
            // A response was left half-read on it, or it was idle longer than the server's timeout.
            Err(_) => {
                *client = Client::h1(self.addr).await;
                client.send(ask()).await
            }
        }
    }

    /// A write that waits too long for a lock gets 503. Nothing else may.
    async fn one_call(&self, client: &mut Client, rng: &mut Rng) {
        let tenant = rng.within(0..2);
        let Some((id, only_here)) = self.report.known(tenant, rng.next()) else { return };
        let get = Method::GET;
        let (what, method, path, body, wanted): (&str, Method, String, String, &[u16]) = match rng.within(0..13) {
            0 => ("list", get, format!("/citations?limit={}", rng.within(1..60)), String::new(), &[200]),
            1 => ("search", get, "/citations?q=%E7%81%AB&domain=example.com".to_owned(), String::new(), &[200]),
            2 | 3 => {
                let path = format!("/citations/{id}?format={}", rng.pick(&FORMATS));
                ("one", get, path, String::new(), &[200, 202, 404])
            }
            4 => ("wait", get, format!("/citations/{id}?wait=0.3"), String::new(), &[200, 202, 404]),
            5 => ("events", get, format!("/citations/{id}/events"), String::new(), &[200, 404]),
            6 => ("stats", get, (*rng.pick(&["/stats", "/stats?format=csv"])).to_owned(), String::new(), &[200]),
            7 => return self.task(client, tenant, &id).await,
            8 => {
                let capture = rng.pick(&self.captures).clone();
                let response = self.ask(client, tenant, Method::POST, "/normalize", capture).await;
                return self.check_status("normalize", response, &[200, 422]).await;
            }
            9 => {
                let style = *rng.pick(&["html", "link", "sup", "footnote", "strip"]);
                let body = json!({"text": "一[1] 二[2]", "messageId": id, "style": style}).to_string();
                ("render", Method::POST, "/render".to_owned(), body, &[200, 404])
            }
            10 => ("forget", Method::DELETE, format!("/citations/{id}"), String::new(), &[204, 404, 503]),
            11 if only_here => {
                // For the other tenant it does not exist.
                let response = self.ask(client, 1 - tenant, get, &format!("/citations/{id}"), "").await;
                return self.check_status("other tenant", response, &[404]).await;
            }
            _ => {
                let path = *rng.pick(&["/", "/component.js", "/version", "/metrics", "/console/routes"]);
                ("page", get, path.to_owned(), String::new(), &[200])
            }
        };
        let response = self.ask(client, tenant, method, &path, body).await;
        // Some watch only the beginning.
        if what == "events" && rng.one_in(2) {
            self.report.expect(what, response.status.as_u16(), wanted);
            return;
        }
        self.check_status(what, response, wanted).await;
    }

    async fn check_status(&self, what: &str, response: ClientResponse, wanted: &[u16]) {
        let status = response.status.as_u16();
        self.report.expect(what, status, wanted);
        let whole = response.whole().await;
        if whole.error.is_some() {
            self.report.fault(format!("{what} broke off: {:?}", whole.error));
        }
        if status >= 500 && !wanted.contains(&status) {
            self.report.fault(format!("{what}: {status} {}", whole.text()));
        }
    }

    /// Reads a page of a task and commits its cursor.
    async fn task(&self, client: &mut Client, tenant: usize, id: &str) {
        let bundles = self.ask(client, tenant, Method::GET, &format!("/tasks/{id}/bundles"), "").await;
        self.check_status("bundles", bundles, &[200, 404]).await;
        let path = format!("/tasks/{id}/results?consumer=soak&limit=3");
        let page = self.ask(client, tenant, Method::GET, &path, "").await;
        self.report.expect("results", page.status.as_u16(), &[200, 404]);
        let found = page.status == 200;
        let page = page.json().await;
        if found {
            let path = format!("/tasks/{id}/cursors/soak");
            let put = self.ask(client, tenant, Method::PUT, &path, page["cursor"].to_string()).await;
            self.check_status("cursor", put, &[200, 404, 409, 503]).await;
        }
    }

    /// Sends invalid requests. None causes a server error.
    pub async fn wrong(self: Arc<Self>, mut rng: Rng) {
        while !self.is_over() {
            let wild: Vec<u8> = (0..rng.within(1..4000)).map(|_| rng.next() as u8).collect();
            let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(40_000));
            let request: Vec<u8> = match rng.within(0..12) {
                0 => wild,
                1 => long.into_bytes(),
                2 => b"GET /citations HTTP/1.1\r\n\r\n".to_vec(),
                3 => b"POST /tencent/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
                4 => b"POST /tencent/full/slowly HTTP/1.1\r\nhost: localhost\r\nx-citetap-key: no-key\r\ncontent-length: 0\r\n\r\n".to_vec(),
                5 => b"GET /citations/m HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer nobody\r\n\r\n".to_vec(),
                6 => b"CONNECT a:1 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
                7 => b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nx-citetap-key: alpha-key\r\n\r\n".to_vec(),
                8 => b"POST /openai/xai/slowly HTTP/1.1\r\nhost: localhost\r\nx-citetap-key: alpha-key\r\nx-citetap-profile: none\r\ncontent-length: 0\r\n\r\n".to_vec(),
                9 => [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &wild].concat(),
                10 => b"POST /normalize HTTP/1.1\r\nhost: localhost\r\nx-citetap-key: alpha-key\r\ncontent-length: 3\r\n\r\n{{{".to_vec(),
                // Never finished: the server closes it.
                _ => b"GET / HTTP/1.1\r\nhost: localhost\r\nx-never: en".to_vec(),
            };
            let response = self.raw(&request).await;
            Report::add(&self.report.requests);
            let status = response.strip_prefix("HTTP/1.1 ").map_or("none", |rest| rest.get(..3).unwrap_or(rest));
            self.report.count(format!("wrong {status}"));
            // 501 is the response to a method that is not relayed.
            if status.starts_with('2') || (status.starts_with('5') && status != "501") {
                self.report.fault(format!("{:?}: {response}", String::from_utf8_lossy(&request)));
            }
            tokio::time::sleep(rng.millis(0..60)).await;
        }
    }

    /// Sends the bytes and reads for a while.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let _ = stream.write_all(request).await;
        let mut response = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(Ok(n @ 1..)) = timeout(Duration::from_secs(3), stream.read(&mut piece)).await {
            response.extend_from_slice(&piece[..n]);
            if response.windows(4).any(|end| end == b"\r\n\r\n") {
                break;
            }
        }
        String::from_utf8_lossy(&response).into_owned()
    }

    /// Checks that it is alive all the time.
    pub async fn health(self: Arc<Self>) {
        while !self.is_over() {
            let began = Instant::now();
            let health = async {
                let get = request(Method::GET, "/healthz", &[], "");
                Client::h1(self.addr).await.send(get).await.whole().await.text()
            };
            if timeout(HEALTHY, health).await.as_deref() != Ok("ok\n") {
                self.report.fault(format!("/healthz did not answer within {HEALTHY:?}"));
            }
            Report::add(&self.report.requests);
            let took = u64::try_from(began.elapsed().as_millis()).unwrap();
            self.report.slowest_health_ms.fetch_max(took, Relaxed);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Another process that holds the file's lock for most of a second, now and then.
    pub async fn locks(self: Arc<Self>, file: std::path::PathBuf, mut rng: Rng) {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(false).busy_timeout(LIMIT);
        let mut conn = options.connect().await.unwrap();
        while !self.is_over() {
            tokio::time::sleep(rng.millis(2000..5000)).await;
            let lock = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
            tokio::time::sleep(rng.millis(300..900)).await;
            lock.rollback().await.unwrap();
            Report::add(&self.report.locks);
        }
        conn.close().await.unwrap();
    }

    /// Reloads with the same routes, or with invalid ones.
    pub async fn reloads(self: Arc<Self>, running: Arc<Running>, dir: &Path, mut rng: Rng) {
        let file = dir.join("citetap.toml");
        let good = std::fs::read(&file).unwrap();
        while !self.is_over() {
            tokio::time::sleep(rng.millis(500..2500)).await;
            if rng.one_in(3) {
                std::fs::write(&file, "routes = 7").unwrap();
                running.signal("HUP");
                tokio::time::sleep(Duration::from_millis(300)).await;
                std::fs::write(&file, &good).unwrap();
            }
            running.signal("HUP");
            Report::add(&self.report.reloads);
        }
    }
}
