//! Outages of the server, simulated by a TCP proxy in between.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    time::Instant,
};

use super::*;
use crate::store::{Writer, tests::server};

/// A TCP proxy to the server that can be switched off.
struct TcpProxy {
    url: Url,
    state: Arc<AtomicU8>,
}

const UP: u8 = 0;
/// Connections are closed, and new ones are not served.
const DOWN: u8 = 1;
/// Nothing is forwarded, and connections stay open.
const SILENT: u8 = 2;

impl TcpProxy {
    async fn new(state: u8) -> Self {
        let server = server::postgres_url().await;
        let to = (server.host_str().unwrap().to_owned(), server.port().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut url = server;
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let state = Arc::new(AtomicU8::new(state));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (shared, to) = (Arc::clone(&shared), to.clone());
                tokio::spawn(async move {
                    if shared.load(SeqCst) == DOWN {
                        return;
                    }
                    let mut server = TcpStream::connect(to).await.unwrap();
                    loop {
                        let copied = tokio::time::timeout(Duration::from_millis(20), async {
                            if shared.load(SeqCst) == UP {
                                return copy_bidirectional(&mut client, &mut server).await.is_ok();
                            }
                            std::future::pending().await
                        });
                        // Bytes read but not yet written are lost here, so only states that end connections may follow.
                        if copied.await.is_ok() || shared.load(SeqCst) == DOWN {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, state }
    }

    fn set(&self, state: u8) {
        self.state.store(state, SeqCst);
    }
}

async fn eventually(what: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !what().await {
        assert!(began.elapsed() < Duration::from_secs(20), "never");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn server_absent_at_start_is_used_once_up() {
    let proxy = TcpProxy::new(DOWN).await;
    let store: Arc<dyn Store> = Arc::new(open(&proxy.url).await);
    let writer = Writer::spawn(Arc::clone(&store), 8);
    eventually(async || writer.unhealthy_reason().is_some()).await;
    assert!(store.get("t", "1", None).await.is_err());
    let waiting = writer.put(entry("t", "p", "1", now_ms())).unwrap();
    assert!(waiting.await.unwrap().is_err());
    proxy.set(UP);
    eventually(async || writer.is_healthy()).await;
    eventually(async || store.get("t", "1", None).await.is_ok_and(|found| found.is_some())).await;
    assert_eq!(writer.shutdown().await, 0);
}

#[tokio::test]
async fn restarted_server_is_used_without_errors() {
    let url = server::postgres_url().await;
    let store = open(&url).await;
    store.put(&[entry("t", "p", "1", now_ms())]).await.unwrap();
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    // As a restart would: terminate every connection, idle ones included.
    let schema: String =
        sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut connect(&url).await).await.unwrap();
    let terminate = "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.application_name = 'citetap'
                AND a.pid = ANY($1)";
    let pids = {
        let mut tx = store.begin_write(&[]).await.unwrap();
        let mut read_conn = store.pool.acquire_read().await.unwrap();
        let pid = "SELECT pg_backend_pid()";
        let pids = [
            sqlx::query_scalar::<_, i32>(pid).fetch_one(&mut tx.conn).await.unwrap(),
            sqlx::query_scalar::<_, i32>(pid).fetch_one(&mut read_conn.conn).await.unwrap(),
        ];
        read_conn.release();
        tx.commit(()).await.unwrap();
        pids
    };
    tokio::time::sleep(Duration::from_millis(1100)).await;
    sqlx::query(terminate).bind(pids.to_vec()).execute(&mut connect(&url).await).await.unwrap();
    store.put(&[entry("t", "p", "2", now_ms())]).await.unwrap();
    assert!(store.get("t", "2", None).await.unwrap().is_some());
    store.ping().await.unwrap();
    assert!(!schema.is_empty());
}

#[tokio::test]
async fn silent_server_fails_reads_in_time() {
    let proxy = TcpProxy::new(UP).await;
    let store = open(&proxy.url).await;
    store.put(&[entry("t", "p", "1", now_ms())]).await.unwrap();
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    proxy.set(SILENT);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let Err(StoreError::Engine(message)) = store.get("t", "1", None).await else { panic!("answered") };
    assert!(began.elapsed() < Duration::from_secs(6) && message.contains("no answer within 5 s"), "{message}");
    proxy.set(DOWN);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(store.put(&[entry("t", "p", "2", now_ms())]).await.is_err());
    proxy.set(UP);
    store.put(&[entry("t", "p", "2", now_ms())]).await.unwrap();
    assert!(store.get("t", "2", None).await.unwrap().is_some());
}
