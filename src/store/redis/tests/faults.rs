//! Servers that are unreachable, hang, refuse us, or are full.

use std::time::Instant;

use super::*;

async fn refused(server: &TestServer, parameters: &str) -> String {
    match RedisStore::open(&server.url(parameters), None).await {
        Ok(_) => panic!("{parameters} was let in"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn open_refused_by_the_server_fails_at_once() {
    let secret = "hunter2hunter2";
    let server = TestServer::start(&["--requirepass", secret]).await;
    for parameters in ["", "pass=wrong-hunter2", "user=nobody&pass=hunter2hunter2"] {
        let error = refused(&server, parameters).await;
        assert_eq!(error, "store: redis: the server refuses the user name or password", "{parameters}");
    }
    let error = refused(&server, &format!("pass={secret}&db=99")).await;
    assert!(error.contains("no database of that number") && !error.contains(secret), "{error}");
    let store = server.store(&format!("pass={secret}&db=3&durable=memory")).await;
    store.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    assert!(!format!("{:?}", store.address).contains(secret));

    // The password changes at run time.
    run::<()>(&store, &["CONFIG", "SET", "requirepass", "another"]).await;
    run::<()>(&store, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]).await;
    let error = loop {
        let error = store.put(&[entry("t", "p", "2", 1)]).await.unwrap_err().to_string();
        if !error.contains("connection") {
            break error;
        }
    };
    assert!(error.contains("refuses the user name or password"), "{error}");
    let client = Client::open(server.url("pass=another").reveal().as_str()).unwrap();
    let mut conn = client.get_multiplexed_async_connection().await.unwrap();
    cmd("CONFIG").arg(&["SET", "requirepass", secret]).query_async::<()>(&mut conn).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    store.put(&[entry("t", "p", "2", 1)]).await.unwrap();
}

#[tokio::test]
async fn unreachable_server_is_used_once_it_starts() {
    let mut server = TestServer::start(&[]).await;
    server.kill();
    let _ = std::fs::remove_file(server.socket());
    let store = server.store("durable=memory").await;
    let began = Instant::now();
    let error = store.get("t", "1", None).await.unwrap_err().to_string();
    assert_eq!(error, "store: redis: there is no socket at that path");
    assert!(store.ping().await.is_err() && store.put(&[entry("t", "p", "1", 1)]).await.is_err());
    assert!(store.bus().unwrap().subscribe().await.is_err());
    assert!(began.elapsed() < Duration::from_secs(2));
    server.restart(&[]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    store.ping().await.unwrap();
    store.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    // The server has lost our scripts.
    run::<()>(&store, &["SCRIPT", "FLUSH"]).await;
    store.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    assert!(store.get("t", "1", None).await.unwrap().is_some());
}

#[tokio::test]
async fn hanging_server_fails_calls_in_time() {
    let server = TestServer::start(&[]).await;
    let store = Arc::new(server.store("durable=memory").await);
    store.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    server.signal(Signal::STOP);
    let began = Instant::now();
    let calls: Vec<_> = (0..300)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                match n % 3 {
                    0 => store.get("t", "1", None).await.map(drop),
                    1 => store.list("t", &Filter::default()).await.map(drop),
                    _ => store.ping().await,
                }
            })
        })
        .collect();
    for call in calls {
        let error = call.await.unwrap().unwrap_err().to_string();
        assert_eq!(error, "store: redis: the server does not answer in time");
    }
    assert!(began.elapsed() < READ_TIMEOUT + Duration::from_secs(2), "{:?}", began.elapsed());
    server.signal(Signal::CONT);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    store.put(&[entry("t", "p", "2", 1)]).await.unwrap();
}

#[tokio::test]
async fn full_server_refuses_puts_and_keeps_records() {
    let server = TestServer::start(&["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"]).await;
    let store = server.store("durable=memory").await;
    let large = |n: i64| {
        let mut large = entry("t", "p", &n.to_string(), n);
        large.record.summary = Some("x".repeat(100_000));
        large
    };
    let mut stored = 0;
    let error = loop {
        match store.put(&[large(stored)]).await {
            Ok(()) => stored += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("memory is full; raise its maxmemory"), "{error}");
    assert!(stored > 5);
    let page = store.list("t", &Filter { limit: 1000, ..Filter::default() }).await.unwrap();
    assert_eq!(page.entries.len() as i64, stored, "nothing of the one that was refused is there");
    let filter = StatsFilter { days: 0..1, ..StatsFilter::default() };
    assert_eq!(store.stats("t", &filter).await.unwrap().days[0].counts.messages, stored);
    // Operations that free memory are allowed.
    assert_eq!(store.delete("t", "0", None).await.unwrap(), 1);
    assert_eq!(store.sweep(3).await.unwrap(), 2);
    store.put(&[large(stored)]).await.unwrap();
}

/// Another program has stored a value under a key of the store.
#[tokio::test]
async fn foreign_key_under_the_prefix_is_reported() {
    let store = redis_store(None).await;
    run::<()>(&store, &["SET", &store.keys("t").newest(), "theirs"]).await;
    let error = store.put(&[entry("t", "p", "1", 1)]).await.unwrap_err().to_string();
    assert!(error.contains("somebody else's; set another ?prefix="), "{error}");
}

/// A user with only the permissions that the documentation asks for.
#[tokio::test]
async fn documented_user_permissions_suffice() {
    let server = TestServer::start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let mut conn = server.conn().await;
    let allowed =
        ["SETUSER", "some", "on", ">pw", "~citetap:*", "&citetap:*", "+@all", "-@dangerous", "+info", "+config|get"];
    cmd("ACL").arg(&allowed).query_async::<()>(&mut conn).await.unwrap();
    let store = server.store("user=some&pass=pw").await;
    assert_eq!(store.setup_warning(), None);
    store.ping().await.unwrap();
    let mut one = entry("t", "p", "1", 1);
    one.record.task_id = Some("task".to_owned());
    store.put(&[one]).await.unwrap();
    assert!(matches!(store.advance(&commit("task")).await, Ok(AdvanceOutcome::Moved(_))));
    assert!(store.progress("t", "task", "c").await.unwrap().is_some());
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    let filter = StatsFilter { days: 0..1, top: 1, by_day: true, ..StatsFilter::default() };
    assert_eq!(store.stats("t", &filter).await.unwrap().sites.len(), 1);
    let mut subscription = store.bus().unwrap().subscribe().await.unwrap();
    store.bus().unwrap().publish("{}").await.unwrap();
    assert_eq!(subscription.recv().await.unwrap(), "{}");
    assert_eq!(store.sweep(2).await.unwrap(), 1);
    // It has no permission on another prefix.
    let elsewhere = server.store("user=some&pass=pw&prefix=other").await;
    let error = elsewhere.put(&[entry("t", "p", "1", 1)]).await.unwrap_err().to_string();
    assert!(error.contains("this user may not"), "{error}");
    cmd("ACL").arg(&["SETUSER", "some", "-info"]).query_async::<()>(&mut conn).await.unwrap();
    assert!(refused(&server, "user=some&pass=pw").await.contains("+info"));
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}

#[tokio::test]
async fn tls_untrusted_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("cert"), pem("CERTIFICATE", made.cert.der())).unwrap();
    std::fs::write(path("key"), pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("other"), pem("CERTIFICATE", other.cert.der())).unwrap();
    std::fs::write(path("none"), "no certificate").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let (cert, key) = (path("cert"), path("key"));
    let tls = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-auth-clients", "no"];
    let _server = TestServer::start(&[&["--bind", "127.0.0.1"], &tls[..]].concat()).await;
    let open = async |ca: &str| {
        let url = format!("rediss://localhost:{port}/0?durable=memory{ca}");
        RedisStore::open(&EngineUrl::new(Url::parse(&url).unwrap()), None).await
    };
    let trusted = open(&format!("&ca={}", path("cert"))).await.unwrap();
    trusted.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    let mut subscription = trusted.bus().unwrap().subscribe().await.unwrap();
    trusted.bus().unwrap().publish("{}").await.unwrap();
    assert_eq!(subscription.recv().await.unwrap(), "{}");
    for ca in [String::new(), format!("&ca={}", path("other"))] {
        let stranger = open(&ca).await.unwrap();
        let error = stranger.ping().await.unwrap_err().to_string();
        assert_eq!(error, "store: redis: the TLS handshake failed; check the certificate and its authority", "{ca}");
    }
    let error = open(&format!("&ca={}", path("none"))).await.err().unwrap().to_string();
    assert!(error.contains("has no certificate"), "{error}");
}
