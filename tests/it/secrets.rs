//! P8: keys, cookies, prompts and queries reach only their destination. They are in no log of any level, no metric, no
//! error, no record and no panic message. Each secret is a unique word, searched for in every output.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::prelude::*;
use citetap::{
    config::{Log, LogFormat},
    replay::{Script, Scripted, Upstream},
    telemetry::{self, LogTarget},
};
use http::Method;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    inputs::raw_upstream,
    net::{Client, LIMIT, eventually, raw, request, route, tencent},
    process::{Running, citetap, dead_port, run},
    relay::tls::terminator_with,
};

/// A unique word with its owner.
fn word(of: &str) -> String {
    format!("CANARY{}{of}", uuid::Uuid::new_v4().simple())
}

macro_rules! secrets {
    ($($name:ident),*) => {
        /// Secrets of clients and operators.
        #[derive(Clone)]
        struct Secrets { $($name: String),* }

        impl Secrets {
            fn new() -> Self {
                Self { $($name: word(stringify!($name))),* }
            }

            fn all(&self) -> Vec<&str> {
                vec![$(&self.$name),*]
            }
        }
    };
}

secrets!(
    authorization,
    cookie,
    key,
    limited,
    wrong,
    api,
    prompt,
    query,
    referer,
    session,
    tavily,
    template,
    rule,
    path
);

impl Secrets {
    /// Headers that a client sends with every request.
    fn headers<'a>(&'a self, key: &'a str, owned: &'a [String; 3]) -> Vec<(&'a str, &'a str)> {
        vec![
            ("x-citetap-key", key),
            ("authorization", &owned[0]),
            ("cookie", &owned[1]),
            ("referer", &owned[2]),
            ("x-api-key", &self.api),
            ("proxy-authorization", &owned[0]),
            ("x-citetap-session", &self.session),
            ("content-type", "application/json"),
        ]
    }

    fn owned(&self) -> [String; 3] {
        [
            format!("Bearer {}", self.authorization),
            format!("session={}", self.cookie),
            format!("https://user:{}@page.example/", self.referer),
        ]
    }

    fn body(&self) -> String {
        let messages = json!([{"role": "user", "content": self.prompt}]);
        json!({"model": "filled", "stream": true, "query": self.prompt, "messages": messages}).to_string()
    }

    /// Asserts that the text contains none of the secrets.
    #[track_caller]
    fn absent(&self, what: &str, text: &[u8]) {
        for secret in self.all() {
            if memchr::memmem::find(text, secret.as_bytes()).is_some() {
                let text = String::from_utf8_lossy(text);
                let line = text.lines().find(|line| line.contains(secret)).unwrap_or_default();
                panic!("{secret} in {what}: {line}");
            }
        }
    }
}

/// A search service that fails in another way each time and repeats the request.
async fn bad_tavily() -> (SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let addr = raw_upstream::serve(move |mut stream: TcpStream| {
        let count = Arc::clone(&count);
        async move {
            let head = raw_upstream::head(&mut stream).await;
            let echo = json!({"detail": {"error": head}, "query": head}).to_string();
            let status = match count.fetch_add(1, Ordering::Relaxed) % 6 {
                0 => "401 Unauthorized",
                1 => "400 Bad Request",
                2 => "500 Internal Server Error",
                3 => "200 OK",
                4 => "432 Plan Limit",
                _ => return,
            };
            let response = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{echo}", echo.len());
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
            let _ = stream.read(&mut [0; 4096]).await;
        }
    })
    .await;
    (addr, requests)
}

/// An upstream that echoes the request as invalid HTTP.
async fn invalid_http_upstream() -> SocketAddr {
    raw_upstream::serve(|mut stream: TcpStream| async move {
        let head = raw_upstream::head(&mut stream).await;
        let _ = stream.write_all(head.replace("POST", "PSOT ").as_bytes()).await;
    })
    .await
}

/// An upstream that closes with unread bytes, which causes a reset.
async fn resetting_upstream() -> SocketAddr {
    raw_upstream::serve(|mut stream: TcpStream| async move {
        let _ = stream.read(&mut [0; 8]).await;
        drop(stream);
    })
    .await
}

struct Rig {
    secrets: Secrets,
    /// The upstream's text may be in responses and records, but not in logs and metrics.
    upstream_words: [String; 2],
    dir: tempfile::TempDir,
    chat: Upstream,
    tavily: Arc<AtomicUsize>,
}

impl Rig {
    async fn new() -> Self {
        let secrets = Secrets::new();
        let dir = tempfile::tempdir().unwrap();
        let upstream_words = [word("title"), word("setcookie")];
        let answer = Script::sse(tencent::answer("m-1").replace("资料", &upstream_words[0]))
            .header(http::header::SET_COOKIE, format!("id={}", upstream_words[1]).parse().unwrap());
        let chat =
            Upstream::bind(vec![Scripted::new("/hang", Script::hang()), Scripted::new("/", answer)]).await.unwrap();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (secure, _) = terminator_with(chat.addr(), &[b"h2", b"http/1.1"], &cert, &signing_key).await;
        let pem = BASE64_STANDARD.encode(cert.der());
        let pem = format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n");
        std::fs::write(dir.path().join("ca.pem"), pem).unwrap();
        let (tavily_at, tavily) = bad_tavily().await;
        let Secrets { tavily: key, template, rule, path, .. } = &secrets;
        let mut toml = format!(
            "store = \"sqlite:c.db\"\n[timeouts]\nfirst_byte = \"700ms\"\n[limits]\nrequest_body = \"64KiB\"\n\
             [search]\nkey = \"{key}\"\nbase_url = \"http://{tavily_at}\"\n"
        );
        for (name, upstream, more) in [
            ("chat", chat.url(), "provider = \"tencent\"\n"),
            ("secure", format!("https://localhost:{secure}"), "provider = \"tencent\"\n"),
            ("sup", chat.url(), "provider = \"tencent\"\nsupplement = \"always\"\n"),
            ("dead", format!("http://127.0.0.1:{}", dead_port()), ""),
            ("garbled", format!("http://{}", invalid_http_upstream().await), ""),
            ("resets", format!("http://{}", resetting_upstream().await), ""),
            ("not-tls", chat.url().replace("http:", "https:"), ""),
        ] {
            let _ = write!(
                toml,
                "{}{more}[routes.request_headers]\nset = {{ x-team = \"{rule}\" }}\n",
                route(name, &upstream)
            );
        }
        let _ = write!(
            toml,
            "{}provider = \"tencent\"\n[routes.openai]\nmodels = [\"filled\"]\nrequest = \"template\"\npath = \"/ask?key={path}\"\n\
             template = '{{\"q\":\"{{{{query}}}}\",\"key\":\"{template}\",\"to\":\"{{{{session}}}}\"}}'\n",
            route("tmpl", &chat.url())
        );
        for (name, key, more) in [("alpha", &secrets.key, ""), ("limited", &secrets.limited, "requests = \"1/d\"\n")] {
            let hash = Sha256::digest(key).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            let _ = write!(toml, "[[tenants]]\nname = \"{name}\"\nkey_sha256 = \"{hash}\"\n{more}");
        }
        std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
        Self { secrets, upstream_words, dir, chat, tavily }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = citetap(self.dir.path(), args);
        command.env("SSL_CERT_FILE", self.dir.path().join("ca.pem"));
        command
    }

    /// Sends requests that succeed and fail in every way. Returns the statuses. None of our responses contains a
    /// secret.
    async fn drive(&self, addr: SocketAddr) -> Vec<u16> {
        let secrets = &self.secrets;
        let (owned, query) = (secrets.owned(), &secrets.query);
        let (headers, wrong) = (secrets.headers(&secrets.key, &owned), secrets.headers(&secrets.wrong, &owned));
        let limited = secrets.headers(&secrets.limited, &owned);
        let mut statuses = Vec::new();
        for mut client in [Client::h1(addr).await, Client::h2(addr).await] {
            let mut ask = async |method: Method, path: &str, headers: &[(&str, &str)], body: String| {
                let request = request(method, path, headers, body);
                let whole = match client.try_send(request).await {
                    Ok(response) => response.whole().await,
                    // Closed by the rejected request before it.
                    Err(_) => return,
                };
                let response = format!("{:?} {}", whole.headers, whole.text());
                secrets.absent(&format!("the answer {} of {path}", whole.status), response.as_bytes());
                let of_operators = matches!(path, "/metrics" | "/console/status" | "/console/routes");
                assert!(!of_operators || !self.upstream_words.iter().any(|word| response.contains(word)), "{response}");
                statuses.push(whole.status.as_u16());
            };
            for path in
                ["chat", "secure", "sup", "dead", "garbled", "resets", "not-tls", "chat/hang", "nowhere", "chat/../x"]
            {
                let path = format!("/{path}?q={query}&key={query}");
                ask(Method::POST, &path, &headers, secrets.body()).await;
                ask(Method::POST, &path, &wrong, secrets.body()).await;
            }
            ask(Method::POST, "/v1/chat/completions", &headers, secrets.body()).await;
            ask(Method::POST, "/v1/chat/completions", &headers, secrets.body().replace("\"filled\"", "5")).await;
            ask(Method::POST, "/v1/chat/completions", &limited, secrets.body()).await;
            ask(Method::POST, "/v1/chat/completions", &wrong, secrets.body()).await;
            ask(Method::GET, &format!("/citations?q={query}"), &limited, String::new()).await;
            for path in ["/citations/m-1", "/citations", "/stats", "/console/status", "/console/routes", "/metrics"] {
                ask(Method::GET, path, &headers, String::new()).await;
            }
            for tail in ["?q=", "?limit=", "?cursor=", "?since=", "/m-1?wait=", "/m-1?format=", "/m-1?cited=", "/"] {
                ask(Method::GET, &format!("/citations{tail}{query}"), &headers, String::new()).await;
            }
            // Invalid bodies, each with the prompt in place of another value.
            let prompt = &secrets.prompt;
            for body in [
                format!("\"{prompt}\""),
                format!("[\"{prompt}\"]"),
                format!("{{\"{prompt}"),
                prompt.clone(),
                json!({"text": prompt, "style": prompt, "messageId": "m-1"}).to_string(),
                json!({"text": [prompt], "messages": prompt, "query": [prompt], "max_results": prompt, "model": [prompt]}).to_string(),
                json!({"text": {"a": prompt}, "messages": [prompt], "query": 5, "topic": prompt, "task_id": prompt}).to_string(),
                json!({"model": "filled", "messages": [{"role": prompt, "content": 5}], "stream": prompt}).to_string(),
                json!({"query": "q", "event_type": prompt, "include_domains": [prompt], "start_date": prompt}).to_string(),
                json!({"query": "q", "topic": prompt}).to_string(),
                json!({"last_query_id": prompt, "last_source_id": prompt, "consumed_count": prompt, "consumed": prompt}).to_string(),
            ] {
                for path in ["/render", "/search", "/v1/chat/completions", "/normalize?provider=tencent"] {
                    ask(Method::POST, path, &headers, body.clone()).await;
                }
                ask(Method::PUT, "/tasks/t/cursors/c", &headers, body).await;
            }
            // Searches that fail in different ways.
            for _ in 0..6 {
                ask(Method::POST, "/search", &headers, json!({"query": prompt}).to_string()).await;
            }
            ask(Method::POST, "/chat", &headers, format!("{}{}", secrets.body(), " ".repeat(65 * 1024))).await;
        }
        let long = format!(
            "GET /chat?q={query} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\nx: {}\r\n\r\n",
            owned[0],
            "v".repeat(20_000)
        );
        let refused = raw(addr, long).await;
        secrets.absent("a 431", refused.as_bytes());
        statuses.push(refused.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default());
        statuses
    }

    /// The secrets reached their destination, and ours were not relayed.
    fn arrived(&self) {
        let secrets = &self.secrets;
        let seen: Vec<u8> = self
            .chat
            .requests()
            .iter()
            .flat_map(|seen| [format!("{} {:?} ", seen.path, seen.headers).into_bytes(), seen.body.to_vec()].concat())
            .collect();
        let has = |secret: &str| memchr::memmem::find(&seen, secret.as_bytes()).is_some();
        let Secrets { authorization, cookie, api, prompt, query, referer, rule, template, path, session, .. } = secrets;
        for passed in [authorization, cookie, api, prompt, query, referer, rule, template, path, session] {
            assert!(has(passed), "{passed} is the upstream's");
        }
        for ours in [&secrets.key, &secrets.limited, &secrets.wrong, &secrets.tavily] {
            assert!(!has(ours), "{ours} is not");
        }
        assert!(self.tavily.load(Ordering::Relaxed) >= 6);
    }
}

/// Runs the server with one log level through all requests.
async fn at(level: &str, format: &str, from_env: bool) {
    let rig = Rig::new().await;
    let address = SocketAddr::from(([127, 0, 0, 1], dead_port()));
    let mut command = rig.command(&["serve", "--listen", &address.to_string()]);
    command.env(if from_env { "RUST_LOG" } else { "CITETAP__LOG__LEVEL" }, level).env("CITETAP__LOG__FORMAT", format);
    let running = Running::start_at(command, address).await;
    let statuses = rig.drive(running.addr).await;
    for expected in [200, 400, 401, 404, 413, 429, 431, 502, 503, 504] {
        assert!(statuses.contains(&expected), "{level}: no {expected} in {statuses:?}");
    }
    rig.arrived();
    let records = files(rig.dir.path());
    rig.secrets.absent("the store", &records);
    assert!(memchr::memmem::find(&records, b"s1.example.com").is_some(), "there are records in it");

    // A database file that is damaged.
    for name in ["c.db", "c.db-wal", "c.db-shm"] {
        let path = rig.dir.path().join(name);
        let len = std::fs::metadata(&path).map_or(0, |file| file.len()) as usize;
        std::fs::write(path, vec![0xa5; len]).unwrap();
    }
    rig.drive(running.addr).await;
    // An invalid configuration is logged as an error, at all levels but one.
    let Secrets { rule, tavily, template, .. } = &rig.secrets;
    let faulty =
        route("chat", &format!("https://user:{rule}@h")) + &format!("[search]\nkey = [\"{tavily}\", {{ {template}");
    std::fs::write(rig.dir.path().join("citetap.toml"), faulty).unwrap();
    running.signal("HUP");
    if level != "off" {
        let is_rejected = || async { running.out().join("\n").contains("routes not reloaded").then_some(()) };
        assert!(eventually(is_rejected).await.is_some(), "{level}: {:?}", running.out());
    }
    running.signal("TERM");
    let mut running = running;
    running.ended(LIMIT).await;
    let log = [running.out(), running.err()].concat().join("\n");
    rig.secrets.absent(&format!("the log at {level}"), log.as_bytes());
    assert!(
        !rig.upstream_words.iter().any(|word| log.contains(word)),
        "the log at {level} contains the upstream's text"
    );
    assert!(matches!(level, "off" | "error") || log.contains("store read failed"), "the store did fail");
    assert_eq!(log.is_empty(), level == "off", "{log}");
    assert!(!level.starts_with("trace") || log.contains("TRACE"), "the most verbose level");
}

/// The database and its side files, byte by byte.
fn files(dir: &Path) -> Vec<u8> {
    ["c.db", "c.db-wal", "c.db-shm"].iter().flat_map(|name| std::fs::read(dir.join(name)).unwrap_or_default()).collect()
}

/// At every log level, including all logs of dependencies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_a_log_metric_error_or_record() {
    let libraries = "trace,h2=trace,hyper=trace,hyper_util=trace,rustls=trace,sqlx=trace,axum=trace,tower=trace";
    let levels = [
        ("off", "json", false),
        ("error", "json", false),
        ("warn", "json", false),
        ("info", "text", false),
        ("debug", "json", false),
        ("trace", "json", false),
        ("trace", "text", true),
        (libraries, "json", true),
    ];
    let runs = levels.map(|(level, format, from_env)| tokio::spawn(at(level, format, from_env)));
    for run in runs {
        if let Err(failed) = run.await {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

/// Output about the configuration, valid or invalid.
#[tokio::test]
async fn no_secret_is_in_output_about_the_configuration() {
    let rig = Rig::new().await;
    for args in [&["check"][..], &["check", "--output", "json"], &["check", "--reach"]] {
        let ran = run(rig.command(args), "");
        rig.secrets.absent(&format!("{args:?}"), format!("{}{}", ran.out, ran.err).as_bytes());
        assert!(ran.out.contains("routes.tmpl.openai.template"), "{}", ran.out);
    }
    let secret = &word("value");
    let route = route("a", "https://a.example");
    let faulty = [
        format!("{route}[search]\nkey = [\"{secret}\"]"),
        format!("{route}[search]\nkey = \"{secret}\\u0000\""),
        format!("{route}[search]\nkey = \"{secret}"),
        format!("{route}[search]\napi_key = \"{secret}\""),
        format!("{route}[search]\nbase_url = \"https://user:{secret}@s.example\""),
        format!("{route}[search]\nbase_url = \"https://s.example?key={secret}\""),
        format!("{route}[[tenants]]\nname = \"a\"\nkey_sha256 = \"{secret}\""),
        format!("{route}[[tenants]]\nname = \"a\"\nkey = \"{secret}\""),
        format!("{route}[routes.request_headers]\nset = {{ x-a = \"{secret}\\n\" }}"),
        format!("{route}[routes.request_headers]\nset = {{ x-a = [\"{secret}\"] }}"),
        format!("{route}[routes.request_headers]\nset = \"x-a: {secret}\""),
        format!("{route}[routes.response_headers]\nset = {{ \"x a\" = \"{secret}\" }}"),
        format!(
            "{route}[routes.openai]\nmodels = [\"m\"]\nrequest = \"template\"\npath = \"/a\"\ntemplate = '{{\"k\":\"{secret}'"
        ),
        format!(
            "{route}[routes.openai]\nmodels = [\"m\"]\nrequest = \"template\"\npath = \"/a\"\ntemplate = '{{{{{secret}}}}}'"
        ),
        format!(
            "{route}[routes.openai]\nmodels = [\"m\"]\nrequest = \"template\"\npath = \"a?k={secret}\"\ntemplate = '{{}}'"
        ),
        format!("{route}[routes.openai]\nmodels = [\"m\"]\ntemplate = '{{\"k\":\"{secret}\"}}'"),
        format!("store = \"mysql://user:{secret}@db.example/x\"\n{route}"),
        format!("store = \"postgres://user:{secret}@[db.example/x\"\n{route}"),
        route.replace("https://", &format!("https://user:{secret}@")),
        route.replace("https://", &format!("ftp://user:{secret}@")),
        route.replace("a.example", &format!("a.example/?key={secret}")),
    ];
    for toml in faulty {
        std::fs::write(rig.dir.path().join("citetap.toml"), &toml).unwrap();
        for command in ["check", "serve"] {
            let ran = run(rig.command(&[command]), "");
            let output = format!("{}{}", ran.out, ran.err);
            assert_ne!(ran.code, 0, "{toml}");
            assert!(!output.contains(secret.as_str()), "{command} prints it: {output}\n{toml}");
        }
    }
    std::fs::remove_file(rig.dir.path().join("citetap.toml")).unwrap();
    for (name, value) in [
        ("CITETAP_UPSTREAM", format!("https://user:{secret}@a.example")),
        ("CITETAP__SEARCH__KEY", format!("{secret}\u{7f}")),
        ("TAVILY_API_KEY", format!("{secret}\n{secret}")),
        ("CITETAP__SEARCH__TOKEN", secret.clone()),
        ("CITETAP_STORE", format!("mysql://:{secret}@r.example?what={secret}")),
    ] {
        let mut command = rig.command(&["check"]);
        command.env("CITETAP_UPSTREAM", "https://a.example").env(name, value);
        let ran = run(command, "");
        assert!(ran.code != 0 && !format!("{}{}", ran.out, ran.err).contains(secret.as_str()), "{name}: {ran:?}");
    }
    // The password of a valid store URL is not shown either.
    for store in
        [format!("postgres://user:{secret}@db.example/x"), format!("redis://:{secret}@r.example/0?prefix={secret}")]
    {
        let mut command = rig.command(&["check"]);
        command.env("CITETAP_UPSTREAM", "https://a.example").env("CITETAP_STORE", store);
        let ran = run(command, "");
        assert!(ran.code == 0 && !format!("{}{}", ran.out, ran.err).contains(secret.as_str()), "{ran:?}");
    }
}

/// A panic logs its location and not its message, which may contain untrusted text. The hook is global, so the test
/// runs itself as a child process that panics.
#[tokio::test]
async fn no_secret_is_in_a_panic_message() {
    if let (Ok(secret), Ok(level)) = (std::env::var("PANICS_WITH"), std::env::var("PANICS_AT")) {
        return panics(secret, level).await;
    }
    let secret = word("panic");
    for level in ["error", "trace"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "secrets::no_secret_is_in_a_panic_message", "--nocapture"]);
        let ran = run_with(command, &[("PANICS_WITH", &secret), ("PANICS_AT", level), ("RUST_BACKTRACE", "full")]);
        let output = format!("{}{}", ran.out, ran.err);
        assert!(output.contains("\"panicked\"") && output.contains("tests/it/secrets.rs:"), "{output}");
        assert_eq!((ran.code, output.matches("panicked").count()), (0, 3), "{output}");
        assert!(!output.contains(&secret), "{output}");
    }
}

fn run_with(mut command: Command, env: &[(&str, &str)]) -> crate::process::CommandOutput {
    command.env_remove("RUST_LOG").envs(env.iter().copied());
    run(command, "")
}

async fn panics(secret: String, level: String) {
    telemetry::init(&Log { level, format: LogFormat::Json }, LogTarget::Stdout);
    let (one, two, three) = (secret.clone(), secret.clone(), secret);
    let task = tokio::spawn(async move { panic!("a frame of {one}") }).await;
    let thread = std::thread::spawn(move || two.parse::<u64>().map_err(|_| two).expect("a number")).join();
    let unwound = std::panic::catch_unwind(|| std::panic::panic_any(three));
    assert!(task.is_err() && thread.is_err() && unwound.is_err());
}
