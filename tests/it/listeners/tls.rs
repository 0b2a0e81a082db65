//! TLS on the listener.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{ID, assert_large_answer, assert_streams, serve, upstream};
use crate::{
    net::{Client, post, raw, tencent, within},
    process::{Running, citetap, run, the_record},
};

const TLS: &str = "listen = \"127.0.0.1:0\"\n[tls]\ncert = \"site.crt\"\nkey = \"site.key\"";

/// Writes a certificate for localhost and its key.
fn make(dir: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(dir.join("site.crt"), cert.pem()).unwrap();
    fs::write(dir.join("site.key"), signing_key.serialize_pem()).unwrap();
    cert.der().clone()
}

async fn connect(
    addr: SocketAddr,
    trusted: &CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").unwrap();
    within("a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

async fn h1(addr: SocketAddr, trusted: &CertificateDer<'static>) -> Client {
    Client::over(connect(addr, trusted, &rustls::version::TLS13, &[]).await.unwrap(), false).await
}

#[tokio::test]
async fn streams_over_tls_are_the_upstreams_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let cert = make(dir.path());
    let serve = Running::start(serve(dir.path(), TLS, &upstream)).await;
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        for (offered, chosen) in
            [(&[&b"h2"[..], b"http/1.1"][..], Some(&b"h2"[..])), (&[b"http/1.1"], Some(b"http/1.1")), (&[], None)]
        {
            let stream = connect(serve.addr, &cert, version, offered).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
            let mut client = Client::over(stream, chosen == Some(b"h2")).await;
            assert_streams(&mut client).await;
            assert_large_answer(&mut client).await;
        }
    }
    assert!(connect(serve.addr, &cert, &rustls::version::TLS13, &[b"smtp"]).await.is_err(), "no common version");
}

#[tokio::test]
async fn sighup_reloads_a_valid_certificate_only() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let first = make(dir.path());
    let serve = Running::start(serve(dir.path(), TLS, &upstream)).await;
    let mut open = h1(serve.addr, &first).await;
    let mut response = open.send(post("/chat/slow", "{}")).await;
    let mut seen = response.until("reference_chunks").await.into_bytes();

    let second = make(dir.path());
    serve.signal("HUP");
    serve.logged("certificate reloaded", 1).await;
    assert_streams(&mut h1(serve.addr, &second).await).await;
    assert!(connect(serve.addr, &first, &rustls::version::TLS13, &[]).await.is_err(), "it is shown no more");

    // The key of another certificate, as in the middle of a renewal.
    let key = KeyPair::generate().unwrap().serialize_pem();
    fs::write(dir.path().join("site.key"), key).unwrap();
    serve.signal("HUP");
    let refused = serve.logged("certificate not reloaded", 1).await;
    assert_eq!(refused[0]["level"], "ERROR");
    let why = refused[0]["error"].as_str().unwrap();
    assert!(why.contains("site.key: is not the key of the certificate in"), "{why}");
    fs::write(dir.path().join("site.crt"), "gone").unwrap();
    serve.signal("HUP");
    serve.logged("certificate not reloaded", 2).await;
    assert_streams(&mut h1(serve.addr, &second).await).await;

    seen.extend(response.whole().await.bytes());
    assert!(the_record(&seen).complete, "earlier connections stay open");
}

#[tokio::test]
async fn incomplete_handshake_times_out_and_drain_waits() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let cert = make(dir.path());
    let short = format!("{TLS}\n[timeouts]\nrequest_headers = \"300ms\"");
    let mut serve = Running::start(serve(dir.path(), &short, &upstream)).await;
    let mut silent = TcpStream::connect(serve.addr).await.unwrap();
    let mut half = TcpStream::connect(serve.addr).await.unwrap();
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).await.unwrap();
    for stream in [&mut silent, &mut half] {
        let read = within("the end of a connection", stream.read(&mut [0; 64])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    let plain = raw(serve.addr, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(!plain.contains("HTTP/1.1"), "{plain:?}");

    let mut client = h1(serve.addr, &cert).await;
    let mut idle = connect(serve.addr, &cert, &rustls::version::TLS13, &[]).await.unwrap();
    let mut response = client.send(post("/chat/slow", "{}")).await;
    let mut seen = response.until("reference_chunks").await.into_bytes();
    serve.signal("TERM");
    serve.logged("draining", 1).await;
    let whole = response.whole().await;
    assert_eq!(whole.error, None);
    seen.extend(whole.bytes());
    assert!(seen.ends_with(tencent::finish(ID).as_bytes()));
    let read = within("the end of an idle connection", idle.read(&mut [0; 64])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert!(serve.ended(Duration::from_secs(10)).await.success());
}

#[tokio::test]
async fn health_accepts_a_certificate_of_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    make(dir.path());
    let running = Running::start(serve(dir.path(), TLS, &upstream)).await;
    let own = TLS.replace("127.0.0.1:0", &format!("0.0.0.0:{}", running.addr.port()));
    fs::write(
        dir.path().join("other.toml"),
        format!("auth = \"none\"\n{own}\n[[routes]]\nname = \"a\"\nprefix = \"/\"\nupstream = \"http://a.example\"\n"),
    )
    .unwrap();
    let ran = run(citetap(dir.path(), &["health", "--ready", "--config", "other.toml"]), "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let url = format!("https://127.0.0.1:{}", running.addr.port());
    let ran = run(citetap(dir.path(), &["health", "--url", &url]), "");
    assert!(ran.code == 1 && ran.err.contains("certificate"), "an address that was typed is checked: {ran:?}");
}

#[tokio::test]
async fn check_reports_certificate_problems() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    drop(serve(dir.path(), TLS, &upstream));
    let check = || run(citetap(dir.path(), &["check"]), "");
    let ran = check();
    assert!(ran.code == 1 && ran.err.contains("site.crt: cannot be read"), "{ran:?}");
    make(dir.path());
    let ran = check();
    assert_eq!((ran.code, ran.err.as_str()), (0, "the configuration is valid\n"));

    let until = |year| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        fs::write(dir.path().join("site.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        key
    };
    let key = until(2001);
    let ran = check();
    assert!(ran.code == 1 && ran.err.contains("site.key: is not the key of"), "{ran:?}");
    fs::write(dir.path().join("site.key"), key.serialize_pem()).unwrap();
    let ran = check();
    assert!(ran.code == 1 && ran.err.contains("has expired: it was valid until 2001-01-01"), "{ran:?}");
    assert!(CertificateDer::from_pem_file(dir.path().join("site.crt")).is_ok());

    // A wrong clock must not prevent citetap from starting: it logs a warning, and clients decide.
    let running = Running::start(citetap(dir.path(), &["serve"])).await;
    assert!(running.log().iter().any(|line| line["level"] == "WARN" && line.to_string().contains("has expired")));
}
