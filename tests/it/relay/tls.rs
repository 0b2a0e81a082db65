//! Upstreams with TLS: ALPN and certificate verification.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use citetap::{
    replay::{Script, Scripted, Step, Upstream},
    server::App,
    store::MemoryStore,
    transport::client::Client as UpstreamClient,
};
use http::Version;
use rcgen::{Certificate, CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::net::{Client, Proxy, config, post, route, split, tencent};

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A TLS terminator in front of a plain upstream.
pub async fn terminator(to: SocketAddr, protocols: &[&[u8]], names: &[&str]) -> (u16, ClientConfig) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    terminator_with(to, protocols, &cert, &signing_key).await
}

/// The same with this certificate, which the client trusts.
pub async fn terminator_with(
    to: SocketAddr,
    protocols: &[&[u8]],
    cert: &Certificate,
    signing_key: &KeyPair,
) -> (u16, ClientConfig) {
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    server.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(stream).await else { return };
                let mut plain = TcpStream::connect(to).await.unwrap();
                plain.set_nodelay(true).unwrap();
                let _ = tokio::io::copy_bidirectional(&mut tls, &mut plain).await;
            });
        }
    });

    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (port, client)
}

fn references() -> Step {
    Step::Send(tencent::references("m", &[1, 2]).into())
}

fn finish() -> Step {
    Step::Send(tencent::finish("m").into())
}

pub async fn upstream() -> Upstream {
    let pause = || Step::Pause(Duration::from_millis(300));
    let steps = [references(), pause(), Step::Send(tencent::text("m", "一").into()), pause(), finish()];
    Upstream::bind(vec![Scripted::new("/", Script::sse_steps(steps))]).await.unwrap()
}

pub async fn proxy(port: u16, tls: ClientConfig) -> Proxy {
    // One worker, because each has its own upstream connections.
    let route = route("chat", &format!("https://localhost:{port}"));
    let config = config(&format!("workers = 1\n{route}provider = \"tencent\"\n"));
    let client = UpstreamClient::with_tls(tls, config.timeouts.connect);
    Proxy::serve(App::new(config, Arc::new(MemoryStore::new()), client)).await
}

#[tokio::test]
async fn h2_is_negotiated_and_events_arrive_one_by_one() {
    for (protocols, version) in
        [(&[&b"h2"[..], b"http/1.1"][..], Version::HTTP_2), (&[&b"http/1.1"[..]][..], Version::HTTP_11)]
    {
        let upstream = upstream().await;
        let (port, tls) = terminator(upstream.addr(), protocols, &["localhost"]).await;
        let proxy = proxy(port, tls).await;
        let mut response = Client::h1(proxy.addr).await.send(post("/chat", "{}")).await;
        let mut text = String::new();
        for (at, sign) in ["reference_chunks", "一", "event:finish"].into_iter().enumerate() {
            text += &response.until(sign).await;
            let sizes =
                [tencent::references("m", &[1, 2]).len(), tencent::text("m", "一").len(), tencent::finish("m").len()];
            let sent: usize = sizes[..=at].iter().sum();
            assert_eq!(upstream.requests()[0].bytes_out, sent as u64, "{sign} arrived together with the next event");
        }
        assert!(response.piece().await.is_none());
        let (_, ours) = split(text.as_bytes());
        assert!(ours[0].complete && ours[0].stored);
        assert_eq!(upstream.requests()[0].version, version);
    }
}

/// One h2 connection carries many streams. A reset or cancelled stream does not affect the others.
#[tokio::test]
async fn streams_share_an_upstream_h2_connection_independently() {
    let upstream = upstream().await;
    let (port, tls) = terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let proxy = proxy(port, tls).await;
    proxy.post("/chat", "{}").await.whole().await;
    let mut responses = Vec::new();
    for _ in 0..4 {
        responses.push(proxy.post("/chat", "{}").await);
    }
    drop(responses.pop());
    for response in responses {
        let whole = response.whole().await;
        assert_eq!(whole.error, None);
        assert!(whole.split().1[0].complete);
    }
    assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.cancelled() == 1).await);
    assert_eq!(upstream.connections_accepted(), 1);
}

/// L51: a client that does not read stalls its own stream, not the shared connection.
#[tokio::test]
async fn stalled_client_does_not_stall_a_shared_connection() {
    let bulk = Script::sse_steps([references(), Step::Bulk { len: 1 << 40, chunk: 64 * 1024 }]);
    let answer = Script::sse_steps([references(), Step::Bulk { len: 512 << 10, chunk: 64 * 1024 }, finish()]);
    let upstream = Upstream::bind(vec![Scripted::new("/stalled", bulk), Scripted::new("/", answer)]).await.unwrap();
    let (port, tls) = terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let proxy = proxy(port, tls).await;
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let mut response = proxy.post("/chat/stalled", "{}").await;
        response.until("reference_chunks").await;
        stalled.push(response);
    }
    let out = || upstream.requests().iter().map(|seen| seen.bytes_out).sum::<u64>();
    let mut before = u64::MAX;
    while before != out() {
        before = out();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for _ in 0..3 {
        let whole = proxy.post("/chat", "{}").await.whole().await;
        assert_eq!(whole.error, None);
        assert!(whole.split().1[0].complete);
    }
    assert_eq!(upstream.connections_accepted(), 1);
    assert_eq!(upstream.cancelled(), 0);
}

/// H48
#[tokio::test]
async fn untrusted_or_misnamed_certificate_is_502() {
    let upstream = upstream().await;
    let (_, trusts_another) = terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let (port, _) = terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let (misnamed, trusts_it) = terminator(upstream.addr(), &[b"h2"], &["other.example.com"]).await;
    for (port, tls) in [(port, trusts_another), (misnamed, trusts_it)] {
        let proxy = proxy(port, tls).await;
        let problem = proxy.post("/chat", "{}").await.is_problem(502, "upstream-unreachable").await;
        assert!(problem["detail"].as_str().unwrap().contains("certificate"), "{problem}");
    }
    assert_eq!(upstream.request_count(), 0);
}
